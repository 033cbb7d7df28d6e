"""The agents of a search over several: those that are asked for and can act in the environment."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rltune.agents.errors import UserError
from rltune.agents.registry import BUILTIN

if TYPE_CHECKING:
    from rltune.backends.base import Trainer

AUTO = "auto"  # every agent of ours that can act there
LEARNING = 1.0  # seconds until an agent is taken to have begun to learn
TIMED = 2.0  # seconds over which its speed is measured


class Candidates(NamedTuple):
    """The agents to search, and the reasons why others can't act there."""

    agents: list[str]
    left_out: dict[str, str]


def names_several(agent: str | None) -> bool:
    """Whether the text asks for several agents: "ppo,sac", or "auto"."""
    return agent is not None and (agent == AUTO or "," in agent)


def candidates(asked: str | Sequence[str], env: str, env_kwargs: Mapping[str, Any]) -> Candidates:
    """Return the agents that can act in the environment.

    Args:
        asked: "auto", or names
        env: gymnasium id or "module:Class"
        env_kwargs: of the environment

    Raises:
        UserError: an agent is unknown, one is named twice, or fewer than two can act there.
    """
    from rltune.backends.registry import backend_of, check_fit, config_class
    from rltune.search.request import full_config

    given = asked.split(",") if isinstance(asked, str) else list(asked)
    names = list(BUILTIN) if given == [AUTO] else [name.strip() for name in given]
    if not all(names) or len(set(names)) < len(names):
        raise UserError(f"agents {','.join(names)!r}: name each once, such as ppo,sac,td3; or auto")
    agents: list[str] = []
    left_out: dict[str, str] = {}
    for name in names:
        if backend_of(name).needs_data(name):
            left_out[name] = f"it learns from demonstrations alone: rltune run {name} searches it"
            continue
        defaults = full_config(config_class(name), {})
        try:
            check_fit(name, env, [defaults], env_kwargs, has_data=True)
        except UserError as error:
            left_out[name] = str(error)
        else:
            agents.append(name)
    if not agents:
        raise UserError(f"none of {', '.join(names)} can act in {env}: {left_out[names[0]]}")
    if len(agents) == 1:
        raise UserError(
            f"of {', '.join(names)} only {agents[0]} can act in {env}; "
            f"write rltune run {agents[0]} --env {env}."
        )
    return Candidates(agents, left_out)


def budget_in(seconds: float, agent: str, env: str, env_kwargs: Mapping[str, Any]) -> int:
    """Return the env steps that the agent's defaults train in so many seconds on this machine.

    Two significant digits: timing is no more exact.
    """
    from rltune.backends.registry import make_trainer

    trained = make_trainer(
        agent, env, {}, total_timesteps=10**9, env_kwargs=dict(env_kwargs), seed=0
    )
    try:
        _train(trained, LEARNING)
        before, took = trained.env_steps, _train(trained, TIMED)
        speed = (trained.env_steps - before) / took
    finally:
        trained.close()
    return two_digits(max(1.0, speed * seconds))


def _train(agent: Trainer, seconds: float) -> float:
    """Train for about so many seconds, and return how many it were."""
    started = time.time()
    agent.learn(10**9, deadline=started + seconds)
    return time.time() - started


def two_digits(value: float) -> int:
    """Return a number rounded to two significant digits."""
    unit = int(10 ** max(0, math.floor(math.log10(value)) - 1))
    return max(1, round(value / unit) * unit)
