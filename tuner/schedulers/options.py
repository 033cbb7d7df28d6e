"""Options of schedulers: their names, defaults and ranges."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import UserError, unknown

if TYPE_CHECKING:
    from rltune.runs.search_spec import SearchSpec

POPULATIONS = ("pbt", "pb2")
DEFAULT_POPULATION = 8


_COMMON: dict[str, float | None] = {"min_population": 5, "margin": 1, "seconds": None}
_HALVING: dict[str, float | None] = {"reduction_factor": 3, "n_rungs": 3, **_COMMON}
# Every option and its default. None: see `options.members`, `options.pauses` and `resource.py`.
OPTIONS: dict[str, dict[str, float | None]] = {
    "asha": _HALVING,
    "hyperband": _HALVING,
    "median": {"n_rungs": 10, **_COMMON},
    "pbt": {"population_size": None, "interval": None, "quantile": 0.25, "resample": 0.25},
    "pb2": {"population_size": None, "interval": None, "quantile": 0.25, "resample": 0.25},
    "none": {},
}
FOR_SEVERAL = ("asha", "none")  # those that know several objectives
# Lowest and highest value, and whether it has to be a whole number.
_RANGES = {
    "reduction_factor": (1.1, math.inf, False),
    "n_rungs": (1, math.inf, True),
    "min_population": (1, math.inf, True),
    "margin": (0, math.inf, False),
    "seconds": (0.001, math.inf, False),
    "population_size": (2, math.inf, True),
    "interval": (1, math.inf, True),
    "quantile": (0.01, 0.5, False),
    "resample": (0, 1, False),
}


def check_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of the scheduler, defaults filled in.

    Raises:
        UserError: unknown name or option, or an option out of its range.
    """
    if name not in OPTIONS:
        raise unknown("scheduler", name, OPTIONS)
    values: dict[str, Any] = dict(OPTIONS[name])
    for option, value in options.items():
        if option not in values:
            if not values:
                raise UserError(f"scheduler {name!r} has no options; remove {option!r}")
            raise unknown(f"option of scheduler {name!r}", option, values)
        lowest, highest, whole = _RANGES[option]
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not lowest <= value <= highest
            or math.isinf(value)
            or (whole and value != int(value))
        ):
            kind = "a whole number" if whole else "a number"
            limits = f"of at least {lowest:g}"
            if not math.isinf(highest):
                limits = f"between {lowest:g} and {highest:g}"
            raise UserError(f"scheduler {name!r}: {option} must be {kind} {limits}; got {value!r}")
        values[option] = int(value) if whole else float(value)
    return values


def members(options: Mapping[str, Any], trials: int | None) -> int:
    """Return the size of the population, which is the number of trials.

    Raises:
        UserError: both are given, and differ.
    """
    size = options.get("population_size")
    if size is not None and trials is not None and size != trials:
        raise UserError(
            f"each member of a population is a trial: --trials {trials} and population_size "
            f"{size} can't both be; leave one out."
        )
    return int(size or trials or DEFAULT_POPULATION)


def pauses(spec: SearchSpec) -> list[int]:
    """Return the env_steps at which the population pauses.

    Without an interval at every evaluation; else at the first one at or after each multiple of it.

    Raises:
        UserError: there is none before the end.
    """
    interval = check_options(spec.scheduler, spec.scheduler_options)["interval"]
    points: list[int] = []
    due = interval or 0
    for point in spec.evaluate_at[:-1]:
        if point >= due:
            points.append(point)
            due = (point // interval + 1) * interval if interval else 0
    if not points:
        raise UserError(
            f"scheduler {spec.scheduler!r} would never change anything: trials are compared at "
            f"evaluations, and of {len(spec.evaluate_at)} there is none between "
            f"{interval or 1:,} and {spec.budget - 1:,} env_steps; lower interval or raise "
            "--evaluations."
        )
    return points
