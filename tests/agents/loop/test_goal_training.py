"""Replay agents that learn from goals chosen in hindsight."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from rltune.agents import Agent, UserError
from rltune.agents.config import make_config
from rltune.agents.loop.compatibility import check_fit
from rltune.agents.memory.hindsight import HindsightMemory
from rltune.agents.memory.prioritised import PrioritisedMemory
from rltune.agents.memory.replay import ReplayMemory
from rltune.agents.registry import agent_class

from tests.parameters import quick

BIT_FLIP, REACH = "goal_envs:BitFlip", "goal_envs:Reach"
DQN = {
    **{"gamma": 0.95, "net_arch": [128], "batch_size": 64, "learning_starts": 200},
    **{"exploration_fraction": 0.5, "target_update_interval": 250},
}
BOX = {
    **{"gamma": 0.9, "net_arch": [64, 64], "batch_size": 128, "learning_starts": 200},
    **{"learning_rate": 2e-3, "train_freq": 2, "tau": 0.02, "n_sampled_goal": 4},
}
TINY = {"net_arch": [8], "batch_size": 16, "learning_starts": 30, "n_sampled_goal": 4}


def agent(name: str, env: str, config: dict[str, Any], steps: int, **others: Any) -> Agent:
    return Agent(name, env, config, total_timesteps=steps, device="cpu", **others)


def success(trained: Agent) -> float:
    rate = trained.evaluate(50).success_rate
    trained.close()
    assert rate is not None
    return rate


@pytest.mark.parametrize("more", quick([{}], [{}, {"prioritised": True}]))
def test_bits_are_flipped_as_wished(more: dict[str, Any]) -> None:
    trained = agent(
        "dqn", BIT_FLIP, {**DQN, **more, "n_sampled_goal": 4}, 3000, env_kwargs={"n": 10}
    )
    trained.learn(3000)
    assert success(trained) > 0.9


@pytest.mark.slow
def test_without_hindsight_bits_are_not_flipped() -> None:
    """The wish is met by chance in one of 4096 bit strings: the agent hardly ever sees it."""
    trained = agent("dqn", BIT_FLIP, DQN, 3000, env_kwargs={"n": 12})
    trained.learn(3000)
    assert success(trained) < 0.1


@pytest.mark.parametrize("name", quick(["td3"], ["ddpg", "sac", "td3"]))
def test_a_place_is_reached(name: str) -> None:
    kwargs = {"near": 0.1, "stride": 0.3, "length": 15}
    trained = agent(name, REACH, BOX, 2000, env_kwargs=kwargs)
    trained.learn(2000)
    assert success(trained) > 0.9


def test_a_place_is_reached_by_camera() -> None:
    """The picture says nothing, but the goals stand before its pixels."""
    kwargs = {"near": 0.2, "stride": 0.4, "length": 8, "camera": True}
    config = {**BOX, "batch_size": 32, "learning_starts": 100, "train_freq": 4, "buffer_size": 1000}
    trained = agent("sac", REACH, config, 200, env_kwargs=kwargs)
    trained.learn(200)
    batch = trained.memory.sample(100, torch.Generator().manual_seed(0))
    assert {0.0, -1.0} == set(batch.reward.tolist())
    pixels = batch.obs[:, 6:]
    assert pixels.shape[1] == 36 * 36
    assert pixels.max() <= 8
    trained.close()


@pytest.mark.parametrize(
    ("name", "env", "config"),
    [
        ("dqn", BIT_FLIP, {"n_envs": 3}),
        ("dqn", BIT_FLIP, {"prioritised": True, "goal_selection_strategy": "episode"}),
        ("sac", REACH, {"goal_selection_strategy": "final", "n_step": 3}),
        ("td3", REACH, {"vectorization": "async", "n_envs": 2}),
    ],
)
def test_it_goes_on_bit_by_bit(name: str, env: str, config: dict[str, Any], tmp_path: Path) -> None:
    config = {**TINY, **config, "buffer_size": 60}
    whole, first = (agent(name, env, config, 200) for _ in range(2))
    whole.learn(200)
    first.learn(101)
    first.save(tmp_path / "agent.pt")
    first.close()
    second = Agent.load(tmp_path / "agent.pt", device="cpu")
    second.learn(200)
    states = [each.algorithm.state_dict()["nets"] for each in (whole, second)]
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    memories = [
        each.memory.sample(50, torch.Generator().manual_seed(0)) for each in (whole, second)
    ]
    for ours, theirs in zip(*memories, strict=True):
        assert ours is theirs is None or torch.equal(ours, theirs)
    whole.close()
    second.close()


def test_a_training_keeps_its_memory_and_may_change_the_strategy() -> None:
    begun = agent("dqn", BIT_FLIP, TINY, 300)
    begun.learn(100)
    changed = begun.with_config({**TINY, "goal_selection_strategy": "final"})
    assert changed.memory.strategy == "final"
    changed.learn(200)
    with pytest.raises(UserError, match="n_sampled_goal is 4, and a training that has begun"):
        changed.with_config({**TINY, "n_sampled_goal": 2})
    changed.close()


def test_without_hindsight_memories_are_what_they_were() -> None:
    for more, kind in (({}, ReplayMemory), ({"prioritised": True}, PrioritisedMemory)):
        plain = agent("dqn", "CartPole-v1", more, 100)
        assert type(plain.memory) is kind
        on = agent("dqn", BIT_FLIP, {**more, "n_sampled_goal": 1}, 100)
        assert isinstance(on.memory, HindsightMemory)
        assert isinstance(on.memory, kind)
        on.close()


def test_an_agent_that_acts_only_needs_no_goals(tmp_path: Path) -> None:
    trained = agent("sac", REACH, TINY, 100)
    trained.learn(50)
    trained.save(tmp_path / "agent.pt", memory=False)
    trained.close()
    acting = Agent.load(tmp_path / "agent.pt", acts_only=True)
    assert acting._spaces.goals is None
    assert acting.evaluate(2).success_rate is not None


@pytest.mark.parametrize(
    ("name", "config", "said"),
    [
        ("sac", {"normalize_observations": True}, "normalize_observations gives them others"),
        ("sac", {"normalize_rewards": True}, "normalize_rewards gives them others"),
        ("sac", {"lstm_size": 8}, "an LSTM learns from sequences; leave one out"),
        ("dqn", {"vectorization": "native"}, "use vectorization sync or async"),
        ("td3", {"vectorization": "envpool"}, "stepped by envpool"),
        ("ddpg", {"goal_selection_strategy": "random"}, "unknown goal_selection_strategy 'random'"),
    ],
)
def test_what_does_not_go_together_is_said(name: str, config: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        make_config(agent_class(name).Config, {"n_sampled_goal": 4, **config})


def test_a_search_is_told_before_it_starts() -> None:
    check_fit("dqn", BIT_FLIP, [{"n_sampled_goal": 4}, {}])
    with pytest.raises(UserError, match="'CartPole-v1' is no goal environment"):
        check_fit("dqn", "CartPole-v1", [{}, {"n_sampled_goal": 4}])
    with pytest.raises(UserError, match="'CartPole-v1' is no goal environment"):
        agent("dqn", "CartPole-v1", {"n_sampled_goal": 4}, 100)
