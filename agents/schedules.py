"""Schedules: a hyperparameter that changes while training goes on.

Beside a number there are these texts:

- ``lin_1e-3``: linearly to 0 (rl-zoo3's notation); ``lin_1e-3_1e-4``: to 1e-4
- ``exp_1e-3_1e-5``: exponentially from the first number to the second
- ``pw_0:1e-3_0.5:1e-4_1:0``: piecewise, along straight lines between points ``part of the training:
  value``; two values at the same part are a jump, and behind the last point nothing changes
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

LINEAR, EXPONENTIAL, PIECEWISE = "lin_", "exp_", "pw_"
EXAMPLES = f"{LINEAR}1e-3, {EXPONENTIAL}1e-3_1e-5 or {PIECEWISE}0:1e-3_0.5:1e-4"


class Schedule(NamedTuple):
    """A schedule as points, read from a text or a number.

    Attributes:
        kind: LINEAR, EXPONENTIAL, PIECEWISE, or "" for a constant
        points: (part of the training, value), in the order of the parts
    """

    kind: str
    points: tuple[tuple[float, float], ...]

    @property
    def initial(self) -> float:
        """The value at the beginning."""
        return self.points[0][1]

    @property
    def values(self) -> tuple[float, ...]:
        """All values that it names: it stays between the smallest and the largest."""
        return tuple(value for _, value in self.points)

    @property
    def falls_to_zero(self) -> bool:
        """Whether it is a straight line to 0, the only schedule that many others know."""
        return self.kind == LINEAR and self.points[-1][1] == 0

    def at(self, progress: float) -> float:
        """Return the value when the fraction ``progress`` of the training is done."""
        if progress < self.points[0][0]:
            return self.initial
        for (start, before), (end, after) in pairwise(self.points):
            if progress < end:
                rest = (end - progress) / (end - start)
                if self.kind == EXPONENTIAL:
                    return float(after * (before / after) ** rest)
                return after + (before - after) * rest
        return self.points[-1][1]


def is_schedule(value: object) -> bool:
    """Tell whether it is a text that begins like a schedule."""
    return isinstance(value, str) and value.startswith((LINEAR, EXPONENTIAL, PIECEWISE))


@lru_cache(maxsize=256)
def parse_schedule(value: float | str) -> Schedule:
    """Return the schedule of a number or a text.

    Raises:
        ValueError: it is neither a number nor a schedule.
    """
    text = str(value)
    kind = next((kind for kind in (LINEAR, EXPONENTIAL, PIECEWISE) if text.startswith(kind)), "")
    parts = text.removeprefix(kind).split("_") if kind else [text]
    if kind == PIECEWISE:
        points = tuple(_point(part) for part in parts)
    else:
        numbers = [float(part) for part in parts]
        if kind == LINEAR and len(numbers) == 1:
            numbers.append(0.0)
        if len(numbers) != (2 if kind else 1):
            raise ValueError(f"{value!r} names {len(numbers)} values")
        points = tuple((float(place), number) for place, number in enumerate(numbers))
    schedule = Schedule(kind, points)
    places = [place for place, _ in points]
    if not all(map(math.isfinite, (*places, *schedule.values))):
        raise ValueError(f"{value!r} is not finite")
    if places != sorted(places) or places[0] < 0 or places[-1] > 1:
        raise ValueError(f"{value!r}: the parts of the training must rise from 0 to 1")
    if kind == EXPONENTIAL and min(schedule.values) <= 0:
        raise ValueError(f"{value!r}: an exponential never reaches 0")
    return schedule


def _point(text: str) -> tuple[float, float]:
    place, colon, value = text.partition(":")
    if not colon:
        raise ValueError(f"{text!r} is no point 'part:value'")
    return float(place), float(value)


def value_at(value: float | str, progress: float) -> float:
    """Return a schedule's value when the fraction ``progress`` (0 to 1) of the training is done."""
    return parse_schedule(value).at(progress)


def first_value(value: Any) -> Any:
    """Return the first value of a schedule, and anything else as it is."""
    try:
        return parse_schedule(value).initial if is_schedule(value) else value
    except ValueError:
        return value
