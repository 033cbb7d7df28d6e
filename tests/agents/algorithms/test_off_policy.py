"""The common parts of DDPG, TD3 and SAC: learning rates, reward scale and the loss of errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from rltune.agents import Agent
from rltune.agents.algorithms.off_policy import TD_LOSSES
from torch.nn.functional import huber_loss

AGENTS = ["ddpg", "td3", "sac"]
SMALL = {"learning_starts": 20, "batch_size": 16, "net_arch": "8", "buffer_size": 200}


def trained(agent: str, **config: Any) -> Agent:
    made = Agent(agent, "Pendulum-v1", {**SMALL, **config}, total_timesteps=40)
    made.learn(40)
    return made


def flat(agent: Agent, name: str) -> torch.Tensor:
    algorithm: Any = agent.algorithm
    return getattr(algorithm, name).flat.clone()


@pytest.mark.parametrize("agent", AGENTS)
def test_each_network_has_its_own_learning_rate_or_the_shared_one(agent: str) -> None:
    shared = trained(agent, learning_rate=1e-2)
    parts = ["actor", "critic", *(["temperature"] if agent == "sac" else [])]
    named = trained(agent, learning_rate=5.0, **{f"{part}_learning_rate": 1e-2 for part in parts})
    still = trained(
        agent, learning_rate=1e-2, **{f"{part}_learning_rate": "1e-30" for part in parts}
    )
    fresh = Agent(agent, "Pendulum-v1", SMALL, total_timesteps=40)
    for part in parts:
        learner = f"{part}_learner"
        torch.testing.assert_close(flat(named, learner), flat(shared, learner), rtol=0, atol=0)
        torch.testing.assert_close(flat(still, learner), flat(fresh, learner), rtol=0, atol=1e-20)
        assert not torch.equal(flat(shared, learner), flat(fresh, learner))


def test_a_schedule_of_its_own_counts() -> None:
    values = {**SMALL, "learning_rate": "lin_1e-2"}
    ddpg = Agent("ddpg", "Pendulum-v1", values, total_timesteps=40).algorithm
    assert ddpg.learning_rate_at(0.5) == pytest.approx(5e-3)
    assert ddpg.learning_rate_at(0.5, "lin_1e-3") == pytest.approx(5e-4)
    ddpg.learning_rate_factor = 0.5
    assert ddpg.learning_rate_at(0.5) == pytest.approx(2.5e-3)


@pytest.mark.parametrize("agent", AGENTS)
def test_scaled_rewards_are_as_if_the_environment_gave_them(agent: str) -> None:
    algorithms: list[Any] = []
    for scale, in_memory in ((3.0, 1.0), (1.0, 3.0)):
        made = Agent(agent, "Pendulum-v1", {**SMALL, "reward_scale": scale}, total_timesteps=99)
        algorithm, memory = made.algorithm, made.memory
        rng = np.random.default_rng(0)
        no = np.zeros(1, np.bool_)
        for i in range(30):
            algorithm.act(np.zeros((1, 3), np.float32), explore=True)
            memory.add(
                obs=rng.normal(size=(1, 3)), action=rng.uniform(-2, 2, (1, 1)),
                reward=np.array([in_memory * (i % 3)]), terminated=no, truncated=no,
                next_obs=rng.normal(size=(1, 3)), valid=~no,
            )  # fmt: skip
            algorithm.update(memory, 0.0)
        algorithms.append(algorithm)
    scaled, given = (algorithm.critic_learner.flat for algorithm in algorithms)
    torch.testing.assert_close(scaled, given)


def test_hubers_loss_is_the_square_near_0_and_its_tangent_beyond_1() -> None:
    error = torch.tensor([-3.0, -0.5, 0.0, 0.9, 7.0])
    expected = 2 * huber_loss(error, torch.zeros(5), reduction="none")
    torch.testing.assert_close(TD_LOSSES["huber"](error), expected)
    torch.testing.assert_close(TD_LOSSES["squared"](error), error**2)


@pytest.mark.parametrize("agent", AGENTS)
def test_the_loss_of_errors_is_the_one_that_was_chosen(agent: str) -> None:
    # Pendulum's rewards make errors far beyond 1.
    squared, huber = (trained(agent, td_loss=name).algorithm for name in ("squared", "huber"))
    moments = [float(a.critic_learner.square.sum()) for a in (squared, huber)]  # type: ignore[attr-defined]
    assert moments[1] < moments[0] / 2
