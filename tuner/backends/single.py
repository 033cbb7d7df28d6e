"""The backends of a single environment, ours and those of plug-ins, by the name of an agent."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, cast

from rltune.agents.errors import UserError
from rltune.agents.plugins import PluginGroup
from rltune.backends.external.backend import FunctionBackend, ScriptBackend
from rltune.backends.own import OwnBackend
from rltune.backends.rllib.backend import RLlibBackend
from rltune.backends.sb3.backend import BACKENDS as SB3_BACKENDS

if TYPE_CHECKING:
    from rltune.backends.base import Backend, SingleTrainer

OWN = OwnBackend()
BACKENDS: list[Backend] = [
    OWN,
    RLlibBackend(),
    *SB3_BACKENDS,
    FunctionBackend(),
    ScriptBackend(),
]
# The name of a plug-in is the prefix of its agents' names.
PLUGINS = PluginGroup("backends", "backend", (b.prefix.rstrip(":") for b in BACKENDS))


def single_backend(agent: str) -> Backend:
    """Return the backend of an agent on a single environment: rltune's, where no prefix fits."""
    ours = next((b for b in BACKENDS if b.prefix and agent.startswith(b.prefix)), None)
    if ours is not None:
        return ours
    name, colon, _ = agent.partition(":")
    return plugin_backend(name) if colon and name in PLUGINS.usable else OWN


@functools.cache
def plugin_backend(name: str) -> Backend:
    """Return the backend of a plug-in.

    Raises:
        UserError: it can't be imported, or is no backend, or its prefix is another.
    """
    from rltune.backends.base import Backend

    found = PLUGINS.load(name)
    if not isinstance(found, type) or not issubclass(found, Backend):
        raise UserError(f"backend {name!r} is not a subclass of rltune.backends.base.Backend")
    if missing := ", ".join(sorted(found.__abstractmethods__)):
        raise UserError(f"backend {name!r} lacks {missing}")
    made = found()
    if getattr(made, "prefix", None) != f"{name}:" or not hasattr(made, "name"):
        raise UserError(f"backend {name!r} needs a name, and the prefix {name + ':'!r}")
    return made


def backends() -> list[Backend]:
    """Return all backends, those of plug-ins that can be loaded included."""
    return [*BACKENDS, *PLUGINS.working(plugin_backend).values()]


def single_trainer(agent: str) -> type[SingleTrainer]:
    """Return the class that trains an agent on a single environment."""
    return cast("type[SingleTrainer]", single_backend(agent).trainer(agent))
