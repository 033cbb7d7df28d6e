"""Statistics for a handful of training runs: point estimates that come with honest intervals.

Definitions follow rliable (Agarwal et al., "Deep RL at the Edge of the Statistical Precipice",
NeurIPS 2021). A score of ``-inf`` stands for a training that diverged; it is the worst score.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.float64]

EXACT_PERMUTATIONS = 20_000  # up to here every permutation is looked at, beyond it that many draws


class Estimate(NamedTuple):
    """A value with its interval; all three in the unit of the scores."""

    value: float
    low: float
    high: float


def iqm(scores: npt.ArrayLike) -> float:
    """Return the interquartile mean: the mean without the lowest and the highest quarter.

    As in rliable, all runs and environments count together and ``int(0.25 * count)`` scores are
    left out at each end: of five runs one at each end, of three or fewer none.
    """
    return float(_iqm_of_rows(np.asarray(scores, dtype=np.float64).reshape(1, -1))[0])


def bootstrap_interval(
    scores: npt.ArrayLike,
    statistic: Callable[[npt.ArrayLike], float] = iqm,
    confidence: float = 0.95,
    n: int = 10_000,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the (low, high) bootstrap interval of ``statistic`` over independent runs.

    ``scores`` has the shape (runs,) or (runs, environments); runs are drawn anew within each
    environment (stratified, as in rliable).
    """
    values = np.asarray(scores, dtype=np.float64)
    if len(values) < 2:
        return -math.inf, math.inf
    columns = values.reshape(len(values), -1)
    rng = np.random.default_rng(seed)
    runs, environments = columns.shape
    picks = rng.integers(runs, size=(n, runs, environments))
    drawn = columns[picks, np.arange(environments)].reshape(n, -1)
    if statistic is iqm:
        estimates = _iqm_of_rows(drawn)
    else:
        estimates = np.array([statistic(row) for row in drawn])
    tail = expanded_tail(confidence, runs)
    low = np.quantile(estimates, tail, method="lower")
    high = np.quantile(estimates, 1 - tail, method="higher")
    return float(low), float(high)


def expanded_tail(confidence: float, runs: int) -> float:
    """Return the tail probability that makes a percentile interval as wide as a t interval.

    The percentile bootstrap is too narrow for few runs: it divides by ``runs`` where ``runs - 1``
    is due, and uses normal instead of t quantiles. Hesterberg ("What Teachers Should Know About
    the Bootstrap", 2015) moves the percentiles outwards by both factors.
    """
    from scipy.stats import t  # late: it takes half a second to import

    quantile = float(t.ppf(0.5 + confidence / 2, runs - 1))
    return NormalDist().cdf(-math.sqrt(runs / (runs - 1)) * quantile)


def probability_of_improvement(
    a: npt.ArrayLike, b: npt.ArrayLike, confidence: float = 0.95, n: int = 10_000, seed: int = 0
) -> Estimate:
    """Return the probability that a run of ``a`` scores above a run of ``b``, ties counting half.

    This is the Mann-Whitney statistic, rliable's definition; shapes (runs_a,) and (runs_b,).
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    value = float(_wins(first[None], second[None])[0])
    runs = min(len(first), len(second))
    if runs < 2:
        return Estimate(value, 0.0, 1.0)
    rng = np.random.default_rng(seed)
    drawn_a = first[rng.integers(len(first), size=(n, len(first)))]
    drawn_b = second[rng.integers(len(second), size=(n, len(second)))]
    wins = _wins(drawn_a, drawn_b)
    tail = expanded_tail(confidence, runs)
    return Estimate(value, float(np.quantile(wins, tail)), float(np.quantile(wins, 1 - tail)))


def paired_difference(
    a: npt.ArrayLike, b: npt.ArrayLike, confidence: float = 0.95, seed: int = 0
) -> Estimate:
    """Return the interquartile mean of ``a - b`` over shared seeds; both of shape (runs,)."""
    difference = np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64)
    return Estimate(
        iqm(difference), *bootstrap_interval(difference, confidence=confidence, seed=seed)
    )


def p_value_better(a: npt.ArrayLike, b: npt.ArrayLike, seed: int = 0) -> float:
    """Return how often runs that do not differ would win as clearly as ``a`` wins against ``b``.

    The one-sided permutation test of the Mann-Whitney statistic; exact for up to eight runs each,
    ties included. Shapes (runs_a,) and (runs_b,). Small means that ``a`` is better.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    pool = np.concatenate([first, second])
    below = (pool[:, None] > pool[None, :]) + 0.5 * (pool[:, None] == pool[None, :])
    ranks = below.sum(axis=1)  # the sum of a group's ranks orders like its number of wins
    total, size = len(pool), len(first)
    exact = math.comb(total, size) <= EXACT_PERMUTATIONS
    groups: Sequence[Sequence[int]] | npt.NDArray[np.intp]
    if exact:
        groups = list(itertools.combinations(range(total), size))
    else:
        draws = np.random.default_rng(seed).random((EXACT_PERMUTATIONS, total))
        groups = draws.argsort(axis=1)[:, :size]
    sums = ranks[np.asarray(groups)].sum(axis=1)
    reached = int((sums >= ranks[:size].sum() - 1e-9).sum())
    return reached / len(sums) if exact else (reached + 1) / (len(sums) + 1)


def _iqm_of_rows(rows: Scores) -> Scores:
    """Return the interquartile mean of each row; shape (rows, scores) -> (rows,)."""
    count = rows.shape[1]
    cut = int(0.25 * count)
    if cut:
        rows = np.sort(rows, axis=1)[:, cut : count - cut]
    return np.asarray(rows.mean(axis=1), dtype=np.float64)


def _wins(a: Scores, b: Scores) -> Scores:
    """Return the fraction of pairs that ``a`` wins; shapes (n, runs_a), (n, runs_b) -> (n,)."""
    above = (a[:, :, None] > b[:, None, :]).mean(axis=(1, 2))
    equal = (a[:, :, None] == b[:, None, :]).mean(axis=(1, 2))
    return np.asarray(above + 0.5 * equal, dtype=np.float64)
