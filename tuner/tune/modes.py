"""Modes of Ray Tune, in the words of Optuna."""

from __future__ import annotations

from rltune.agents.errors import unknown

DIRECTIONS = {"max": "maximize", "min": "minimize"}


def direction_of(mode: str) -> str:
    """Return "maximize" or "minimize"; UserError: there is no such mode."""
    if mode not in DIRECTIONS:
        raise unknown("mode", mode, DIRECTIONS)
    return DIRECTIONS[mode]
