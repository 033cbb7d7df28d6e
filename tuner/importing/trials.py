"""Trials of searches that others have run, and the space that is inferred from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rltune.agents.errors import UserError

COMPLETE, PRUNED, FAIL = "COMPLETE", "PRUNED", "FAIL"
WIDE = 50  # a positive range whose ends differ by this factor is taken for a logarithmic one


@dataclass(frozen=True)
class ForeignTrial:
    """A trial of somebody else's search.

    Attributes:
        config: its values by name
        state: "COMPLETE", "PRUNED" or "FAIL"
        values: of the metric, by what counts (env steps, iterations), ascending
        reason: why it ended, if not by itself
        started, finished: Unix seconds; None: unknown
    """

    config: dict[str, Any]
    state: str
    values: dict[int, float] = field(default_factory=dict)
    reason: str = ""
    started: float | None = None
    finished: float | None = None


@dataclass(frozen=True)
class ForeignSearch:
    """Somebody else's search.

    Attributes:
        name: of the experiment or study
        metric: that its values are of
        direction: "maximize" or "minimize"
        space: in rltune's language; what was not told is inferred from the trials
        trials: in their order
    """

    name: str
    metric: str
    direction: str
    space: dict[str, Any]
    trials: list[ForeignTrial]


def inferred_space(configs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a space that has these configurations: dimensions, and fixed values that never vary.

    Raises:
        UserError: nothing varies.
    """
    names = dict.fromkeys(name for config in configs for name in config)
    space: dict[str, Any] = {}
    fixed: dict[str, Any] = {}
    for name in names:
        values = [config[name] for config in configs if name in config]
        distinct = list({repr(value): value for value in values}.values())
        if len(distinct) == 1 and len(values) == len(configs):
            fixed[name] = distinct[0]
        elif len(distinct) > 1:
            space[name] = _dimension(distinct)
    if not space:
        raise UserError("all of its trials have one configuration: nothing was searched")
    return {"space": space, "fixed": fixed} if fixed else {"space": space}


def _dimension(values: list[Any]) -> dict[str, Any]:
    """Return a dimension that has these values, of which there are two at least."""
    is_number = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    if not is_number or not all(map(math.isfinite, values)):
        return {"choice": sorted(values, key=repr)}
    low, high = min(values), max(values)
    is_log = low > 0 and high / low >= WIDE
    if all(isinstance(value, int) for value in values):
        return {"int": [low, high], "log": True} if is_log else {"int": [low, high]}
    return {"log" if is_log else "uniform": [float(low), float(high)]}


def plain(value: Any) -> Any:
    """Return a value as plain Python; what is none is told by its text."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value)


def flat(config: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return nested values by names with an underscore between; a name becomes one of Python's."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        key = "".join(c if c.isalnum() else "_" for c in f"{before}{name}")
        key = f"_{key}" if key[:1].isdigit() else key
        if isinstance(value, Mapping):
            found |= flat(value, f"{key}_")
        else:
            found[key] = plain(value)
    return found
