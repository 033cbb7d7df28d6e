"""The libraries whose algorithms are run like Stable-Baselines3's: itself, sb3-contrib and SBX."""

from __future__ import annotations

import functools
import importlib
import inspect
from dataclasses import dataclass
from typing import Any

from rltune.agents.errors import UserError
from rltune.backends.names import SB3, SBX

BOX = ("SAC", "TD3", "DDPG", "TQC", "CrossQ")  # for Box actions alone
CHOICES = ("DQN", "QRDQN")  # for Discrete ones


@dataclass(frozen=True)
class Library:
    """Algorithms under one prefix.

    Attributes:
        name: in messages
        prefix: of its agents' names
        extra: of rltune, which installs it
        modules: where each algorithm is
    """

    name: str
    prefix: str
    extra: str
    modules: dict[str, str]


LIBRARIES = (
    Library(
        "Stable-Baselines3",
        SB3,
        "sb3",
        {
            **dict.fromkeys(("A2C", "DDPG", "DQN", "PPO", "SAC", "TD3"), "stable_baselines3"),
            **dict.fromkeys(("CrossQ", "QRDQN", "TQC", "TRPO"), "sb3_contrib"),
        },
    ),
    Library(
        "SBX",
        SBX,
        "sbx",
        dict.fromkeys(("CrossQ", "DDPG", "DQN", "PPO", "SAC", "TD3", "TQC"), "sbx"),
    ),
)


def library_of(agent: str) -> Library:
    """Return the library of an agent by its prefix."""
    return next(library for library in LIBRARIES if agent.startswith(library.prefix))


def algorithm_name(agent: str) -> str:
    """Return the library's name of the algorithm.

    Raises:
        UserError: it has none of this name.
    """
    library = library_of(agent)
    name = agent.removeprefix(library.prefix)
    if name in library.modules:
        return name
    names = ", ".join(library.prefix + known for known in library.modules)
    raise UserError(f"agent {agent!r} can't be run; of {library.name}, choose one of: {names}.")


def algorithm_class(agent: str) -> type[Any]:
    """Return the library's class of the algorithm.

    Raises:
        UserError: it has none of this name, or a package is not installed.
    """
    name, library = algorithm_name(agent), library_of(agent)
    try:
        module = importlib.import_module(library.modules[name])
        return vars(module)[name]  # type: ignore[no-any-return]
    except (ImportError, KeyError) as error:
        raise UserError(
            f"agent {agent!r} needs {library.name}, which is missing or too old ({error}): "
            f'pip install "rltune[{library.extra}]"'
        ) from error


@functools.cache
def arguments_of(agent: str) -> dict[str, Any]:
    """Return the arguments of the algorithm's class with their defaults, in their order."""
    parameters = inspect.signature(algorithm_class(agent).__init__).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}
