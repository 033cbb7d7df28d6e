"""Search dimensions beside the agent: the environment's arguments, wrappers and training length.

In a configuration, ``env.KEY`` is an argument of the environment, ``wrapper.NAME`` and
``wrapper.NAME.ARG`` a wrapper around it (see `rltune.agents.envs.make`), and ``total_timesteps``
the length of the training, at most the budget. ``_NAME`` is a helper value, which only derived
values and constraints use. `split` takes all of them out again where something is trained.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rltune.agents.config import Hyperparameter, hyperparameters
from rltune.agents.envs.suite import is_suite
from rltune.agents.errors import UserError

if TYPE_CHECKING:
    from rltune.space.core import SpaceCore

ENV = "env."
LENGTH = "total_timesteps"
HELPER = "_"
# In words that JavaScript reads, too: the schema for editors has it.
PATTERN = (
    r"env\.[A-Za-z_][A-Za-z0-9_]*"
    r"|wrapper\.[A-Za-z_][A-Za-z0-9_.]*(:[A-Za-z_][A-Za-z0-9_]*)?(\.[A-Za-z_][A-Za-z0-9_]*)?"
)
_NAME = re.compile(rf"(?:{PATTERN}|{LENGTH}|{HELPER}\w+)\Z")


def is_surrounding(name: str) -> bool:
    """Whether the name is one of these, rather than a hyperparameter."""
    return _NAME.match(name) is not None


def is_helper(name: str) -> bool:
    """Whether the name is of a helper value: it begins with an underscore."""
    return name.startswith(HELPER)


class Searchable(dict[str, Hyperparameter]):
    """An agent's hyperparameters by name; what surrounds it is known, too, but not listed."""

    def __contains__(self, name: object) -> bool:
        return dict.__contains__(self, name) or (isinstance(name, str) and is_surrounding(name))

    def __missing__(self, name: str) -> Hyperparameter:
        if not is_surrounding(name):
            raise KeyError(name)
        is_length = name == LENGTH
        return Hyperparameter(
            name=name,
            type="int" if is_length else "any",
            default=None,
            low=None,
            high=None,
            scale="log" if is_length else "uniform",
            choices=None,
            help="env steps of the training" if is_length else "beside the agent",
            schedule=False,
            minimum=1 if is_length else float("-inf"),
            maximum=float("inf"),
            mutable=False,
        )


def searchable(config_class: type[Any]) -> Searchable:
    """Return the names that can be searched or fixed for the agent with these configurations."""
    return Searchable(hyperparameters(config_class))


@dataclass(frozen=True)
class SplitConfig:
    """A configuration, taken apart.

    Attributes:
        config: the agent's hyperparameters
        env_kwargs: of the environment, wrappers among them
        env_steps: of the whole training
    """

    config: dict[str, Any]
    env_kwargs: dict[str, Any]
    env_steps: int


def split(config: Mapping[str, Any], env_kwargs: Mapping[str, Any], budget: int) -> SplitConfig:
    """Split a configuration into the agent's, the environment's and the training's length.

    Args:
        config: of a trial, with its helper values
        env_kwargs: of all trials; the configuration's win
        budget: env steps where the configuration says nothing
    """
    own = {name: value for name, value in config.items() if not is_surrounding(name)}
    ours = {
        name.removeprefix(ENV): value
        for name, value in config.items()
        if is_surrounding(name) and name != LENGTH and not is_helper(name)
    }
    return SplitConfig(own, {**env_kwargs, **ours}, int(config.get(LENGTH, budget)))


def check(space: SpaceCore, env: str, budget: int) -> None:
    """Raise `UserError` where such a name can't be searched, or fixed, here."""
    names = [name for name in (*space.dimensions, *space.fixed) if is_surrounding(name)]
    of_env = [name for name in names if name != LENGTH and not is_helper(name)]
    if is_suite(env) and of_env:
        raise UserError(f"{of_env[0]} needs a single environment; {env} are several.")
    if LENGTH in space.derived:
        raise UserError(f"{LENGTH} can't be derived: it has to be at most the budget; search it.")
    values: list[Any] = [start.values.get(LENGTH, 0) for start in space.starts]
    values.append(space.fixed.get(LENGTH, 0))
    if dimension := space.dimensions.get(LENGTH):
        values += [dimension.high, *dimension.choices]
    if (most := max(values)) > budget:
        raise UserError(
            f"{LENGTH} goes up to {most:,.0f}, and a trial has {budget:,} env steps at most; lower "
            "it, or give a larger --budget."
        )


def defaults(space: SpaceCore, env: str) -> dict[str, Any]:
    """Return the defaults of the searched surroundings of an agent.

    An argument of the environment has its constructor's default, where that can be read; the length
    is the budget, and there are no wrappers.
    """
    found: dict[str, Any] = {}
    for name in space.dimensions:
        if name == LENGTH and space.budget is not None:
            found[name] = space.budget
        elif name.startswith(ENV):
            with contextlib.suppress(Exception):  # a module of another project
                value = _argument(env, name.removeprefix(ENV))
                if value is None or isinstance(value, (bool, int, float, str)):
                    found[name] = value
    return {name: value for name, value in found.items() if value is not None}


def _argument(env: str, key: str) -> object:
    """Return the default of an argument of the environment's constructor."""
    from gymnasium.envs.registration import load_env_creator
    from rltune.agents.envs.make import factory, find_spec, is_own

    if is_own(env):
        return inspect.signature(factory(env)).parameters[key].default
    spec = find_spec(env)
    if key == "max_episode_steps":
        return spec.max_episode_steps
    if key in spec.kwargs:
        return spec.kwargs[key]
    creator = spec.entry_point
    made = load_env_creator(creator) if isinstance(creator, str) else creator
    assert made is not None
    return inspect.signature(made).parameters[key].default
