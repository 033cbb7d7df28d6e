from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltune.agents import Agent
from rltune.agents.algorithms.trpo import TRPO, TRPOConfig
from rltune.agents.config import make_config
from rltune.agents.spaces import Spaces

from tests.parameters import quick

RAW = {"normalize_observations": False, "normalize_rewards": False}
ACTIONS = {
    "discrete": spaces.Discrete(3),
    "multi": spaces.MultiDiscrete([2, 3]),
    "bits": spaces.MultiBinary(3),
    "box": spaces.Box(-1, 1, (2, 2), np.float32),
}


def make(action: Any = None, n_envs: int = 2, seed: int = 0, **config: Any) -> TRPO:
    space = spaces.Discrete(3) if action is None else action
    observation = spaces.Box(-1, 1, (4,), np.float32)
    values = {"n_steps": 32, "batch_size": 16, "net_arch": [8], **config}
    return TRPO(make_config(TRPOConfig, values), Spaces(observation, space, n_envs), seed=seed)


def rollout(agent: TRPO, rng: np.random.Generator, **fixed: Any) -> Any:
    """Fill a memory with random numbers."""
    memory, n = agent.make_memory(), agent.spaces.n_envs
    shape = agent.spaces.observation.shape
    assert shape is not None
    obs = rng.normal(size=(n, *shape)).astype(np.float32)
    for _ in range(agent.config.n_steps):
        next_obs = rng.normal(size=(n, *shape)).astype(np.float32)
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


