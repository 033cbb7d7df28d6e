"""Reasons of trials that ended: the words that a study keeps, read back where they matter."""

from __future__ import annotations

BY_HAND = "by hand"  # the kind of the reason


TIME_LIMIT = "time limit"  # how the reason begins of a trial that ran out of time


def reason(env_steps: int) -> str:
    """Return why a trial ended that was stopped by hand."""
    return f"{BY_HAND}: stopped {at(env_steps)}"


def at(env_steps: int) -> str:
    """Return where a training was stopped, in words."""
    return f"at {env_steps:,} env_steps" if env_steps else "before its first result"
