"""Actors of one training on Ray: they collect, a replay server keeps, and a learner updates.

`Agent` is `rltune.agents.Agent` with actors, where ``num_actors`` asks for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rltune.actors.agent import Agent as Agent

__all__ = ["Agent"]


def __getattr__(name: str) -> Any:
    if name != "Agent":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rltune.actors.agent import Agent

    return Agent
