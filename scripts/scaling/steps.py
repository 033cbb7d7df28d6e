"""Env steps per second of trainings with some actors, and what a training takes without waiting."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from rltune.actors import Agent
from rltune.agents.config import config_dict, make_config
from rltune.agents.distributed.actor import Actor, ActorSpec
from rltune.agents.distributed.agent import DistributedAgent
from rltune.agents.distributed.policies import act_by, policy_of
from rltune.agents.registry import agent_class

from scaling.envs import Timed

ENV = "scaling.envs:Timed"
STEP = 0.005  # seconds of a step
N_STEPS = 128  # of a rollout, in each environment
SECONDS = 1.5  # of a slice, about
SLICES = 3


class Setting(NamedTuple):
    """An agent, and how far its actors may run ahead.

    Attributes:
        agent: its name
        config: hyperparameters
        counts: of actors, for steps that wait
        computing: the same for steps that compute
    """

    agent: str
    config: dict[str, Any]
    counts: tuple[int, ...]
    computing: tuple[int, ...]


PPO = {"n_steps": N_STEPS, "batch_size": 64, "n_epochs": 10}
SAC = {"learning_starts": 200, "buffer_size": 20_000}
SETTINGS = {
    "ppo": Setting("ppo", {**PPO, "max_policy_lag": 0}, (0, 1, 2, 4), (0, 1, 2)),
    "ppo ahead": Setting("ppo", {**PPO, "max_policy_lag": 1}, (1, 2, 4), (1, 2)),
    "sac": Setting("sac", SAC, (0, 1, 2, 4), (0, 1, 2)),
    "sac 1:4": Setting("sac", {**SAC, "train_freq": 4}, (0, 1, 2, 4), (0, 1, 2)),
}


def make(setting: str, actors: int, seconds: float, computes: bool = False) -> Agent:
    """Return an agent, each of whose actors has one environment."""
    chosen = SETTINGS[setting]
    config = {**chosen.config, "num_actors": actors, "n_envs": max(1, actors)}
    kwargs = {"seconds": seconds, "computes": computes}
    return Agent(chosen.agent, ENV, config, total_timesteps=10**9, env_kwargs=kwargs)


def window(agent: Agent, seconds: float) -> int:
    """Return the env steps of a slice of about so many seconds: whole rollouts and fragments."""
    n_envs, every = agent.config.n_envs, agent.algorithm.update_every
    if agent.algorithm.on_policy:
        return max(1, round(seconds * n_envs / STEP / every)) * every
    return 128 * min(4, 2 * every)  # of learners that are slower than a few actors


def measure(setting: str, actors: int, computes: bool) -> dict[str, Any]:
    """Return the env steps per second of slices of a training that is under way."""
    agent = make(setting, actors, STEP, computes)
    try:
        n = window(agent, SECONDS)
        # The first rollouts: processes load code; actors that may run ahead do.
        warm = 2 * agent.algorithm.update_every if agent.algorithm.on_policy else 400
        agent.learn(warm)
        rates = []
        for _ in range(SLICES):
            began, before = time.perf_counter(), agent.env_steps
            agent.learn(before + n)
            rates.append((agent.env_steps - before) / (time.perf_counter() - began))
    finally:
        agent.close()
    rates = [round(rate, 1) for rate in rates]
    return {"per_second": statistics.median(rates), "slices": rates, "window": n}


def costs(setting: str, n_envs: int) -> dict[str, Any]:
    """Return what a training's parts take on this machine, where steps take no time.

    ``update_ms`` is of one update, ``row_ms`` what an actor takes for a step of its environments,
    ``learner_row_ms`` the learner for one that it was sent, ``policy_ms`` a policy, and ``load_ms``
    an actor that takes it over.
    """
    chosen = SETTINGS[setting]
    config = {**chosen.config, "n_envs": n_envs, "num_actors": 1, "max_policy_lag": 0}
    agent = DistributedAgent(chosen.agent, ENV, config, total_timesteps=10**9)  # in this process
    algorithm, fleet = agent.algorithm, agent._fleet
    assert fleet is not None
    agent.learn(600)
    updates, rounds = list[float](), list[float]()
    algorithm.update = timed(algorithm.update, updates)  # type: ignore[method-assign]
    fleet.collect = timed(fleet.collect, rounds)  # type: ignore[method-assign]
    rollouts = 8 * algorithm.update_every if algorithm.on_policy else 400
    began, before = time.perf_counter(), agent.env_steps
    agent.learn(before + rollouts)
    rest = time.perf_counter() - began - sum(updates) - sum(rounds)
    rows = (agent.env_steps - before) / n_envs
    parts = (algorithm, agent.normalizers)
    made, loaded = list[float](), list[float]()
    for _ in range(20):
        policy = timed(policy_of, made)(*parts, 1, 0, whole=False)
        timed(act_by, loaded)(*parts, policy)
    agent.close()
    found = {"update_ms": updates, "policy_ms": made, "load_ms": loaded}
    medians = {name: round(statistics.median(times) * 1e3, 3) for name, times in found.items()}
    rest_ms, row_ms = rest / rows * 1e3, row_seconds(setting, n_envs) * 1e3
    return {**medians, "row_ms": round(row_ms, 4), "learner_row_ms": round(rest_ms, 4)}


def row_seconds(setting: str, n_envs: int) -> float:
    """Return the time of a step of all environments without the environments' own, in fragments."""
    chosen = SETTINGS[setting]
    values = config_dict(make_config(agent_class(chosen.agent).Config, chosen.config))
    values["n_envs"] = n_envs
    rates = chosen.agent == "ppo" and chosen.config["max_policy_lag"] > 0
    spec = ActorSpec(
        chosen.agent, ENV, {}, values, 0, 0, n_envs, engine="auto", rates_actions=rates
    )
    actor, rows = Actor(spec), 64
    policy = policy_of(actor.algorithm, actor.normalizers, 1, 10**6, whole=False)
    actor.collect(policy, rows)
    policy = replace(policy, state=None, statistics={})
    times: list[float] = []
    for _ in range(10):
        timed(actor.collect, times)(policy, rows)
    actor.close()
    return statistics.median(times) / rows


def timed(function: Callable[..., Any], times: list[float]) -> Callable[..., Any]:
    """Return a function that notes how many seconds each call takes."""

    def call(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        found = function(*args, **kwargs)
        times.append(time.perf_counter() - began)
        return found

    return call


def free_cores(seconds: float = 2.0) -> dict[str, Any]:
    """Return how many cores two processes get that compute: what other programs leave."""
    began = time.time() + 2  # both are there by then
    work = "import time; began = {}\nwhile time.time() < began: pass\nused = time.process_time()\n"
    work += "while time.time() < began + {}: pass\nprint(time.process_time() - used)"
    command = [sys.executable, "-c", work.format(began, seconds)]
    two = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    used = [float(process.communicate()[0]) for process in two]
    return {"cores_free": round(sum(used) / seconds, 2)}


def slept() -> dict[str, Any]:
    """Return the milliseconds of a step that waits, which are more than it asks for."""
    env, times = Timed(STEP), list[float]()
    env.reset()
    for _ in range(200):
        timed(env.step, times)(None)
    return {"mean_ms": round(statistics.mean(times) * 1e3, 4)}
