"""Functional ANOVA: the variance of the trials' values, split among the columns of a design.

Functional ANOVA on a random forest (Hutter et al., "An Efficient Approach for Assessing
Hyperparameter Importance", ICML 2014). A forest pulls every effect towards zero, the weaker ones
the more. Here that is mended: what the forest has not explained out of bag is projected on the same
waves as its exact marginals and added, and the variance that chance alone gives to the squares is
taken off. For independently drawn trials the sum is unbiased, up to what the waves can't follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import sklearn
from numpy.typing import NDArray
from scipy.stats import qmc
from sklearn.tree import DecisionTreeRegressor

Array = NDArray[np.float64]

N_TREES = 32
MIN_LEAF = 3  # trials
N_WAVES = 8  # per column: up to four full periods over the range
N_PAIR_WAVES = 3  # per column of a pair
N_CELLS = 64  # of a continuous column
N_BINS = 8  # in which the trials of a column are counted
TRIALS_PER_WAVE = 12  # fewer trials have fewer waves
MIN_WAVES = 4
N_PERMUTATIONS = 4  # of a column in one forest, for the permutation importance
N_REFERENCE = 2048  # points of the space that the model's variance is taken from


@dataclass(frozen=True)
class DesignColumn:
    """One factor of the design on 0..1, where every stretch is as probable as it is long.

    Attributes:
        name: of the hyperparameter
        edges: of its cells, ascending from 0 to 1, shape (cells + 1,)
        kind: "continuous", "levels" (a cell for each value, in order) or "choice"
        when: by the number of another column, which of its cells make this one active; empty: it
            always is
    """

    name: str
    edges: Array
    kind: str = "continuous"
    when: Mapping[int, NDArray[np.bool_]] = field(default_factory=dict)

    @cached_property
    def waves(self) -> Array:
        """Functions of mean 0, variance 1 and no covariance, shape (cells, waves).

        Cosines of growing frequency, made orthogonal on cells of unequal length.
        """
        widths, centres = np.diff(self.edges), (self.edges[1:] + self.edges[:-1]) / 2
        count = min(N_WAVES, len(widths) - 1)
        cosines = np.cos(np.pi * np.outer(centres, np.arange(count + 1)))
        orthonormal, _ = np.linalg.qr(cosines * np.sqrt(widths)[:, None])
        return np.asarray(orthonormal[:, 1:] / np.sqrt(widths)[:, None], dtype=np.float64)

    def cells(self, x: Array) -> NDArray[np.intp]:
        """Return the cell of each value, of the shape of ``x``."""
        return np.clip(np.searchsorted(self.edges, x, side="right") - 1, 0, len(self.edges) - 2)

    def between(self, low: Array, high: Array, functions: Array) -> Array:
        """Integrate functions of the cells from ``low`` to ``high``.

        Args:
            low, high: shape (leaves,)
            functions: shape (cells, functions)

        Returns:
            shape (leaves, functions)
        """
        widths = np.diff(self.edges)
        sums = np.vstack([np.zeros(functions.shape[1]), np.cumsum(functions * widths[:, None], 0)])

        def below(x: Array) -> Array:
            cell = self.cells(x)
            part = (x - self.edges[cell]) / widths[cell]
            return np.asarray(sums[cell] + part[..., None] * (sums[cell + 1] - sums[cell]))

        return below(high) - below(low)


@dataclass(frozen=True)
class Design:
    """Trials as a model sees them.

    Attributes:
        columns: shape (d,)
        x: 0..1, shape (n, d); an inactive value is drawn at random, for it has no influence
        y: shape (n,)
        active: shape (n, d)
    """

    columns: Sequence[DesignColumn]
    x: Array
    y: Array
    active: NDArray[np.bool_]

    def shuffled(self, block: Sequence[int], rng: np.random.Generator) -> Design:
        """Return it with the values of these columns shuffled among the trials that have them."""
        x = self.x.copy()
        for i in block:
            rows = np.flatnonzero(self.active[:, i])
            x[rows, i] = x[rng.permutation(rows), i]
        return Design(self.columns, x, self.y, self.active)

    def waves(self, i: int, most: int) -> Array:
        """Return the first waves of a column at all trials, shape (n, waves)."""
        column = self.columns[i]
        return np.asarray(column.waves[column.cells(self.x[:, i]), :most])

    def rarity(self, i: int, rows: NDArray[np.intp]) -> Array:
        """Return weights under which a column's values are uniform, shape (rows,).

        A sampler that learns draws from the same part of a range again and again.
        """
        column = self.columns[i]
        centres = (column.edges[1:] + column.edges[:-1]) / 2
        few = len(centres) <= N_BINS
        bins = np.arange(len(centres)) if few else (centres * N_BINS).astype(np.intp)
        expected = np.bincount(bins, np.diff(column.edges))
        own = bins[column.cells(self.x[rows, i])]
        counts = np.bincount(own, minlength=len(expected))
        smoothed = (counts + len(expected) * expected) / (len(rows) + len(expected))
        return np.asarray((expected / smoothed)[own])


class Forest:
    """A random forest on a design, its out-of-bag predictions, and its leaves as boxes.

    The trees are scikit-learn's, their trials are drawn here: a hundred small forests are grown,
    and scikit-learn's own takes longer to copy a tree's settings than to grow the tree.
    """

    def __init__(self, design: Design, seed: int) -> None:
        self.design = design
        self._x = np.ascontiguousarray(design.x, dtype=np.float32)
        self._rng = np.random.default_rng(seed)
        count = len(design.y)
        drawn = self._rng.integers(count, size=(N_TREES, count))
        seeds = np.random.RandomState(seed)
        with sklearn.config_context(skip_parameter_validation=True):
            self._trees = [
                DecisionTreeRegressor(
                    min_samples_leaf=MIN_LEAF, max_features=0.5, random_state=seeds
                )
                .fit(self._x[rows], design.y[rows, None], check_input=False)
                .tree_
                for rows in drawn
            ]
        self._out = np.ones((N_TREES, count))
        np.put_along_axis(self._out, drawn, 0.0, axis=1)
        self._count = np.maximum(self._out.sum(axis=0), 1)
        self.predicted = self._out_of_bag(self._x)[0]
        self.residuals = design.y - self.predicted

    def _out_of_bag(self, x: NDArray[np.float32]) -> Array:
        """Return the trees' out-of-bag predictions.

        Args:
            x: the trials, perhaps several times with other values, shape (times * n, d)

        Returns:
            shape (times, n)
        """
        said = np.array([tree.predict(x)[:, 0] for tree in self._trees])
        said = said.reshape(len(said), -1, len(self._count)) * self._out[:, None]
        return np.asarray(said.sum(0) / self._count)

    def losses(self, i: int) -> Array:
        """Return the growth of each trial's squared error when a column is shuffled, shape (n,).

        Out of bag, as in Breiman, "Random Forests" (Machine Learning 2001).
        """
        design = self.design
        others = [design.shuffled([i], self._rng).x for _ in range(N_PERMUTATIONS)]
        predicted = self._out_of_bag(np.vstack(others).astype(np.float32))
        return np.asarray(((design.y - predicted) ** 2).mean(0) - self.residuals**2)

    @cached_property
    def _moments(self) -> tuple[float, float]:
        """The mean and the variance of the model over the space."""
        seeds = np.random.default_rng(0)
        space = qmc.Sobol(len(self.design.columns), rng=seeds)
        points = space.random(N_REFERENCE).astype(np.float32)
        said = np.mean([tree.predict(points)[:, 0] for tree in self._trees], axis=0)
        return float(said.mean()), float(said.var())

    @property
    def variance(self) -> float:
        """The variance of the model over the space."""
        return self._moments[1]

    def squares(self) -> Array:
        """Return squares whose mean over the trials is the variance over the space, shape (n,).

        The variance of the model over the space, and what the trials vary more than the model does
        at the same places.
        """
        mean, variance = self._moments
        return np.asarray(variance + (self.design.y - mean) ** 2 - (self.predicted - mean) ** 2)

    @cached_property
    def boxes(self) -> tuple[Array, Array, Array]:
        """The leaves: values divided by the number of trees (leaves,), low and high (leaves, d)."""
        trees, sizes = self._trees, [tree.node_count for tree in self._trees]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        left = np.concatenate([t.children_left + s for t, s in zip(trees, starts, strict=False)])
        right = np.concatenate([t.children_right + s for t, s in zip(trees, starts, strict=False)])
        feature = np.concatenate([tree.feature for tree in trees])
        threshold = np.concatenate([tree.threshold for tree in trees])
        low = np.zeros((starts[-1], len(self.design.columns)))
        high = np.ones_like(low)
        nodes = starts[:-1]
        while len(nodes := nodes[feature[nodes] >= 0]):
            for children in (left[nodes], right[nodes]):
                low[children], high[children] = low[nodes], high[nodes]
            high[left[nodes], feature[nodes]] = threshold[nodes]
            low[right[nodes], feature[nodes]] = threshold[nodes]
            nodes = np.concatenate([left[nodes], right[nodes]])
        leaves = feature < 0
        values = np.concatenate([tree.value[:, 0, 0] for tree in trees])[leaves]
        return values / len(trees), low[leaves], high[leaves]

    def marginal(self, columns: Sequence[int], most: int) -> Array:
        """Return the exact products of the forest with the waves of one column or of a pair.

        The other columns are averaged over the space, as far as ``columns`` are active there.

        Returns:
            shape (waves,), for a pair (waves * waves,)
        """
        values, low, high = self.boxes
        known = self.design.columns
        widths = high - low
        widths[:, list(columns)] = 1
        for i in columns:
            for k, cells in known[i].when.items():
                inside = cells[:, None].astype(np.float64)
                share = known[k].between(np.zeros(1), np.ones(1), inside)[0, 0]
                widths[:, k] = known[k].between(low[:, k], high[:, k], inside)[:, 0] / share
        weights = (values * widths.prod(axis=1))[:, None]
        first, *second = [
            known[i].between(low[:, i], high[:, i], known[i].waves[:, :most]) for i in columns
        ]
        if not second:
            return np.asarray((weights * first).sum(0))
        return np.asarray(((weights * first).T @ second[0]).ravel())


@dataclass(frozen=True)
class Effect:
    """The variance of the values that is due to a column, or to a pair beyond its columns.

    Attributes:
        variance: times the share of the trials in which the columns are active; without bias, and
            so negative at times
        chance: the variance that chance adds to the estimate and that was taken off
        products: of the model with each wave, shape (waves,)
        rest: of what the model leaves unexplained with each wave, shape (active trials, waves)
        rows: the active trials
        share: of the trials that are active
    """

    variance: float
    chance: float
    products: Array
    rest: Array
    rows: NDArray[np.intp]
    share: float

    def resampled(self, weights: Array) -> Array:
        """Return the variance in other samples of the trials, shape (samples,).

        Args:
            weights: counts of the trials in each sample, divided by n, shape (samples, n)
        """
        weights = weights[:, self.rows]
        share = np.maximum(weights.sum(axis=1, keepdims=True), 1e-12)
        mean, square = weights @ self.rest / share, weights @ self.rest**2 / share
        chance = (square - mean**2) / len(self.rows)
        variance = ((self.products + mean) ** 2 - chance).sum(axis=1) * share[:, 0]
        # The squares of this sample are too large already: without this, the interval were too.
        return np.asarray(variance - self.chance)


def effect(forest: Forest, *columns: int) -> Effect:
    """Return the effect of one column, or of a pair beyond the effects of the two."""
    design = forest.design
    rows = np.flatnonzero(design.active[:, list(columns)].all(axis=1))
    most = N_PAIR_WAVES
    if len(columns) == 1:
        most = min(N_WAVES, max(MIN_WAVES, len(rows) // TRIALS_PER_WAVE))
    waves, weights = np.ones((len(rows), 1)), np.ones(len(rows))
    for i in columns:
        own = design.waves(i, most)[rows]
        waves = (waves[:, :, None] * own[:, None, :]).reshape(len(rows), -1)
        weights = weights * design.rarity(i, rows)
    weights /= weights.mean()
    residuals = forest.residuals[rows]
    residuals = weights * (residuals - (weights * residuals).mean())
    products, rest = forest.marginal(columns, most), residuals[:, None] * waves
    mean, share = rest.mean(axis=0), len(rows) / len(design.y)
    chance = share * float((rest.var(axis=0) / (len(rows) - 1)).sum())
    squares = share * float(((products + mean) ** 2).sum())
    return Effect(squares - chance, chance, products, rest, rows, share)
