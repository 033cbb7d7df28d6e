"""Results of a training: rows of the history and of the episodes."""

from __future__ import annotations

import platform

from rltune.agents.loop.agent import Agent
from rltune.agents.loop.results import Chunk, Episode


def test_a_chunk_is_a_row_of_the_history() -> None:
    episodes = [Episode(120, 3.0, 20, 5.0), Episode(150, 7.0, 30, 6.0)]
    chunk = Chunk(150, 0.5, {"policy_loss": [0.25]}, episodes, 4.0, 5.0, None, None)
    row = chunk.row(3, 100, time=9.0, cpu_time=8.0)
    assert row.pop("timestamp") > 1e9
    assert row == {
        "iteration": 3,
        "env_steps": 150,
        "step": 150,
        "mean_reward": 4.0,
        "best_reward": 5.0,
        "episode_reward": 7.0,
        "time": 9.0,
        "cpu_time": 8.0,
        "env_steps_per_second": 100.0,
        "node": platform.node(),
        "engine": "torch",
        "policy_loss": 0.25,
    }


def test_a_chunk_without_an_episode_has_no_return() -> None:
    row = Chunk(0, 0.0, {}, [], None, None, None, None).row(0, 0)
    assert row["episode_reward"] is None
    assert row["env_steps_per_second"] == 0


def test_an_episode_is_a_row_too() -> None:
    row = Episode(120, 3.0, 20, 5.0).row()
    assert row == {"env_steps": 120, "episode_return": 3.0, "length": 20, "timestamp": 5.0}


def test_metrics_are_the_same_in_one_call_and_in_several() -> None:
    def agent() -> Agent:
        config = {"learning_starts": 60, "net_arch": [4], "policy_delay": 3}
        return Agent("td3", "Pendulum-v1", config, total_timesteps=200)

    whole, sliced = agent(), agent()
    expected = whole.learn(150)
    merged = Chunk.merged([sliced.learn(until) for until in (10, 50, 70, 71, 120, 150)])
    assert "actor_loss" in expected.metrics
    assert merged.metrics == expected.metrics
    assert merged.updates == expected.updates
    whole.close()
    sliced.close()
