"""Actors on Ray: real processes, some of which are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import psutil
import pytest
from rltune.actors import Agent
from rltune.agents.errors import UserError

from tests.agents.small_agents import AGENTS
from tests.parameters import quick

BEHIND = ("a2c", "ppo", "dqn", "sac", "td3", "ddpg")  # those that learn behind their actors


@pytest.fixture(scope="module", autouse=True)
def one_ray() -> Iterator[None]:
    from rltune.cluster.session import ray_session

    with ray_session():
        yield


def make(agent: str, lag: int, n_actors: int = 2, **more: Any) -> Agent:
    env, config = AGENTS[agent]
    actors = {"n_envs": n_actors, "num_actors": n_actors, "max_policy_lag": lag}
    return Agent(agent, env, {**config, **actors, **more}, total_timesteps=60_000, seed=1)


# Starting processes takes seconds, and tests/agents/distributed has every agent without them.
OFTEN = ("ppo",)


@pytest.mark.parametrize("agent", quick(OFTEN, AGENTS))
def test_every_agent_learns_from_actors_in_lock_step(agent: str) -> None:
    trained = make(agent, lag=0)
    chunk = trained.learn(64)
    assert chunk.env_steps == 64
    assert chunk.updates > 0
    assert trained.evaluate(1).lengths
    trained.close()


@pytest.mark.parametrize("agent", quick(OFTEN, BEHIND))
def test_actors_run_ahead_of_agents_that_learn_behind_them(agent: str, tmp_path: Path) -> None:
    trained = make(agent, lag=4)
    chunk = trained.learn(200)
    assert chunk.env_steps >= 200
    assert chunk.updates == chunk.env_steps // trained.algorithm.update_every
    assert len(chunk.episodes) > 0 or agent not in ("a2c", "ppo", "dqn")
    trained.save(tmp_path / "a.pt")
    trained.close()
    resumed = Agent.load(tmp_path / "a.pt")
    assert resumed.learn(300).env_steps >= 300
    resumed.close()


@pytest.mark.slow
def test_a_killed_actor_is_replaced_in_lock_step() -> None:
    trained = make("sac", lag=0)
    trained.learn(100)
    fleet: Any = trained._fleet
    os.kill(fleet.pids[1], signal.SIGKILL)
    chunk = trained.learn(140)
    assert chunk.env_steps == 140
    assert chunk.notes == ["actor 1 died; another one begins new episodes"]
    trained.close()


@pytest.mark.slow
def test_killed_actors_and_a_killed_server_are_replaced_beside_learning(tmp_path: Path) -> None:
    trained = make("dqn", lag=50, learning_starts=50)
    trained.learn(400)
    trained.save(tmp_path / "a.pt")
    fleet: Any = trained._fleet
    held = len_of(fleet)
    os.kill(fleet.pids[0], signal.SIGKILL)
    said = "actor 0 died; another one begins new episodes"
    assert said in notes_of(trained)
    os.kill(server_pid(fleet), signal.SIGKILL)
    said = "the replay server died; another one has the memory of the last checkpoint"
    assert any(note.startswith(said) for note in notes_of(trained))
    assert len_of(fleet) >= held
    trained.close()


def notes_of(trained: Agent) -> list[str]:
    """Train until something has happened; the other actor alone is fast enough to go on."""
    notes: list[str] = []
    while not notes and trained.env_steps < 50_000:
        notes = trained.learn(trained.env_steps + 400).notes
    return notes


def len_of(fleet: Any) -> int:
    """Return the transitions in the server's memory."""
    return sum(shard["steps"] for shard in fleet.ask("state_dict")["shards"].values())


def server_pid(fleet: Any) -> int:
    import ray

    return int(ray.get(fleet._server.pid.remote()))


@pytest.mark.slow
def test_a_queue_of_rollouts_that_died_is_replaced() -> None:
    trained = make("ppo", lag=1)
    trained.learn(200)
    os.kill(server_pid(trained._fleet), signal.SIGKILL)
    chunk = trained.learn(400)
    assert chunk.env_steps >= 400
    assert chunk.notes == ["the queue of rollouts died; another one is empty"]
    trained.close()


def test_what_an_environment_raises_is_raised_by_the_learner() -> None:
    for lag in (0, 4):
        with pytest.raises(ValueError, match="the simulator is gone"):  # noqa: PT012
            agent = Agent(
                "dqn",
                f"{__name__}:failing",
                {"num_actors": 1, "max_policy_lag": lag, "learning_starts": 1_000},
                total_timesteps=1_000,
            )
            try:
                agent.learn(500)
            finally:
                agent.close()


def test_an_unknown_environment_is_one_sentence() -> None:
    with pytest.raises(UserError, match="CartPool"):
        Agent("dqn", "CartPool-v1", {"num_actors": 1}, total_timesteps=10)


class Failing(gymnasium.Wrapper):  # type: ignore[misc, type-arg]
    """CartPole that raises after a while."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self.steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 50:
            raise ValueError("the simulator is gone")
        return super().step(action)


def failing() -> Failing:
    return Failing()


@pytest.mark.slow
def test_the_processes_of_a_killed_learner_end() -> None:
    code = (
        "import time, ray\n"
        "from rltune.actors import Agent\n"
        "config = {'num_actors': 1, 'max_policy_lag': 10}\n"
        "agent = Agent('dqn', 'CartPole-v1', config, total_timesteps=10_000)\n"
        "agent.learn(100)\n"
        "fleet = agent._fleet\n"
        "print(*fleet.pids, ray.get(fleet._server.pid.remote()), flush=True)\n"
        "time.sleep(100)\n"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    learner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True, env=environment)  # fmt: skip
    assert learner.stdout is not None
    pids = [int(pid) for pid in learner.stdout.readline().split()]
    assert len(pids) == 2
    learner.kill()
    deadline = time.monotonic() + 60
    while any(psutil.pid_exists(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert not any(psutil.pid_exists(pid) for pid in pids)
