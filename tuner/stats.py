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

FEW_RUNS = 5  # below so many runs the percentiles of a bootstrap mean little
SIGNIFICANCE = 0.05  # how often one of several comparisons may go wrong by chance
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
    return float(iqm_of_rows(np.asarray(scores, dtype=np.float64).reshape(1, -1))[0])


def bootstrap_interval(
    scores: npt.ArrayLike,
    statistic: Callable[[npt.ArrayLike], float] = iqm,
    confidence: float = 0.95,
    n: int = 10_000,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the (low, high) bootstrap interval of ``statistic`` over independent runs.

    Runs are drawn anew ``n`` times within each environment (stratified, as in rliable); a single
    run gives an infinite interval.

    The plain percentile interval, rliable's, is too narrow for few runs. From five runs on, its
    percentiles are moved outwards as far as a t interval with ``runs - 1`` in place of ``runs`` is
    wider than a normal one (Hesterberg, "What Teachers Should Know About the Bootstrap", 2015);
    with five runs that is the whole range of the scores, which nothing asymmetric or clipped can
    upset. With two to four runs even that falls short (75 % of three), so there the interval is
    the t interval with the bootstrap's standard error, wide as it should be.

    How often the nominal 95 % interval held the true IQM, in 4,000 simulated experiments each (in
    brackets the plain percentile interval, 600 experiments; tests/tuner/test_stats.py repeats it):

    =====================================  =====  ===========  ===========  ===========
    scores                                 3 runs 5 runs       10 runs      20 runs
    =====================================  =====  ===========  ===========  ===========
    normal                                 0.95   0.94 (0.89)  0.97 (0.96)  0.96 (0.95)
    skewed: 500 - lognormal                0.93   0.94 (0.89)  0.97 (0.92)  0.96 (0.95)
    normal, clipped at 500 (37 % there)    0.88   0.94 (0.90)  0.96 (0.92)  0.96 (0.94)
    25 % bad seeds                         0.95   0.94 (0.87)  0.97 (0.94)  0.96 (0.94)
    40 % bad seeds                         0.75   0.92 (0.88)  0.97 (0.91)  0.96 (0.94)
    70 % exactly at 500, the rest below    0.64   0.83 (0.81)  0.96 (0.93)  0.94 (0.93)
    =====================================  =====  ===========  ===========  ===========

    The last row is beyond any method: with 17 % all five runs are at 500 and show nothing else.

    Args:
        scores: shape (runs,) or (runs, environments)
        statistic: called with a flat array
        confidence: nominal coverage
        n: number of bootstrap samples
        seed: of the bootstrap; the same scores give the same interval
    """
    values = np.asarray(scores, dtype=np.float64)
    runs = len(values)
    if runs < 2:
        return -math.inf, math.inf
    columns = values.reshape(runs, -1)
    environments = columns.shape[1]
    picks = np.random.default_rng(seed).integers(runs, size=(n, runs, environments))
    drawn = columns[picks, np.arange(environments)].reshape(n, -1)
    if statistic is iqm:
        estimates = iqm_of_rows(drawn)
    else:
        estimates = np.array([statistic(row) for row in drawn])

    return interval_of(statistic(values), estimates, runs, confidence)


def interval_of(
    value: float, estimates: Scores, runs: int, confidence: float = 0.95
) -> tuple[float, float]:
    """Return the interval of ``value`` that its bootstrap ``estimates`` give, for so few runs.

    `bootstrap_interval` says how, and how well it covers; shape (samples,).
    """
    if runs < 2:
        return -math.inf, math.inf
    from scipy.stats import t  # late: it takes half a second to import

    reach = math.sqrt(runs / (runs - 1)) * float(t.ppf(0.5 + confidence / 2, runs - 1))
    if runs < FEW_RUNS:
        if not np.isfinite(estimates).all():
            return -math.inf, math.inf
        half = reach * float(estimates.std())
        return value - half, value + half
    tail = NormalDist().cdf(-reach)
    low = np.quantile(estimates, tail, method="lower")
    high = np.quantile(estimates, 1 - tail, method="higher")
    return float(low), float(high)


def probability_of_improvement(
    a: npt.ArrayLike, b: npt.ArrayLike, confidence: float = 0.95
) -> Estimate:
    """Return the probability that a run of ``a`` scores above a run of ``b``, ties counting half.

    The value is rliable's, the Mann-Whitney statistic. The interval is not bootstrapped: five runs
    that all beat five others would get 100 to 100 %. It is the score interval of Newcombe
    ("Confidence intervals for an effect size measure based on the Mann-Whitney statistic, part 2",
    method 5, Statistics in Medicine 2006), here 65 to 100 %; it covered 0.92 to 0.96 in simulations
    with five runs each. Shapes (runs_a,) and (runs_b,).
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    above = (first[:, None] > second[None, :]).mean()
    value = float(above + 0.5 * (first[:, None] == second[None, :]).mean())
    chance = np.linspace(0.0, 1.0, 2001)
    pairs, extra = len(first) * len(second), (len(first) + len(second)) / 2 - 1
    spread = 1 + extra * ((1 - chance) / (2 - chance) + chance / (1 + chance))
    deviation = np.sqrt(chance * (1 - chance) * spread / pairs)
    reach = NormalDist().inv_cdf(0.5 + confidence / 2)
    plausible = chance[np.abs(chance - value) <= reach * deviation + 1e-9]
    low, high = (plausible[0], plausible[-1]) if len(plausible) else (value, value)
    return Estimate(value, float(min(low, value)), float(max(high, value)))


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


def significance(comparisons: int) -> float:
    """Return the p-value below which one of so many comparisons counts (Bonferroni)."""
    return SIGNIFICANCE / max(1, comparisons)


def smallest_p_value(runs_a: int, runs_b: int) -> float:
    """Return the p-value of `p_value_better` when every run of ``a`` beats every run of ``b``."""
    return 1 / math.comb(runs_a + runs_b, runs_a)


def far_below(values: npt.ArrayLike) -> float | None:
    """Return what a few values lie far below of; None where none does.

    Tukey's fence for what is far out, three interquartile ranges below the lower quartile, but
    never above the 5 % quantile: where a tenth fails, that is no exception.
    """
    array = np.asarray(values, dtype=np.float64)
    if not len(array):
        return None
    rare, low, high = np.quantile(array, [0.05, 0.25, 0.75])
    fence = min(low - 3 * (high - low), rare)
    return float(fence) if (array < fence).any() and high > low else None


def iqm_of_rows(rows: Scores) -> Scores:
    """Return the interquartile mean of each row; shape (rows, scores) -> (rows,)."""
    count = rows.shape[1]
    cut = int(0.25 * count)
    if cut:
        rows = np.sort(rows, axis=1)[:, cut : count - cut]
    return np.asarray(rows.mean(axis=1), dtype=np.float64)
