"""Rows of the table of importances."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from rltune.analysis.importance.fanova import Array

MIN_ACTIVE = 10  # trials that have a conditional parameter; fewer say nothing about it


@dataclass(frozen=True)
class Importance:
    """A row of the table; see `importances`."""

    method: str
    parameter: str
    kind: str
    importance: float
    low: float
    high: float
    floor: float
    is_noise: bool
    trials: int


def unknown(method: str, parameter: str, trials: int) -> Importance:
    """Return the row of a parameter whose importance is not known."""
    nan = float("nan")
    return Importance(method, parameter, "parameter", nan, 0.0, 1.0, nan, True, trials)


def percentile_interval(samples: Array) -> tuple[float, float]:
    """Return the 95 % interval."""
    low, high = np.quantile(samples, [0.025, 0.975])
    return share(low), share(high)


def share(value: float) -> float:
    """Return the value as a share, clipped to 0..1."""
    return min(max(float(value), 0.0), 1.0)
