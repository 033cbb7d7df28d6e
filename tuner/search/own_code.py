"""Searches for trainings of the user's own: functions and scripts, whose space names all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rltune.agents.envs.suite import NO_ENV, is_suite
from rltune.agents.errors import UserError
from rltune.backends.names import FUNCTION, METRIC_NAME, SCRIPT, SECTION, spec_of
from rltune.objectives.metrics import METRIC

if TYPE_CHECKING:
    from rltune.search.space_choice import Asked, Choice
    from rltune.space.space import Space

EVALUATION = {"eval_episodes": 1, "eval_share": None}  # a report is one value, and costs nothing
OF_EVALUATIONS = ("eval_episodes", "eval_share")


def asked_agent(
    agent: str | type | Callable[..., Any] | None,
    train: str | Callable[..., Any] | None,
    space: Asked | None,
) -> str:
    """Return the name of the agent that a search is asked for, a function's with its prefix.

    Raises:
        UserError: none is named, or both an agent and a function, or what is named is not there.
    """
    from rltune.search.space_choice import named_agent

    if agent is not None and train is not None:
        raise UserError("agent and train are two things to tune; give one of them.")
    if train is not None:
        name = spec_of(train)  # type: ignore[arg-type]
        return name if name.startswith(FUNCTION) else FUNCTION + name
    return resolved(named_agent(space) if agent is None else spec_of(agent))  # type: ignore[arg-type]


def resolved(agent: str) -> str:
    """Return ``function:module:name`` of ``module:name`` where that is a function."""
    from rltune.backends.external.function import is_function
    from rltune.backends.registry import is_own, is_own_code

    if ":" not in agent or is_own_code(agent) or not is_own(agent):
        return agent
    return FUNCTION + agent if is_function(agent) else agent


def config_class_of(agent: str, space: Asked | None, more: Iterable[str] = ()) -> type[Any]:
    """Return the class of an agent's configurations, where it may have those of a space.

    Args:
        agent: its name
        space: that is asked for
        more: names of further dimensions
    """
    from rltune.backends.registry import config_class_in, is_own_code
    from rltune.search.space_choice import read_space

    read = read_space(space) if space is not None and is_own_code(agent) else None
    return config_class_in(agent, read, more)


def completed_choice(agent: str, choice: Choice) -> Choice:
    """Return the choice with an environment, which code of the user's own need not be told.

    Raises:
        UserError: there are several for such code.
    """
    from rltune.backends.registry import is_own_code

    if not is_own_code(agent):
        return choice
    if choice.env and is_suite(choice.env):
        raise UserError(f"{agent} is code of your own, which a search gives one environment.")
    return replace(choice, env=choice.env or NO_ENV)


def complete_options(agent: str, space: Space, options: dict[str, Any]) -> None:
    """Add what a search of code of the user's own says of its evaluations to the options.

    Raises:
        UserError: an option is for evaluations that rltune does not run here.
    """
    from rltune.backends.registry import is_own_code

    if space.script is not None and not agent.startswith(SCRIPT):
        raise space.source.error(("script",), f"is for script:FILE, and the agent is {agent!r}")
    if not is_own_code(agent):
        return
    for name in OF_EVALUATIONS:
        if options.get(name) is not None:
            flag = name.replace("_", "-")
            raise UserError(f"--{flag}: code of your own evaluates by itself; leave it out.")
    options.update(EVALUATION)
    metric = options.get("metric", METRIC)
    told = {METRIC_NAME: metric}
    if agent.startswith(SCRIPT):
        told[SECTION] = space.script.to_dict() if space.script else {}
    options["env_kwargs"] = {**(options.get("env_kwargs") or {}), **told}
