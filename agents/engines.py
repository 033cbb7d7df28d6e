"""Engines: what computes acting and updates."""

from __future__ import annotations

from rltune.agents.errors import unknown

AUTO, TORCH, NUMPY = "auto", "torch", "numpy"
ENGINES = (AUTO, TORCH, NUMPY)


def check_engine(engine: str) -> None:
    """Check the name of an engine.

    Raises:
        UserError: there is none of this name.
    """
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
