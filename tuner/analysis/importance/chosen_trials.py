"""Importances of trials that a sampler chose or a scheduler stopped, by a surrogate model.

Shuffled values of a parameter tell nothing here. A sampler comes to draw every parameter from a
narrow range while the values rise, the parameters without influence too: so they are correlated.
And a trial that was trained longer had been better before. But a model of the values, given the
places of the trials, does not depend on why the trials are there (`response.py`). Its importance of
a parameter is compared with that for values in which the parameter has no influence: they are drawn
from the model without it, at the same trials.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from rltune.analysis.importance.design import Factors
from rltune.analysis.importance.fanova import Array, DesignColumn
from rltune.analysis.importance.response import NEVER, Process, Response, Scales, Values, normal
from rltune.analysis.importance.rows import (
    MIN_ACTIVE,
    Importance,
    percentile_interval,
    share,
    unknown,
)

METHODS = ("fanova", "permutation", "ped-anova")
N_PLACES = 10  # of a continuous column, where the model is asked
N_OTHERS = 32  # settings of the other columns, for each place
N_SPACE = 96  # points from everywhere, for the variance over the space
N_NULL = 200  # sets of values in which a column has no influence
N_DRAWS = 100  # functions that the model takes for possible, for the intervals
LEVEL = 0.985  # of the null sets' importances are below the floor
BEST = 0.1  # of the space is what PED-ANOVA calls the best
NEGLIGIBLE = 1e-3  # probability of a model that is left out
LENGTHS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of a column's influence that are tried
HOW = (
    "The sampler chose the trials or the scheduler cut them, so a model judges. What is above the "
    "noise can be believed; the shares are rough, rather too small, and their intervals too "
    "narrow: they held the true share of what matters in six of ten simulated searches. Pairs "
    "and the seed's share are not known. --sampler random --scheduler none gives more."
)


@dataclass(frozen=True)
class ModelImportance:
    """A column's importances by the model, with their noise floors.

    They are the variance that the column makes alone, the variance that it has a part in, and the
    distance of the best tenth of the space from all of it.

    Attributes:
        values: shape (3,), in the order of `METHODS`
        floors: the values of a column without influence, shape (3,)
        draws: samples of the values, shape (draws, 3)
    """

    values: Array
    floors: Array
    draws: Array


class ModelPoints:
    """Points of the space to ask the model at.

    They are the same settings of the other columns at each place of a column, and some points from
    everywhere.

    Args:
        columns: of the space
        i: the column
        rng: of the settings
    """

    def __init__(self, columns: Sequence[DesignColumn], i: int, rng: np.random.Generator) -> None:
        edges = columns[i].edges
        if columns[i].kind == "continuous":
            edges = np.linspace(0, 1, N_PLACES + 1)
        places, self._widths = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
        others = rng.random((N_OTHERS, len(columns)))
        self._active = 1.0  # part of the space that has the column
        for k, cells in columns[i].when.items():  # such that the column is active
            parent, wide = columns[k].edges, np.where(cells, np.diff(columns[k].edges), 0.0)
            chosen = rng.choice(len(wide), N_OTHERS, p=wide / wide.sum())
            others[:, k] = (parent[chosen] + parent[chosen + 1]) / 2
            self._active *= wide.sum()
        x = np.repeat(others, len(places), axis=0)
        x[:, i] = np.tile(places, N_OTHERS)
        self.x = placed(columns, np.vstack([x, rng.random((N_SPACE, len(columns)))]))

    def importances(self, f: Array, more: Array) -> tuple[Array, Array]:
        """Return the importances of functions by `METHODS`, (functions, 3), and all variance.

        Args:
            f: of the functions at the points, shape (points, functions)
            more: variance that they have beside, shape (functions,)
        """
        values = f[:-N_SPACE].reshape(N_OTHERS, len(self._widths), -1)
        weights = self._widths[:, None]
        alone = values.mean(0)
        first = (weights * (alone - (weights * alone).sum(0)) ** 2).sum(0)
        part = (weights * (values - (weights * values).sum(1, keepdims=True)) ** 2).sum(1).mean(0)
        # How much of each place is among the best.
        flat = values.reshape(-1, values.shape[-1])
        each = np.tile(self._widths / N_OTHERS, N_OTHERS)
        order = np.argsort(-flat, axis=0)
        before = np.cumsum(each[order], axis=0)
        taken = np.clip(1 - (before - BEST) / each[order], 0, 1) * each[order]
        best = np.zeros_like(flat)
        np.put_along_axis(best, order, taken, axis=0)
        there = best.reshape(values.shape).sum(0) / BEST
        divergence = ((there - weights) ** 2 / weights).sum(0)
        divergence[np.ptp(flat, axis=0) < 1e-9] = 0.0  # nothing is better than the rest
        found = np.column_stack([self._active * first, self._active * part, divergence])
        return found, f[-N_SPACE:].var(0) + more


def placed(columns: Sequence[DesignColumn], x: Array) -> Array:
    """Return points with levels at their middles, and inactive values at 0.5."""
    found = x.copy()
    for i, column in enumerate(columns):
        if column.kind != "continuous":
            cells = column.cells(x[:, i])
            found[:, i] = ((column.edges[1:] + column.edges[:-1]) / 2)[cells]
        for k, cells_on in column.when.items():
            found[~cells_on[columns[k].cells(x[:, k])], i] = 0.5
    return found


class ChosenTrials:
    """The importances of all columns by a model of the trials.

    Args:
        factors: of the search
        values: of the trials
        seed: of everything random in it
    """

    def __init__(self, factors: Factors, values: Values, seed: int) -> None:
        self._values, self._seed = values, seed
        self._columns = factors.design.columns
        self._trials = factors.design.active[np.unique(values.trial)].sum(axis=0)
        self._response = Response(self._columns, values)
        self.notes = [HOW]

    def rows(self, method: str) -> list[Importance]:
        """Return the rows of a method, the most important parameter first."""
        place = METHODS.index(method)
        whole = 1.0
        if method == "ped-anova":  # its divergences are shares of their sum
            whole = max(
                sum(float(judged.values[place]) for judged in self._importances.values()), 1e-12
            )
        rows = []
        for i, column in enumerate(self._columns):
            trials = int(self._trials[i])
            judged = self._importances.get(i)
            if judged is None:
                rows.append(unknown(method, column.name, trials))
                continue
            value, floor = judged.values[place], judged.floors[place]
            low, high = percentile_interval(judged.draws[:, place] / max(whole, 1e-12))
            value, floor = share(value / max(whole, 1e-12)), share(floor / max(whole, 1e-12))
            low, high = min(low, value), max(high, value)
            noise = value <= floor
            rows.append(
                Importance(method, column.name, "parameter", value, low, high, floor, noise, trials)
            )
        return sorted(rows, key=lambda row: -np.nan_to_num(row.importance, nan=-1.0))

    @cached_property
    def _importances(self) -> dict[int, ModelImportance]:
        return {i: self.importance(i) for i, n in enumerate(self._trials) if n >= MIN_ACTIVE}

    @cached_property
    def _all(self) -> Scales:
        return self._response.fit()

    def importance(self, i: int) -> ModelImportance:
        """Return a column's importances; shares of all variance, but for PED-ANOVA's."""
        rng = np.random.default_rng([self._seed, i])
        grid = ModelPoints(self._columns, i, np.random.default_rng([self._seed, i, 1]))
        without = self._response.fit(self._all, without=i)
        both = without, self._all
        silent = [Process(self._response, scales.with_length(i, NEVER)) for scales in both]
        loud = [
            Process(self._response, scales.with_length(i, length))
            for length in LENGTHS
            for scales in both
        ]
        y = self._values.y[:, None]
        sets = np.hstack([y, silent[0].imagine(y[:, 0], N_NULL, rng)])
        logs = np.vstack(
            [
                process.likelihood(sets) - np.log(len(kind))
                for kind in (silent, loud)
                for process in kind
            ]
        )
        weights = np.exp(logs - logs.max(0))
        weights /= weights.sum(0)
        points = np.column_stack([grid.x, np.ones(len(grid.x))])  # at the whole budget
        distances = self._response.between(points, self._response.x)
        own = self._response.between(points, points)
        found = np.zeros((sets.shape[1], 3))
        drawn = [np.zeros((0, 3))]
        counts = rng.multinomial(N_DRAWS, weights[:, 0])
        for process, weight, count in zip(loud, weights[2:], counts[2:], strict=True):
            if weight.max() < NEGLIGIBLE:
                continue
            cross = process.with_values(distances)
            mean, scale = cross @ (process.p @ sets), process.variance(sets)
            rest = process.scales.luck + process.scales.noise
            found += weight[:, None] * _shares(*grid.importances(mean, scale * rest))
            if count:
                values = mean[:, :1] + np.sqrt(scale[0]) * normal(
                    process.among(own) - cross @ process.p @ cross.T, count, rng
                )
                drawn.append(_shares(*grid.importances(values, np.full(count, scale[0] * rest))))
        drawn.append(np.zeros((counts[:2].sum(), 3)))
        floors = np.quantile(found[1:], LEVEL, axis=0)
        return ModelImportance(found[0], floors, np.vstack(drawn))


def _shares(importances: Array, total: Array) -> Array:
    importances[:, :2] /= total[:, None]
    return importances
