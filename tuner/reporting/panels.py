"""Panels that several figures have in common: curves, bands, ends of axes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from rltune.analysis.summary import Summary
from rltune.common.formats import count, plural, score
from rltune.reporting.charts import BLUE, GREY, Panel, Series
from rltune.stats.estimates import (
    FEW_RUNS,
    Estimate,
    alike,
    bootstrap_interval,
    far_below,
    iqm,
)

Array = npt.NDArray[np.float64]
MOST_POINTS = 60  # of a curve: each has a bootstrap of its own
BELOW = 0.18  # of a line lie the single scores


def learning_curve(
    curves: Sequence[tuple[npt.ArrayLike, npt.ArrayLike]], label: str, colour: str
) -> Series | None:
    """Return the interquartile mean of the seeds' curves, from five seeds on with its 95 % band.

    Args:
        curves: (x, y) of each seed; read where all of them have a value, between their points
            along straight lines
    """
    x, values = _together(curves)
    if not len(x):
        return None
    band = None
    if values.shape[1] >= FEW_RUNS:
        band = [(row[0], row[0]) if alike(row) else bootstrap_interval(row) for row in values]
    return Series(
        "line", x.tolist(), [iqm(row) for row in values], label, colour,
        low=None if band is None else [low for low, _ in band],
        high=None if band is None else [high for _, high in band],
    )  # fmt: skip


def bands_say(seeds: Iterable[int]) -> str:
    """Return a sentence on the bands of curves with so many seeds each, or on their absence."""
    enough = {n >= FEW_RUNS for n in seeds}
    if enough == {True}:
        return ", with 95 % bootstrap bands."
    if True in enough:
        return f", with 95 % bootstrap bands where there are {FEW_RUNS} seeds or more."
    return f". Bands are drawn from {FEW_RUNS} seeds on: fewer say little."


def estimates_panel(
    title: str, rows: Sequence[tuple[str, Mapping[str, float], Estimate]], name: str, dot: str = ""
) -> Panel:
    """Return lying intervals with their estimates, and the single scores, the first row on top.

    Args:
        title: of the axis of the scores
        rows: label, single scores by their text on the page, and the estimate; an
            interval without ends is not drawn
        name: of the estimate
        dot: the name of a single score
    """
    places = list(range(len(rows), 0, -1))
    ends: list[Any] = []
    heights: list[Any] = []
    singles: list[tuple[float, float, str]] = []
    for place, (_, scores, found) in zip(places, rows, strict=True):
        if math.isfinite(found.low) and math.isfinite(found.high):
            ends += [found.low, found.high, None]
            heights += [place, place, None]
        singles += [(v, place - BELOW, text) for text, v in scores.items() if math.isfinite(v)]
    series = []
    if ends:
        series.append(Series("line", ends, heights, f"95 % interval of the {name}", BLUE))
    if singles:
        x, y, texts = zip(*singles, strict=True)
        series.append(Series("points", x, y, dot, GREY, texts=texts, faint=True))
    known = [(p, row) for p, row in zip(places, rows, strict=True) if math.isfinite(row[2].value)]
    series.append(
        Series("points", [row[2].value for _, row in known], [place for place, _ in known], name,
               BLUE, texts=[f"{row[0]}: {score(row[2].value)}" for _, row in known])
    )  # fmt: skip
    names = {place: row[0] for place, row in sorted(zip(places, rows, strict=True))}
    return Panel(title, "", series, y_ticks=names)


def valued(summary: Summary) -> pd.DataFrame:
    """Return the ended trials that have a value."""
    trials = summary.trials
    trials = trials[trials["state"].isin(["COMPLETE", "PRUNED"])]
    return trials[np.isfinite(trials["objective"].astype(float))]


def points_of(
    trials: pd.DataFrame, x: Iterable[Any], label: str, colour: str, **more: Any
) -> Series:
    """Return the values of trials at ``x``; ``more`` goes to `Series`."""
    texts = [
        f"trial {row['trial']}: {score(row['objective'])}, {row['state'].lower()} after "
        f"{count(row['budget_reached'] or 0)} env steps"
        for row in trials.to_dict("records")
    ]
    values = trials["objective"].tolist()
    return Series("points", list(x), values, label, colour, texts=texts, **more)


def lower_edge(values: pd.Series[Any], what: str = "trial") -> tuple[float | None, str]:
    """Return the lower end of an axis that a few values would flatten, and a sentence on it."""
    edge = far_below(values)
    if edge is None:
        return None, ""
    below = values[values < edge]
    lie = "lies" if len(below) == 1 else "lie"
    far = f"at {score(below.min())}" if len(below) == 1 else f"down to {score(below.min())}"
    return edge, f" {plural(len(below), what)} {lie} far below the picture, {far}."


def objective_name(summary: Summary) -> str:
    """Return the objective in words."""
    metric = str(summary.spec.get("metric", "eval_return"))
    return "return" if metric == "eval_return" else metric


def _together(curves: Sequence[tuple[npt.ArrayLike, npt.ArrayLike]]) -> tuple[Array, Array]:
    """Return points that all curves span, and their values there; shape (points, curves)."""
    known = []
    for x, y in curves:
        places, values = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
        order = np.argsort(places, kind="stable")
        known.append((places[order], values[order]))
    if not known or not all(len(x) for x, _ in known):
        return np.empty(0), np.empty((0, 0))
    points = np.unique(np.concatenate([x for x, _ in known]))
    first, last = max(x[0] for x, _ in known), min(x[-1] for x, _ in known)
    points = points[(points >= first) & (points <= last)]
    if len(points) > MOST_POINTS:
        points = np.linspace(first, last, MOST_POINTS)
    return points, np.column_stack([np.interp(points, x, y) for x, y in known])
