"""Dimensions as Optuna's distributions, and their values on the unit interval."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from rltune.agents.schedules import parse_schedule

if TYPE_CHECKING:
    from rltune.space.dimensions import Dimension


def parameter_name(dimension: Dimension) -> str:
    """Return the name under which samplers know it: they work on the internal value."""
    if dimension.kind == "pow2":
        return f"log2({dimension.name})"
    return f"1-{dimension.name}" if dimension.kind == "one_minus_log" else dimension.name


def make_distribution(dimension: Dimension) -> BaseDistribution:
    """Return Optuna's distribution of the internal values."""
    internal = dimension.internal
    if internal.type == "categorical":
        return CategoricalDistribution(internal.choices)
    if internal.type == "int":
        return IntDistribution(
            int(internal.low), int(internal.high), log=internal.log, step=internal.step
        )
    return FloatDistribution(internal.low, internal.high, log=internal.log)


def ladder(dimension: Dimension, points: int) -> list[Any]:
    """Return the dimension's values on a grid: both ends, evenly on its own scale."""
    internal = dimension.internal
    if internal.type == "categorical":
        return list(dimension.choices)
    low, high = float(internal.low), float(internal.high)
    if internal.log:
        low, high = math.log(low), math.log(high)
    values = [low + (high - low) * k / (points - 1) for k in range(points)]
    if internal.log:
        values = [math.exp(value) for value in values]
    if internal.type == "int":
        steps = [round((value - internal.low) / internal.step) for value in values]
        values = [internal.low + internal.step * step for step in steps]
    inside = [min(max(value, internal.low), internal.high) for value in values]
    return [dimension.from_internal(value) for value in dict.fromkeys(inside)]


def nearest(dimension: Dimension, value: Any) -> Any:
    """Return the value of the dimension that is nearest to a number or a schedule; None: none."""
    if dimension.kind == "choice" or isinstance(value, bool):
        return None
    try:
        number = parse_schedule(value).initial
    except (TypeError, ValueError):
        return None
    if dimension.kind == "pow2":
        number = 2 ** round(math.log2(max(number, 1)))
    elif dimension.kind == "int":
        steps = round((number - dimension.low) / dimension.step)
        number = dimension.low + dimension.step * steps
    return min(max(number, dimension.low), dimension.high)


def to_unit(distribution: BaseDistribution, value: float) -> float:
    """Return the place of a number in its distribution, 0 to 1, on its own scale."""
    low, high, log = _bounds(distribution)
    return ((math.log(value) if log else value) - low) / (high - low)


def from_unit(distribution: BaseDistribution, unit: float) -> float:
    """Return the nearest number of the distribution at a place in 0..1."""
    low, high, log = _bounds(distribution)
    value = low + float(unit) * (high - low)
    value = math.exp(value) if log else value
    assert isinstance(distribution, (IntDistribution, FloatDistribution))
    if isinstance(distribution, IntDistribution):
        steps = round((value - distribution.low) / distribution.step)
        value = distribution.low + distribution.step * steps
    return min(max(value, distribution.low), distribution.high)


def _bounds(distribution: BaseDistribution) -> tuple[float, float, bool]:
    """Return the ends of the unit interval, whole numbers with half a step on either side."""
    assert isinstance(distribution, (IntDistribution, FloatDistribution))
    low, high = float(distribution.low), float(distribution.high)
    if isinstance(distribution, IntDistribution):
        low, high = low - distribution.step / 2, high + distribution.step / 2
    return (math.log(low), math.log(high), True) if distribution.log else (low, high, False)
