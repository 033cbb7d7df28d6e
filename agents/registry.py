"""Finding agents by name: those of ours, those that packages register, those of the user's own."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import UserError, unknown

if TYPE_CHECKING:
    from rltune.agents.algorithm import Algorithm

BUILTIN = {
    name.lower(): f"rltune.agents.{name.lower()}:{name}"
    for name in ("A2C", "ACER", "DDPG", "DQN", "PPO", "SAC", "TD3", "TRPO")
}
HELP = f"{', '.join(BUILTIN)}, rllib:PPO, or module:Class of your own"
ENTRY_POINT_GROUP = "rltune.agents"


def _specs() -> dict[str, str]:
    """Return every registered agent: its name and its ``module:Class``."""
    others = {point.name: point.value for point in entry_points(group=ENTRY_POINT_GROUP)}
    return {**others, **BUILTIN}


def agent_names() -> list[str]:
    """Return the names of the agents of ours and of installed packages."""
    return sorted(_specs())


def agent_class(name: str) -> type[Algorithm[Any]]:
    """Return the class of an agent: ``ppo``, an entry point's name or ``module:Class``.

    Raises:
        UserError: there is no such agent, or it can't be imported, or it is no Algorithm.
    """
    spec = name if ":" in name else BUILTIN.get(name.lower())
    if spec is None:  # reading the entry points of all packages takes 20 ms
        specs = _specs()
        if name.lower() not in specs:
            raise unknown("agent", name, specs)
        spec = specs[name.lower()]
    found = import_object(spec, "agent")
    from rltune.agents.algorithm import Algorithm

    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise UserError(f"agent {name!r} is not a subclass of rltune.agents.Algorithm")
    if inspect.isabstract(found):
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise UserError(f"agent {name!r} lacks {missing}")
    return found


def import_object(spec: str, kind: str) -> Any:
    """Import ``module:Name``; modules in the current directory come first.

    Args:
        spec: where the object is
        kind: what it is for the errors, such as ``agent`` or ``environment``

    Raises:
        UserError: the text has another shape, or there is no such module or name in it.
    """
    module_name, _, name = spec.partition(":")
    if not module_name or not name:
        raise UserError(f"{kind} {spec!r} is not of the form module:Name")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
        importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise UserError(
                f"{kind} {spec!r}: there is no module {error.name!r} in {here} or installed"
            ) from None
        raise UserError(f"{kind} {spec!r} can't be imported: {error}") from error
    except Exception as error:
        raise UserError(
            f"{kind} {spec!r} can't be imported: {type(error).__name__}: {error}"
        ) from error
    try:
        return getattr(module, name)
    except AttributeError:
        public = [item for item in vars(module) if not item.startswith("_")]
        raise unknown(f"{kind} in {module_name}", name, public) from None
