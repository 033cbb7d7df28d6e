from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltune.agents import Agent
from rltune.agents.algorithms.a2c import A2C, A2CConfig, Scalars, a2c_loss
from rltune.agents.algorithms.on_policy import Rollout
from rltune.agents.config import make_config
from rltune.agents.spaces import Spaces

RAW = {"normalize_observations": False, "normalize_rewards": False}


def make(action: Any = None, n_envs: int = 2, seed: int = 0, **config: Any) -> A2C:
    space = spaces.Discrete(3) if action is None else action
    observation = spaces.Box(-1, 1, (4,), np.float32)
    values = {"n_steps": 8, "net_arch": [16], **config}
    return A2C(make_config(A2CConfig, values), Spaces(observation, space, n_envs), seed=seed)


def rollout(agent: A2C, rng: np.random.Generator, **fixed: Any) -> Any:
    """Fill a memory with random numbers."""
    memory, n = agent.make_memory(), agent.spaces.n_envs
    obs = rng.normal(size=(n, 4)).astype(np.float32)
    for _ in range(agent.config.n_steps):
        next_obs = rng.normal(size=(n, 4)).astype(np.float32)
        step = {
            "obs": obs,
            "action": agent.act(obs, explore=True),
            "reward": rng.normal(size=n),
            "terminated": rng.random(n) < 0.1,
            "truncated": rng.random(n) < 0.1,
            "next_obs": next_obs,
            "valid": np.ones(n, np.bool_),
        }
        memory.add(**{**step, **fixed})
        obs = next_obs
    return memory


def test_the_loss_is_that_of_the_paper() -> None:
    agent = make()
    generator = torch.Generator().manual_seed(0)
    n = 32
    batch = Rollout(
        obs=torch.randn(n, 4, generator=generator),
        action=torch.randint(3, (n, 1), generator=generator),
        log_prob=torch.full((n,), torch.nan),  # not used: the update's policy is the one that acted
        value=torch.full((n,), torch.nan),
        advantage=torch.randn(n, generator=generator),
        target=torch.randn(n, generator=generator),
    )
    scalars = Scalars(ent_coef=torch.tensor(0.01), vf_coef=torch.tensor(0.25))
    loss, metrics = a2c_loss(agent.nets, batch, scalars)

    total = torch.zeros(())
    for i in range(n):  # row by row, as the paper says it
        logits, value = agent.nets(batch.obs[i : i + 1])
        one = torch.distributions.Categorical(logits=logits)
        gain = one.log_prob(batch.action[i]).squeeze() * batch.advantage[i]
        error = batch.target[i] - value.squeeze()
        total = total - gain + 0.25 * error**2 - 0.01 * one.entropy().squeeze()
    torch.testing.assert_close(loss, total / n)
    parameters = list(agent.nets.parameters())
    ours = torch.autograd.grad(loss, parameters)
    theirs = torch.autograd.grad(total / n, parameters)
    for one_gradient, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one_gradient, other, atol=1e-6, rtol=1e-4)
    assert not any(value.requires_grad for value in metrics.values())


def test_the_targets_are_n_step_returns() -> None:
    agent, rng = make(gamma=0.9, n_steps=5), np.random.default_rng(0)
    never = np.zeros(2, np.bool_)
    memory = rollout(agent, rng, terminated=never, truncated=never)
    batch = agent.policy.look_back(memory)
    with torch.no_grad():
        final = agent.nets(torch.from_numpy(np.stack(memory.final_obs)))[1].numpy()
    expected = np.empty((5, 2))
    for t in range(4, -1, -1):
        final = expected[t] = memory.reward[t] + 0.9 * final
    np.testing.assert_allclose(batch.target.reshape(5, 2), expected, atol=1e-5)


@pytest.mark.parametrize("normalise", [False, True])
def test_advantages_are_normalised_on_demand(normalise: bool) -> None:
    agent = make(normalize_advantage=normalise)
    memory = rollout(agent, np.random.default_rng(0))
    batch = agent.policy.look_back(memory)
    advantage = batch.advantage
    if normalise:
        advantage = (advantage - advantage.mean()) / advantage.std()
    expected = -float((advantage * batch.log_prob).mean())
    metrics = agent.update(memory, 0.0)
    assert metrics["policy_loss"] == pytest.approx(expected, abs=1e-5)


