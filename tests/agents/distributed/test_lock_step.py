"""Lock-step collection: with one actor, everything is as without actors, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rltune.agents.config import make_config
from rltune.agents.distributed.actor import Actor
from rltune.agents.distributed.agent import DistributedAgent
from rltune.agents.errors import UserError
from rltune.agents.loop.agent import Agent
from rltune.agents.registry import agent_class

from tests.agents.small_agents import AGENTS
from tests.parameters import quick

CASES = {
    **AGENTS,
    "ppo with an LSTM": ("CartPole-v1", {**AGENTS["ppo"][1], "lstm_size": 8}),
    "ppo with curiosity": ("CartPole-v1", {**AGENTS["ppo"][1], "curiosity_strength": 0.1}),
    "a2c with gSDE": ("Pendulum-v1", {**AGENTS["a2c"][1], "use_sde": True}),
    "dqn with priorities": (
        "CartPole-v1",
        {**AGENTS["dqn"][1], "prioritised": True, "noisy": True, "n_envs": 2, "train_freq": 3},
    ),
    "ddpg with a random walk": (
        "Pendulum-v1",
        {**AGENTS["ddpg"][1], "noise_type": "ornstein-uhlenbeck"},
    ),
    "sac that normalises": ("Pendulum-v1", {**AGENTS["sac"][1], "normalize_observations": True}),
}


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[name], b[name]) for name in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)


def learned(agent: Agent) -> list[Any]:
    """What a training has changed, but for where the environments stand."""
    state = agent._state()
    return [state[n] for n in ("algorithm", "memory", "observations", "rewards", "progress")]


def agents(case: str, n_actors: int, **more: Any) -> tuple[Agent, DistributedAgent]:
    env, config = CASES[case]
    made = []
    for kind, actors in ((Agent, {}), (DistributedAgent, {"num_actors": n_actors})):
        lag = {"max_policy_lag": 0} if actors else {}
        made.append(
            kind(case.split()[0], env, {**config, **more, **actors, **lag},
                 total_timesteps=200, seed=3)
        )  # fmt: skip
    return made[0], made[1]  # type: ignore[return-value]


LONGER = {"ddpg", "td3", "sac that normalises", "ddpg with a random walk"}


@pytest.mark.parametrize("case", quick(CASES.keys() - LONGER, CASES))
def test_one_actor_is_as_none_bit_for_bit_also_when_resumed(case: str, tmp_path: Path) -> None:
    without, with_actor = agents(case, 1)
    for until in (50, 120, 200):  # within rollouts, too
        a, b = without.learn(until), with_actor.learn(until)
        assert [e.episode_return for e in a.episodes] == [e.episode_return for e in b.episodes]
        assert without.evaluate(1).returns == with_actor.evaluate(1).returns
        if until == 120:
            with_actor.save(tmp_path / "a.pt")
    resumed = DistributedAgent.load(tmp_path / "a.pt")
    resumed.learn(200)
    assert equal(learned(without), learned(with_actor))
    assert equal(learned(with_actor), learned(resumed))


@pytest.mark.parametrize("case", ["ppo", "sac", "a2c with gSDE", "acer"])
def test_two_actors_learn_from_all_environments_and_resume_bit_equal(
    case: str, tmp_path: Path
) -> None:
    _, agent = agents(case, 2, n_envs=4)
    agent.learn(120)
    agent.save(tmp_path / "a.pt")
    agent.learn(200)
    assert agent.env_steps == 200
    resumed = DistributedAgent.load(tmp_path / "a.pt")
    resumed.learn(200)
    assert equal(learned(agent), learned(resumed))
    first, second = (actor.algorithm.generator for actor in agent._fleet.actors)  # type: ignore[union-attr]
    assert not torch.equal(first.get_state(), second.get_state())


def test_normalisation_of_two_actors_is_that_of_all_their_steps() -> None:
    _, agent = agents("ppo", 2, n_envs=4)
    agent.learn(200)
    assert agent.observations is not None
    statistics = agent.observations.statistics
    # Each environment's first observation, and one behind each step, but for the last rollout's.
    assert statistics.count == pytest.approx(200 + 4, abs=1)
    assert statistics.var.min() > 0


def test_environments_that_cannot_be_divided_are_refused() -> None:
    with pytest.raises(UserError, match="n_envs 3 can't be divided among num_actors 2"):
        make_config(agent_class("ppo").Config, {"n_envs": 3, "num_actors": 2})


def test_an_agent_without_a_fleet_says_who_has_one() -> None:
    with pytest.raises(UserError, match=r"rltune\.actors\.Agent"):
        Agent("ppo", "CartPole-v1", {"num_actors": 2}, total_timesteps=10)


@pytest.mark.parametrize(
    ("agent", "config", "said"),
    [
        ("trpo", {}, "trpo learns from the policy that acted alone"),
        ("acer", {}, "acer learns from the policy that acted alone"),
        ("ppo", {"rnd_strength": 1.0}, "reward signals learn from what the learner holds"),
    ],
)
def test_what_cannot_learn_behind_its_actors_says_so(
    agent: str, config: dict[str, Any], said: str
) -> None:
    config = {**config, "num_actors": 2, "max_policy_lag": 1}
    with pytest.raises(UserError, match=said):
        DistributedAgent(agent, "CartPole-v1", config, total_timesteps=10)


def test_hyperparameters_change_on_the_way() -> None:
    without, with_actor = agents("ppo", 1)
    for agent in (without, with_actor):
        agent.learn(120)
    a, b = (agent.with_config({**AGENTS["ppo"][1], "learning_rate": 0.01, **more})
            for agent, more in ((without, {}), (with_actor, {"num_actors": 1})))  # fmt: skip
    assert isinstance(b, DistributedAgent)
    a.learn(200)
    b.learn(200)
    assert equal(learned(a), learned(b))


def test_the_evaluation_actor_tells_what_it_found() -> None:
    config = {**AGENTS["sac"][1], "num_actors": 1, "max_policy_lag": 0, "evaluation_actor": True}
    agent = DistributedAgent("sac", "Pendulum-v1", config, total_timesteps=200)
    agent.learn(50)
    chunk = agent.learn(100)
    assert chunk.values["eval_actor_env_steps"] == [50]
    assert len(chunk.values["eval_actor_return"]) == 1
    assert chunk.values["policy_lag"] == [0] * len(chunk.values["policy_lag"])
    assert agent.cpu_elsewhere > 0
    assert agent.memory_elsewhere > 1e6


@pytest.mark.parametrize("case", ["ppo", "acer"])
def test_a_rollout_does_not_go_on_with_the_episodes_of_another_actor(case: str) -> None:
    _, agent = agents(case, 2, n_steps=40)
    agent.learn(60)
    assert agent.memory.position == 30
    fleet: Any = agent._fleet
    fleet.actors[1] = Actor(replace(fleet.actors[1].spec, incarnation=1))
    agent.learn(70)
    assert agent.memory.position == 5
    assert agent._loop.progress.since_update == 10
    assert agent.learn(200).updates > 0
