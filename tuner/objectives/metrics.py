"""Objectives of one training: one number from its greedy evaluations so far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rltune.agents.errors import MissingMetricError, UserError, unknown

KINDS = ("last", "best", "area")
METRIC = "eval_return"
DEFAULT = "last:3"  # one lucky evaluation shall not decide


def objective_of(evaluations: Sequence[float], objective: str) -> float:
    """Return the objective after these evaluations.

    Args:
        evaluations: their mean returns in order, at least one
        objective: "last", "best", "area", or with a number of evaluations to average as "last:3"
    """
    kind, n = parse_objective(objective)
    if kind == "best":
        return _best(evaluations, n)
    return _mean(evaluations if kind == "area" else evaluations[-n:])


def metric_of(row: Mapping[str, Any], metric: str) -> float:
    """Return the value of the metric in a row of the history, the higher the better.

    Args:
        row: one with an evaluation
        metric: a column's name; with a minus in front, the lower the better

    Raises:
        MissingMetricError: the agent does not report it.
    """
    value = row.get(metric.removeprefix("-"))
    if value is None or (isinstance(value, float) and math.isnan(value)):
        known = ", ".join(sorted(name for name, other in row.items() if isinstance(other, float)))
        raise MissingMetricError(
            f"no metric {metric.removeprefix('-')!r} was reported; there are {known}"
        )
    return -float(value) if metric.startswith("-") else float(value)


def _best(values: Sequence[float], n: int) -> float:
    ends = range(min(n, len(values)), len(values) + 1)
    return max(_mean(values[max(0, end - n) : end]) for end in ends)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def describe(objective: str) -> str:
    """Return the objective in words."""
    kind, n = parse_objective(objective)
    if kind == "area":
        return "the mean of all evaluations so far, the area under the curve"
    if n == 1:
        return f"the {kind} evaluation"
    number = {2: "two", 3: "three"}.get(n, n)
    if kind == "last":
        return f"the mean of the last {number} evaluations"
    return f"the best mean of {number} evaluations in a row"


def parse_objective(objective: str) -> tuple[str, int]:
    """Return the kind and the number of evaluations that are averaged.

    Raises:
        UserError: there is no such objective.
    """
    kind, colon, text = str(objective).partition(":")
    if kind not in KINDS:
        raise unknown("objective", kind, KINDS, "--objective")
    if not colon:
        return kind, 1
    if kind == "area" or not text.isdecimal() or int(text) < 1:
        raise UserError(
            f"--objective {objective!r}: write last, best or area, or last:N or best:N with a "
            "whole number of evaluations to average."
        )
    return kind, int(text)