def test_a_rollout_without_a_valid_row_teaches_nothing() -> None:
    agent = make(n_envs=1, n_steps=1)
    before = agent.learner.flat.clone()
    memory = rollout(agent, np.random.default_rng(0), valid=np.zeros(1, np.bool_))
    assert agent.update(memory, 0.0) == {}
    assert torch.equal(agent.learner.flat, before)
    metrics = agent.update(rollout(agent, np.random.default_rng(0)), 0.0)  # one row
    assert all(np.isfinite(list(metrics.values())))
    assert not torch.equal(agent.learner.flat, before)


def test_schedules_and_the_plateau_factor_reach_the_update() -> None:
    agent = make(learning_rate="lin_1e-2")
    agent.learning_rate_factor = 0.5
    metrics = agent.update(rollout(agent, np.random.default_rng(0)), 0.75)
    assert metrics["learning_rate"] == pytest.approx(0.5 * 0.25e-2)


ACTIONS = {
    "discrete": spaces.Discrete(3),
    "multi": spaces.MultiDiscrete([2, 3]),
    "bits": spaces.MultiBinary(3),
    "box": spaces.Box(-1, 1, (2, 2), np.float32),
}


@pytest.mark.parametrize("kind", ACTIONS)
def test_actions_fit_their_space(kind: str) -> None:
    space = ACTIONS[kind]
    agent = make(space)
    obs = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    before = agent.generator.get_state()
    greedy = agent.act(obs, explore=False)
    assert np.array_equal(greedy, agent.act(obs, explore=False))
    assert torch.equal(agent.generator.get_state(), before)
    assert greedy.shape == (5, *space.shape)
    if kind != "box":  # its actions are clipped by the environments
        assert all(space.contains(action) for action in agent.act(obs, explore=True))
    metrics = agent.update(rollout(agent, np.random.default_rng(0)), 0.0)
    assert all(np.isfinite(list(metrics.values())))


RESUMED = {
    "cartpole": ("CartPole-v1", {}),
    "raw": ("CartPole-v1", {**RAW, "normalize_advantage": True, "n_envs": 1}),
    "adam": ("CartPole-v1", {"optimizer": "adam", "learning_rate": "lin_1e-2"}),
    "sde": ("Pendulum-v1", {"use_sde": True, "sde_sample_freq": 3}),
    "images": ("toy_envs:Picture", RAW),
}


@pytest.mark.parametrize("kind", RESUMED)
@pytest.mark.parametrize("stop", [100, 132])  # between two rollouts, and amid one
def test_a_resumed_run_is_bit_equal(kind: str, stop: int, tmp_path: Path) -> None:
    env, config = RESUMED[kind]
    values = {"n_envs": 2, "net_arch": [8], **config}
    whole = Agent(A2C, env, values, total_timesteps=200, device="cpu")
    whole.learn(200)
    first = Agent(A2C, env, values, total_timesteps=200, device="cpu")
    first.learn(stop)
    first.save(tmp_path / "a.pt")
    second = Agent.load(tmp_path / "a.pt", device="cpu")
    second.learn(200)
    ends = [agent.algorithm.learner.flat for agent in (whole, first, second)]  # type: ignore[attr-defined]
    assert not torch.equal(ends[1], ends[2])
    assert torch.equal(ends[0], ends[2])


LEARNED = {
    "Aim gsde": (0.85, {"use_sde": True, "log_std_init": -2.0, "gamma": 0.0}),
    "Picture": (1.0, {"learning_rate": 7e-4}),
}


@pytest.mark.parametrize("kind", LEARNED)
def test_small_tasks_are_learned(kind: str) -> None:
    goal, config = LEARNED[kind]
    values = {"n_envs": 8, "n_steps": 8, "gamma": 0.5, "learning_rate": 3e-3, **RAW, **config}
    env = f"toy_envs:{kind.split()[0]}"
    agent = Agent(A2C, env, values, total_timesteps=20_000, device="cpu")
    reached = 0.0
    for until in range(2048, 20_480, 2048):
        agent.learn(until)
        reached = agent.evaluate(10).mean / 8
        if reached >= goal:
            return
    pytest.fail(f"reached {reached:.2f} of {goal}")


@pytest.mark.slow
def test_cartpole_is_learned() -> None:
    agent = Agent(A2C, "CartPole-v1", {"n_envs": 8, **RAW}, total_timesteps=200_000)
    assert (agent.learn(20_000).mean_reward or 0.0) > 45  # 22 at random


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_cartpole_is_solved() -> None:
    scores = []
    for seed in range(5):
        agent = Agent(A2C, "CartPole-v1", {**RAW}, total_timesteps=300_000, seed=seed)
        agent.learn(300_000)
        scores.append(agent.evaluate(20).mean)
    assert np.median(scores) >= 475
