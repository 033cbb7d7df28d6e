"""The backends of a single environment, found by the name of an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

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


def single_backend(agent: str) -> Backend:
    """Return the backend of an agent on a single environment: rltune's, where no prefix fits."""
    return next((b for b in BACKENDS if b.prefix and agent.startswith(b.prefix)), OWN)


def single_trainer(agent: str) -> type[SingleTrainer]:
    """Return the class that trains an agent on a single environment."""
    return cast("type[SingleTrainer]", single_backend(agent).trainer(agent))
