"""PPO's update against Stable-Baselines3's: the same weights and steps give the same weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from rltune.agents.algorithm import Spaces
from rltune.agents.config import make_config
from rltune.agents.ppo import PPO

sb3 = pytest.importorskip("stable_baselines3")
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402

N_ENVS, N_STEPS = 4, 64
SETTINGS: dict[str, Any] = dict(
    n_steps=N_STEPS, batch_size=N_ENVS * N_STEPS, n_epochs=4, gamma=0.99, gae_lambda=0.9,
    ent_coef=0.01, learning_rate=1e-3, clip_range=0.2,
)  # fmt: skip
LAYERS = {
    "actor.torso.0": "mlp_extractor.policy_net.0",
    "actor.torso.2": "mlp_extractor.policy_net.2",
    "actor.head": "action_net",
    "critic.0.0": "mlp_extractor.value_net.0",
    "critic.0.2": "mlp_extractor.value_net.2",
    "critic.1": "value_net",
}


class Copy(BaseCallback):  # type: ignore[misc]
    """Hands every step that SB3 takes to our memory too."""

    def __init__(self, memory: Any) -> None:
        super().__init__()
        self.memory = memory

    def _on_step(self) -> bool:
        seen = self.locals
        done, infos = seen["dones"], seen["infos"]
        cut = np.array([d and i["TimeLimit.truncated"] for d, i in zip(done, infos, strict=True)])
        successor = seen["new_obs"].copy()
        for env in np.flatnonzero(done):
            successor[env] = infos[env]["terminal_observation"]
        self.memory.add(
            obs=self.model._last_obs,
            action=seen["actions"],
            reward=seen["rewards"],
            terminated=done & ~cut,
            truncated=cut,
            next_obs=successor,
            valid=np.ones(N_ENVS, np.bool_),
        )
        return True


def pairs(ours: PPO, theirs: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    own, other = ours.nets.state_dict(), theirs.policy.state_dict()
    names = [(f"{a}.{p}", f"{b}.{p}") for a, b in LAYERS.items() for p in ("weight", "bias")]
    if "log_std" in other:
        names.append(("actor.log_std", "log_std"))
    assert len(names) == len(own) == len(other)
    return [(own[a], other[b]) for a, b in names]


SDE = {"use_sde": True, "sde_sample_freq": 4}


@pytest.mark.parametrize(
    ("env", "changes"),
    [
        ("CartPole-v1", {}),
        ("CartPole-v1", {"batch_size": 64}),
        ("Pendulum-v1", {"batch_size": 64}),
        ("Pendulum-v1", {"batch_size": 64, **SDE}),
    ],
)
def test_updates_are_those_of_sb3(
    env: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**SETTINGS, **changes}
    # Short episodes: terminations and time limits both occur in every rollout.
    kwargs = {"max_episode_steps": 25}
    theirs = sb3.PPO(
        "MlpPolicy",
        make_vec_env(env, N_ENVS, seed=0, env_kwargs=kwargs),
        seed=0,
        device="cpu",
        **settings,
    )
    plain = {"normalize_observations": False, "normalize_rewards": False, "n_envs": N_ENVS}
    config = make_config(PPO.Config, {**settings, **plain})
    spaces = Spaces(theirs.observation_space, theirs.action_space, N_ENVS)
    ours = PPO(config, spaces, seed=0)
    with torch.no_grad():
        for own, other in pairs(ours, theirs):
            own.copy_(other)
    memory = ours.make_memory()
    callback = Copy(memory)
    theirs._setup_learn(10_000)
    callback.init_callback(theirs)
    for _ in range(5):
        theirs.collect_rollouts(theirs.env, callback, theirs.rollout_buffer, N_STEPS)
        assert memory.terminated.any() == (env == "CartPole-v1")
        assert memory.truncated.any()
        advantages = ours.policy.look_back(memory).advantage.reshape(N_STEPS, N_ENVS)
        np.testing.assert_allclose(advantages, theirs.rollout_buffer.advantages, atol=1e-4)
        # SB3 shall shuffle as ours is going to; its rows are sorted by environment, ours by step.
        generator = torch.Generator()
        generator.set_state(ours.generator.get_state())
        orders = [torch.randperm(N_ENVS * N_STEPS, generator=generator).numpy() for _ in range(4)]
        theirs_order = iter([o % N_ENVS * N_STEPS + o // N_ENVS for o in orders])
        with monkeypatch.context() as patch:
            patch.setattr(np.random, "permutation", lambda n, order=theirs_order: next(order))
            theirs.train()
        ours.update(memory, progress=0.0)
        for own, other in pairs(ours, theirs):
            torch.testing.assert_close(own, other, atol=1e-6, rtol=0)
