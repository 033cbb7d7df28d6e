"""A2C's and TRPO's updates against SB3's and sb3-contrib's, as test_sb3.py does it for PPO."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from rltune.agents.algorithms.a2c import A2C
from rltune.agents.algorithms.trpo import TRPO
from rltune.agents.config import make_config
from rltune.agents.spaces import Spaces
from toy_envs import Aim, Bits, Both

sb3 = pytest.importorskip("stable_baselines3")
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402
from test_sb3 import N_ENVS, Copy, pairs  # noqa: E402

ENVS: dict[str, Any] = {"both": Both, "bits": Bits, "aim": Aim}  # what CartPole and Pendulum lack
SDE = {"use_sde": True, "sde_sample_freq": 4}


def prepare(ours: Any, theirs: Any) -> tuple[Any, Any]:
    """Give both the same weights; return our memory and the callback that fills it."""
    with torch.no_grad():
        for own, other in pairs(ours, theirs):
            own.copy_(other)
    memory = ours.make_memory()
    callback = Copy(memory)
    theirs._setup_learn(10_000)
    callback.init_callback(theirs)
    return memory, callback


def environments(env: str) -> Any:
    # Short episodes: terminations and time limits both occur in the rollouts.
    if env in ENVS:
        return make_vec_env(lambda: ENVS[env](n=2, length=25), N_ENVS, seed=0)
    return make_vec_env(env, N_ENVS, seed=0, env_kwargs={"max_episode_steps": 25})


def make(agent: Any, theirs: Any, settings: dict[str, Any]) -> Any:
    plain = {"normalize_observations": False, "normalize_rewards": False, "n_envs": N_ENVS}
    spaces = Spaces(theirs.observation_space, theirs.action_space, N_ENVS)
    return agent(make_config(agent.Config, {**settings, **plain}), spaces, seed=0)


@pytest.mark.parametrize(
    ("env", "changes"),
    [
        ("CartPole-v1", {}),  # both with their own defaults
        ("CartPole-v1", {"n_steps": 16, "gae_lambda": 0.9, "ent_coef": 0.01, "vf_coef": 0.25}),
        ("CartPole-v1", {"normalize_advantage": True, "max_grad_norm": 0.1}),
        ("Pendulum-v1", {"learning_rate": 1e-3}),
        ("Pendulum-v1", {"n_steps": 8, "gae_lambda": 0.9, "gamma": 0.9, "vf_coef": 0.4, **SDE}),
        ("both", {"ent_coef": 0.01}),
        ("bits", {"ent_coef": 0.01}),
        ("aim", {"ent_coef": 0.01}),
    ],
)
def test_a2c_updates_are_those_of_sb3(env: str, changes: dict[str, Any]) -> None:
    theirs = sb3.A2C("MlpPolicy", environments(env), seed=0, device="cpu", **changes)
    ours = make(A2C, theirs, changes)
    assert ours.config.n_steps == theirs.n_steps
    memory, callback = prepare(ours, theirs)
    start = ours.learner.flat.clone()
    for _ in range(10):
        theirs.collect_rollouts(theirs.env, callback, theirs.rollout_buffer, theirs.n_steps)
        theirs.train()
        ours.update(memory, progress=0.0)
        for own, other in pairs(ours, theirs):
            torch.testing.assert_close(own, other, atol=1e-5, rtol=0)
    assert float((ours.learner.flat - start).abs().max()) > 1e-3


N_STEPS = 64
TRPO_SETTINGS: dict[str, Any] = dict(
    n_steps=N_STEPS, batch_size=64, n_critic_updates=3, gae_lambda=0.9, cg_damping=0.1
)


@pytest.mark.parametrize(
    ("env", "changes"),
    [
        ("CartPole-v1", {}),
        ("CartPole-v1", {"sub_sampling_factor": 3, "target_kl": 0.03}),
        ("CartPole-v1", {"normalize_advantage": False, "cg_max_steps": 5}),
        ("Pendulum-v1", {"line_search_shrinking_factor": 0.5}),
        ("Pendulum-v1", {"gamma": 0.9, **SDE}),
        ("both", {}),
        ("bits", {}),
        ("aim", {"target_kl": 0.05}),
    ],
)
def test_trpo_updates_are_those_of_sb3(
    env: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    contrib = pytest.importorskip("sb3_contrib")
    settings = {**TRPO_SETTINGS, **changes}
    theirs = contrib.TRPO("MlpPolicy", environments(env), seed=0, device="cpu", **settings)
    ours = make(TRPO, theirs, settings)
    memory, callback = prepare(ours, theirs)
    accepted = 0
    for _ in range(4):
        theirs.collect_rollouts(theirs.env, callback, theirs.rollout_buffer, N_STEPS)
        # SB3 shall shuffle as ours is going to; its rows are sorted by environment, ours by step.
        generator = torch.Generator()
        generator.set_state(ours.generator.get_state())
        n_orders = theirs.n_critic_updates + (theirs.sub_sampling_factor > 1)
        shuffles = [torch.randperm(N_ENVS * N_STEPS, generator=generator) for _ in range(n_orders)]
        orders = [o.numpy() % N_ENVS * N_STEPS + o.numpy() // N_ENVS for o in shuffles]
        if theirs.sub_sampling_factor == 1:  # the actor reads all rows, in any order
            orders = [np.arange(N_ENVS * N_STEPS), *orders]
        theirs_order = iter(orders)
        with monkeypatch.context() as patch:
            patch.setattr(np.random, "permutation", lambda n, order=theirs_order: next(order))
            # SB3's conjugate gradient starts near 0, ours at 0.
            patch.setattr(torch, "randn_like", torch.zeros_like)
            theirs.train()
        assert next(theirs_order, None) is None
        accepted += ours.update(memory, progress=0.0)["step_fraction"] > 0
        for own, other in pairs(ours, theirs):
            # Conjugate gradient multiplies what rounding there is.
            torch.testing.assert_close(own, other, atol=5e-5, rtol=0)
    assert accepted >= 3
