"""Environment wrappers, named among an environment's arguments: ``wrapper.NAME.ARG``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from rltune.agents.errors import UserError, unknown
from rltune.agents.user_code import factory

Env = gymnasium.Env[Any, Any]
Array = npt.NDArray[Any]
WRAPPER = "wrapper."


class FrameStack(gymnasium.Wrapper[Array, Any, Any, Any]):
    """The last observations, the newest last; as gymnasium's, with half of its copies.

    Args:
        env: gives arrays of a Box
        size: how many; an episode begins with its first observation, so often
    """

    def __init__(self, env: Env, size: int) -> None:
        super().__init__(env)
        self.observation_space = gymnasium.vector.utils.batch_space(env.observation_space, size)
        self._stack: Array = np.zeros(
            cast(Any, self.observation_space.shape), cast(Any, self.observation_space.dtype)
        )

    def reset(self, **kwargs: Any) -> tuple[Array, dict[str, Any]]:
        """Begin an episode."""
        obs, info = self.env.reset(**kwargs)
        self._stack = np.empty_like(self._stack)
        self._stack[...] = obs
        return self._stack, info

    def step(self, action: Any) -> tuple[Array, Any, bool, bool, dict[str, Any]]:
        """Take a step; what earlier ones returned stays as it is."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        before, self._stack = self._stack, np.empty_like(self._stack)
        self._stack[:-1] = before[1:]
        self._stack[-1] = obs
        return self._stack, reward, terminated, truncated, info


def take_wrappers(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Take what names wrappers out of an environment's arguments, and return it."""
    return {name: kwargs.pop(name) for name in list(kwargs) if name.startswith(WRAPPER)}


def named(wrappers: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the wrappers with their arguments, the innermost first.

    ``wrapper.NAME: true`` and ``wrapper.NAME.ARG: value`` name a class of `gymnasium.wrappers`, or,
    as ``module:Class``, one of the user's own; ``wrapper.NAME: false`` leaves it out.

    Raises:
        UserError: what is to be a yes or a no is none.
    """
    arguments: dict[str, dict[str, Any]] = {}
    left_out = set()
    for name, value in wrappers.items():
        wrapper, argument = _wrapper_argument(name)
        known = arguments.setdefault(wrapper, {})
        if argument:
            known[argument] = value
        elif value is False:
            left_out.add(wrapper)
        elif value is not True:
            raise UserError(f"{name} is {value!r}, but must be true or false")
    return [(name, known) for name, known in arguments.items() if name not in left_out]


def wrapped(made: Env, wrappers: Mapping[str, Any]) -> Env:
    """Return the environment within its wrappers.

    Raises:
        UserError: there is no such wrapper, or it does not take these arguments.
    """
    for name, arguments in named(wrappers):
        try:
            made = _wrapper(name)(made, **arguments)
        except TypeError as error:
            raise UserError(f"{WRAPPER}{name} does not take these arguments: {error}") from error
        if not isinstance(made, gymnasium.Env):
            raise UserError(f"{WRAPPER}{name} gives no gymnasium.Env")
    return made


def _wrapper_argument(name: str) -> tuple[str, str]:
    """Return the wrapper and its argument, or "" where the name is of the wrapper alone."""
    module, colon, rest = name.removeprefix(WRAPPER).rpartition(":")
    wrapper, _, argument = rest.partition(".")
    return f"{module}{colon}{wrapper}", argument


def _wrapper(name: str) -> Callable[..., Any]:
    if ":" in name:
        return factory(name)
    known = [name for name in dir(gymnasium.wrappers) if name[0].isupper()]
    if name not in known:
        raise unknown("wrapper", name, known)
    return cast("Callable[..., Any]", getattr(gymnasium.wrappers, name))
