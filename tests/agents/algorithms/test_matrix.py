"""The matrix of ML-Agents' tests: every kind of action, observation and network, with PPO and SAC.

Each cell learns to answer two signs. With an LSTM they are shown in an episode's first step alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from rltune.agents import Agent
from rltune.agents.memory.frames import AugmentedRows

from tests.parameters import quick

COMMON: dict[str, Any] = {"n_envs": 8, "net_arch": (32,), "gamma": 0.3}
RECURRENT: dict[str, Any] = {"lstm_size": 16, "sequence_length": 4}
SETTINGS: dict[str, dict[str, Any]] = {
    "ppo": {
        **COMMON,
        "normalize_observations": False,
        "normalize_rewards": False,
        "n_steps": 16,
        "batch_size": 64,
        "n_epochs": 8,
        "learning_rate": 5e-3,
    },
    "sac": {
        **COMMON,
        "learning_starts": 200,
        "train_freq": 16,
        "gradient_steps": 2,
        "batch_size": 64,
        "buffer_size": 4000,
        "tau": 0.05,
        "ent_coef": "auto_0.05",
        "learning_rate": 5e-3,
        "burn_in": 1,
    },
}
BUDGET = {"ppo": 16_000, "sac": 8000}
# The best return is 1, and guessing is worth half of it.
GOALS = {"box": 0.85, "choices": 0.95, "masked": 0.95}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # small images: threads cost more than they bring
    yield
    torch.set_num_threads(before)


def make(name: str, actions: str, picture: bool, recall: bool, **changes: Any) -> Agent:
    """Return an agent on a cell's task, with an LSTM where signs have to be remembered."""
    config = {**SETTINGS[name], **(RECURRENT if recall else {})}
    if picture:
        config |= {"encoder": "small_cnn", "learning_rate": 2e-3}
    kwargs = {"actions": actions, "picture": picture, "recall": recall}
    return Agent(
        name,
        "toy_envs:Signs",
        {**config, **changes},
        total_timesteps=BUDGET[name],
        env_kwargs=kwargs,
        device="cpu",
    )


def reached(agent: Agent, goal: float, budget: int) -> float:
    """Return what 20 greedy episodes are worth once they reach a goal, at the latest at the end."""
    mean = 0.0
    for until in range(budget // 20, budget + 1, budget // 20):
        agent.learn(until)
        mean = agent.evaluate(20).mean
        if mean >= goal:
            break
    return mean


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize(
    ("picture", "recall"),
    [
        (False, False),
        (False, True),
        pytest.param(True, False, marks=pytest.mark.slow),
        pytest.param(True, True, marks=pytest.mark.slow),
    ],
    ids=["vector-feed-forward", "vector-recurrent", "visual-feed-forward", "visual-recurrent"],
)
@pytest.mark.parametrize("actions", quick(("box", "masked"), GOALS))
def test_a_cell_is_learned(name: str, actions: str, picture: bool, recall: bool) -> None:
    agent = make(name, actions, picture, recall)
    mean = reached(agent, GOALS[actions], BUDGET[name])
    assert mean >= GOALS[actions]
    if name == "sac" and picture and recall:
        assert isinstance(agent.memory.observations, AugmentedRows)


def test_dqn_remembers_a_picture_too() -> None:
    sac = SETTINGS["sac"]
    config = {name: sac[name] for name in sac if name != "ent_coef"}
    kwargs = {"actions": "masked", "picture": True, "recall": True}
    config |= {**RECURRENT, "encoder": "small_cnn", "target_update_interval": 1}
    config |= {"learning_rate": 2e-3, "exploration_fraction": 0.2}
    agent = Agent(
        "dqn", "toy_envs:Signs", config, total_timesteps=8000, env_kwargs=kwargs, device="cpu"
    )
    assert reached(agent, 0.95, 8000) >= 0.95


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("picture", quick([False], [False, True]), ids=["vector", "visual"])
def test_without_memory_a_recurrent_cell_is_a_guess(name: str, picture: bool) -> None:
    agent = make(name, "choices", picture, True, lstm_size=0)
    agent.learn(1600)
    assert 0.3 < agent.evaluate(100).mean < 0.7
