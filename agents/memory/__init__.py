"""Memories: rollouts, and replay of transitions, segments and sequences."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rltune.agents.memory.replay import ReplayMemory as ReplayMemory
    from rltune.agents.memory.rollout import RolloutMemory as RolloutMemory

_HOME = {
    "RolloutMemory": "rollout",
    "ReplayMemory": "replay",
}
__all__ = list(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
