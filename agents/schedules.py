"""Schedules: a hyperparameter that changes while training goes on."""

from __future__ import annotations

import math

LINEAR = "lin_"


def parse_schedule(value: float | str) -> tuple[float, bool]:
    """Return the initial value and whether it falls linearly to zero.

    A schedule is a number (constant) or the text ``lin_2.5e-4``, rl-zoo3's notation.

    Raises:
        ValueError: the text is neither.
    """
    linear = isinstance(value, str) and value.startswith(LINEAR)
    initial = float(value[len(LINEAR) :] if isinstance(value, str) and linear else value)
    if not math.isfinite(initial):
        raise ValueError(f"{value!r} is not a finite number")
    return initial, linear


def value_at(value: float | str, progress: float) -> float:
    """Return a schedule's value when the fraction ``progress`` (0 to 1) of the training is done."""
    initial, linear = parse_schedule(value)
    return initial * max(0.0, 1.0 - progress) if linear else initial