def params(agent: TRPO, obs: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        output: torch.Tensor = agent.nets(obs)[0]
    return output


def test_the_step_is_the_natural_gradient() -> None:
    agent = make(net_arch=[4], cg_max_steps=100, cg_damping=0.1, normalize_advantage=False)
    memory = rollout(agent, np.random.default_rng(0))
    batch = agent.policy.look_back(memory)
    n, size = len(batch.obs), len(agent.flat)

    def score(log_prob: torch.Tensor) -> torch.Tensor:
        parts = torch.autograd.grad(log_prob, agent.parameters, retain_graph=True)
        return torch.cat([part.reshape(-1) for part in parts])

    # The Fisher matrix and the policy gradient, row by row and without a divergence.
    fisher, gradient = torch.zeros(size, size), torch.zeros(size)
    for i in range(n):
        log_probs = torch.log_softmax(agent.nets(batch.obs[i : i + 1])[0][0], -1)
        scores = [score(log_prob) for log_prob in log_probs]
        for own, log_prob in zip(scores, log_probs.tolist(), strict=True):
            fisher += np.exp(log_prob) * torch.outer(own, own) / n
        gradient += batch.advantage[i] * scores[int(batch.action[i])] / n
    damped = fisher + 0.1 * torch.eye(size)
    direction = torch.linalg.solve(damped, gradient)
    longest = (2 * agent.config.target_kl / (direction @ damped @ direction)).sqrt() * direction

    before = agent.flat.clone()
    metrics = agent.update(memory, 0.0)
    assert metrics["step_fraction"] > 0
    step = agent.flat - before
    torch.testing.assert_close(step, metrics["step_fraction"] * longest, atol=2e-5, rtol=2e-3)


@pytest.mark.parametrize("kind", [*ACTIONS, "gsde", "std"])
def test_no_update_leaves_the_trust_region(kind: str) -> None:
    config = {"use_sde": kind == "gsde", "state_dependent_std": kind == "std"}
    agent = make(ACTIONS.get(kind, ACTIONS["box"]), target_kl=0.05, cg_damping=1e-3, **config)
    rng = np.random.default_rng(0)
    dimensions = {"bits": 3, "box": 4, "gsde": 4, "std": 4}.get(kind, 1)
    fractions = set()
    for _ in range(12):
        memory = rollout(agent, rng)
        batch = agent.policy.look_back(memory)
        before, old = agent.flat.clone(), params(agent, batch.obs)
        metrics = agent.update(memory, 0.0)
        fractions.add(metrics["step_fraction"])
        new = params(agent, batch.obs)
        kl = float(agent.policy.distribution.kl(new, old).mean()) / dimensions
        assert kl < 0.05
        assert kl == pytest.approx(metrics["kl"], abs=1e-5)
        assert torch.equal(agent.flat, before) == (metrics["step_fraction"] == 0)
        if metrics["step_fraction"] > 0:
            advantage = batch.normalised().advantage
            ratio = (
                agent.policy.distribution.evaluate(new, batch.action)[0] - batch.log_prob
            ).exp()
            assert float((advantage * ratio).mean()) > float(advantage.mean())
            assert kl > 0.005  # it makes use of the region
    assert max(fractions) > 0
    assert len(fractions) > 1  # the search had work to do


def test_nothing_to_learn_changes_no_policy() -> None:
    agent = make()
    with torch.no_grad():
        agent.learner.flat.zero_()  # all values are 0, and so are all advantages
    before = agent.flat.clone()
    metrics = agent.update(rollout(agent, np.random.default_rng(0), reward=np.zeros(2)), 0.0)
    assert torch.equal(agent.flat, before)
    assert all(np.isfinite(list(metrics.values())))
    assert metrics["step_fraction"] == 0


def test_the_entropy_bonus_is_part_of_what_is_climbed() -> None:
    entropies = []
    for ent_coef in (0.0, 1.0):
        agent, rng = make(ent_coef=ent_coef, weight_init="torch"), np.random.default_rng(0)
        memories = [rollout(agent, rng) for _ in range(5)]
        entropies.append([agent.update(memory, 0.0)["entropy"] for memory in memories][-1])
    assert entropies[1] > entropies[0] + 0.01


def test_the_actor_learns_from_one_row_in_so_many() -> None:
    agent = make(sub_sampling_factor=3)
    whole = agent.policy.look_back(rollout(agent, np.random.default_rng(0)))
    part = agent._behaviour(agent._actors_part(whole))
    assert len(whole.obs) == 64
    assert len(part.obs) == len(part.params) == 22
    rows = [int((whole.obs == row).all(-1).nonzero()) for row in part.obs]
    assert len(set(rows)) == 22
    assert torch.equal(part.log_prob, whole.log_prob[rows])
    assert float(part.advantage.mean()) == pytest.approx(0, abs=1e-6)


def test_the_critic_leaves_the_actors_encoder_alone() -> None:
    observation = spaces.Box(0, 1, (1, 36, 36), np.float32)
    config = make_config(TRPOConfig, {"n_steps": 8, "batch_size": 8, "n_critic_updates": 2})
    agent = TRPO(config, Spaces(observation, spaces.Discrete(2), 2), seed=0)
    assert agent.flat.numel() > 100 * agent.learner.flat.numel()
    memory = rollout(agent, np.random.default_rng(0))
    batch = agent.policy.look_back(memory)
    actor, critic = agent.flat.clone(), agent.learner.flat.clone()
    agent._update_critic(batch, 1e-3)
    assert torch.equal(agent.flat, actor)
    assert not torch.equal(agent.learner.flat, critic)
    assert agent.update(memory, 0.0)["step_fraction"] > 0
    changed = [
        not torch.equal(p, q) for p, q in zip(agent.parameters, old(agent, actor), strict=True)
    ]
    assert all(changed)  # the policy's step moves the encoder too


def old(agent: TRPO, flat: torch.Tensor) -> list[torch.Tensor]:
    sizes = [p.numel() for p in agent.parameters]
    parts = zip(flat.split(sizes), agent.parameters, strict=True)
    return [part.view_as(parameter) for part, parameter in parts]


def test_schedules_and_the_plateau_factor_reach_the_critic() -> None:
    agent = make(learning_rate="lin_1e-2")
    agent.learning_rate_factor = 0.5
    metrics = agent.update(rollout(agent, np.random.default_rng(0)), 0.75)
    assert metrics["learning_rate"] == pytest.approx(0.5 * 0.25e-2)
    critic = agent.learner.flat.clone()
    agent.update(rollout(agent, np.random.default_rng(0)), 1.0)
    assert torch.equal(agent.learner.flat, critic)


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


RESUMED = {
    "cartpole": ("CartPole-v1", {}),
    "sub-sampled": ("CartPole-v1", {**RAW, "sub_sampling_factor": 2, "learning_rate": "lin_1e-2"}),
    "sde": ("Pendulum-v1", {"use_sde": True, "sde_sample_freq": 3}),
    "images": ("toy_envs:Picture", {**RAW, "n_steps": 16}),
}


@pytest.mark.parametrize("kind", quick(RESUMED.keys() - {"images"}, RESUMED))
@pytest.mark.parametrize("stop", [128, 150])  # between two rollouts, and amid one
def test_a_resumed_run_is_bit_equal(kind: str, stop: int, tmp_path: Path) -> None:
    env, config = RESUMED[kind]
    values = {"n_envs": 2, "n_steps": 32, "batch_size": 16, "net_arch": [8], **config}
    whole = Agent(TRPO, env, values, total_timesteps=320, device="cpu")
    whole.learn(320)
    first = Agent(TRPO, env, values, total_timesteps=320, device="cpu")
    first.learn(stop)
    first.save(tmp_path / "a.pt")
    second = Agent.load(tmp_path / "a.pt", device="cpu")
    second.learn(320)
    for part in (lambda a: a.algorithm.flat, lambda a: a.algorithm.learner.flat):
        assert not torch.equal(part(first), part(second))
        assert torch.equal(part(whole), part(second))


LEARNED = {
    "Aim gsde": (0.8, {"use_sde": True, "log_std_init": -2.0, "gamma": 0.0, "target_kl": 0.05}),
    "Picture": (1.0, {"n_steps": 16}),
}


@pytest.mark.parametrize("kind", quick(["Picture"], LEARNED))
def test_small_tasks_are_learned(kind: str) -> None:
    goal, config = LEARNED[kind]
    values = {"n_envs": 8, "n_steps": 64, "gamma": 0.5, **RAW, **config}
    env = f"toy_envs:{kind.split()[0]}"
    agent = Agent(TRPO, env, values, total_timesteps=20_000, device="cpu")
    reached = 0.0
    for until in range(1024, 20_480, 1024):
        agent.learn(until)
        reached = agent.evaluate(10).mean / 8
        if reached >= goal:
            return
    pytest.fail(f"reached {reached:.2f} of {goal}")


def test_cartpole_is_learned() -> None:
    agent = Agent(TRPO, "CartPole-v1", RAW, total_timesteps=100_000)
    assert (agent.learn(16_000).mean_reward or 0.0) > 50  # 22 at random


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_cartpole_is_solved() -> None:
    scores = []
    for seed in range(5):
        agent = Agent(TRPO, "CartPole-v1", RAW, total_timesteps=100_000, seed=seed)
        agent.learn(100_000)
        scores.append(agent.evaluate(20).mean)
    assert np.median(scores) >= 475
