"""Agent registry: built-in agents, those that packages register, and users' own, by name."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import UserError
from rltune.agents.plugins import PluginGroup
from rltune.agents.user_code import import_object

if TYPE_CHECKING:
    from rltune.agents.algorithm import Algorithm

_CLASSES = ("A2C", "ACER", "DDPG", "DQN", "PPO", "SAC", "TD3", "TRPO", "BC")
BUILTIN = {name.lower(): f"rltune.agents.algorithms.{name.lower()}:{name}" for name in _CLASSES}
# Runs and checkpoints of 0.1 have these names of our classes.
_OLD_NAMES = {f"rltune.agents.{name.lower()}:{name}": name.lower() for name in _CLASSES}
HELP = f"{', '.join(BUILTIN)}, rllib:PPO, sb3:PPO, or module:Class of your own"
PLUGINS = PluginGroup("agents", "agent", BUILTIN)


def agent_names() -> list[str]:
    """Return the names of the agents of ours and of installed packages."""
    return sorted([*BUILTIN, *PLUGINS.usable])


def canonical(name: str) -> str:
    """Return today's name of an agent: runs and checkpoints of 0.1 may have another."""
    return _OLD_NAMES.get(name, name)


def name_of(agent: type) -> str:
    """Return the name of an agent's class: ``ppo``, or ``module:Class`` of the user's own."""
    spec = f"{agent.__module__}:{agent.__qualname__}"
    return next((name for name, ours in BUILTIN.items() if ours == spec), spec)


def agent_class(name: str) -> type[Algorithm[Any]]:
    """Return the class of an agent: ``ppo``, an entry point's name or ``module:Class``.

    Raises:
        UserError: there is no such agent, or it can't be imported, or a part of it is missing.
    """
    name = canonical(name)
    ours = BUILTIN.get(name.lower())
    found = import_object(ours, "agent") if ours else PLUGINS.load(name)
    from rltune.agents.algorithm import Algorithm

    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise UserError(f"agent {name!r} is not a subclass of rltune.agents.Algorithm")
    if inspect.isabstract(found):
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise UserError(f"agent {name!r} lacks {missing}")
    _check_parts(name, found)
    return found


def _check_parts(name: str, found: type[Algorithm[Any]]) -> None:
    """Raise UserError for what a class lacks that abstract methods can't ask for."""
    from rltune.agents.config import AgentConfig

    config = getattr(found, "Config", None)
    if config is None:
        raise UserError(f"agent {name!r} lacks Config: write Config = MyConfig in the class")
    is_config = isinstance(config, type) and issubclass(config, AgentConfig)
    if not is_config or "__dataclass_params__" not in vars(config):
        raise UserError(
            f"agent {name!r}: Config must be a frozen dataclass below rltune.agents.AgentConfig"
        )
    try:
        inspect.signature(found).bind("config", "spaces", seed=0, device="cpu")
    except TypeError as error:
        raise UserError(
            f"agent {name!r}: __init__ must take (config, spaces, *, seed, device): {error}"
        ) from None
