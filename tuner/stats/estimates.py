"""Estimates from a handful of training runs: points with intervals, and significance tests.

Definitions follow rliable (Agarwal et al., "Deep RL at the Edge of the Statistical Precipice",
NeurIPS 2021). A score of ``-inf`` stands for a training that diverged; it is the worst score.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.float64]

FEW_RUNS = 5  # below so many runs the percentiles of a bootstrap mean little
FEW_ALIKE_RUNS = 10  # below so many runs, scores that are all equal have no interval either
SIGNIFICANCE = 0.05  # how often one of several comparisons may go wrong by chance
POWER = 0.8  # how often `runs_to_prove` shall suffice
SUREST = 0.95  # a probability of improvement; that of a few runs is often 1 by luck
MOST_RUNS = 100
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

    Runs are drawn anew ``n`` times within each environment (stratified, as in rliable). Fewer than
    five runs are too few: the interval is infinite, and the scores themselves have to be shown.
    So are fewer than ten whose scores are all equal. The bootstrap sees no spread in them, but of
    five equal scores, up to 45 % of the seeds may differ unseen (0.05 ** (1 / 5)).

    The plain percentile interval, rliable's, is too narrow for few runs. Its percentiles are moved
    outwards as far as a t interval with ``runs - 1`` in place of ``runs`` is wider than a normal
    one (Hesterberg, "What Teachers Should Know About the Bootstrap", 2015). It never reaches beyond
    the scores: with five runs it is their whole range. So it holds no return that the environment
    can't give and no cost below zero. How often it holds the true interquartile mean, at 5, 10 and
    20 runs, `scripts/study_intervals.py` measures (docs/compare.md has the table).

    Args:
        scores: shape (runs,) or (runs, environments)
        statistic: called with a flat array
        confidence: nominal coverage
        n: number of bootstrap samples
        seed: of the bootstrap; the same scores give the same interval
    """
    values = np.asarray(scores, dtype=np.float64)
    runs = len(values)
    if runs < FEW_RUNS or (runs < FEW_ALIKE_RUNS and alike(values.ravel())):
        return -math.inf, math.inf
    columns = values.reshape(runs, -1)
    environments = columns.shape[1]
    picks = np.random.default_rng(seed).integers(runs, size=(n, runs, environments))
    drawn = columns[picks, np.arange(environments)].reshape(n, -1)
    if statistic is iqm:
        estimates = iqm_of_rows(drawn)
    else:
        estimates = np.array([statistic(row) for row in drawn])

    return interval_of(estimates, runs, confidence)


def alike(scores: npt.ArrayLike) -> bool:
    """Whether there are several scores, and they are all equal. Shape (runs,)."""
    values = np.asarray(scores, dtype=np.float64)
    return len(values) > 1 and bool((values == values[0]).all())


def interval_of(estimates: Scores, runs: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the interval that the bootstrap ``estimates`` of a value give, for so few runs.

    `bootstrap_interval` says how; shape (samples,). Infinite below five runs.
    """
    if runs < FEW_RUNS:
        return -math.inf, math.inf
    from scipy.stats import t  # late: it takes half a second to import

    tail = NormalDist().cdf(
        -math.sqrt(runs / (runs - 1)) * float(t.ppf(0.5 + confidence / 2, runs - 1))
    )
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


def difference(
    a: npt.ArrayLike, b: npt.ArrayLike, level: float = SIGNIFICANCE
) -> tuple[Estimate, bool]:
    """Return the difference of ``a`` to ``b``, and whether ``a`` is better beyond chance.

    The value is the difference of the two interquartile means. The interval holds what
    `p_value_better` does not reject at ``level``, on either side (so 5 % make a 90 % interval):
    what ``b`` may be shifted by without ``a`` being better than it, or worse, beyond chance. A
    shift ends at the highest and the lowest score there is, for environments have bounds. The claim
    is that zero lies below the interval: test and interval can't disagree. Its ends are differences
    of scores, so neither is impossible. They are infinite where no difference could be shown,
    however large, and where a training diverged.

    Args:
        a: scores, shape (runs_a,)
        b: scores, shape (runs_b,)
        level: of the test; `significance` of so many comparisons
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    claimed = p_value_better(first, second) <= level
    mean_a, mean_b = iqm(first), iqm(second)
    value = mean_a - mean_b if mean_a != mean_b else 0.0  # of two that diverged
    pool = np.concatenate([first, second])
    attainable = smallest_p_value(len(first), len(second)) <= level
    if not attainable or not np.isfinite(pool).all():
        return Estimate(value, -math.inf, math.inf), claimed
    # Scores at a bound stay there, be it the highest or the lowest: so either side is shifted, and
    # what rejects more counts.
    low = max(_least_shift(first, second, level), _least_shift(-second, -first, level))
    high = -max(_least_shift(second, first, level), _least_shift(-first, -second, level))
    low, high = min(low, value), max(high, value)
    if not claimed:
        low = min(low, 0.0)
    return Estimate(value, low, high), claimed and low > 0


def _least_shift(a: Scores, b: Scores, level: float) -> float:
    """Return the least shift of ``b`` with which ``a`` is not better than it beyond chance."""
    lowest, highest = min(a.min(), b.min()), max(a.max(), b.max())
    shifts = np.unique(a[:, None] - b[None, :])
    # What a test says changes at these shifts, and nowhere between them.
    steps = np.sort(np.concatenate([shifts, (shifts[:-1] + shifts[1:]) / 2]))
    first, last = 0, len(steps) - 1
    while first < last:
        middle = (first + last) // 2
        if p_value_better(a, np.clip(b + steps[middle], lowest, highest)) > level:
            last = middle
        else:
            first = middle + 1
    return float(shifts[np.searchsorted(shifts, steps[first], side="right") - 1])


def p_value_better(a: npt.ArrayLike, b: npt.ArrayLike, seed: int = 0) -> float:
    """Return the p-value: how often runs that do not differ win as clearly as ``a`` against ``b``.

    The one-sided permutation test of the Mann-Whitney statistic; exact for up to eight runs each,
    ties included. Shapes (runs_a,) and (runs_b,). Small means that ``a`` is better.

    Ranks, because means of returns lose against one failed run, and because interquartile means
    call a configuration better too often that is only noisier (`scripts/study_intervals.py`).
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    pool = np.concatenate([first, second])
    below = (pool[:, None] > pool[None, :]) + 0.5 * (pool[:, None] == pool[None, :])
    ranks = below.sum(axis=1)  # the sum of a group's ranks orders like its number of wins
    groups, exact = _groups(len(pool), len(first), seed)
    sums = groups @ ranks
    reached = int((sums >= ranks[: len(first)].sum() - 1e-9).sum())
    return reached / len(sums) if exact else (reached + 1) / (len(sums) + 1)


@lru_cache(maxsize=8)
def _groups(total: int, size: int, seed: int) -> tuple[Scores, bool]:
    """Return groups of so many of all runs, and whether these are all groups there are.

    Shape (groups, total), with 1 for a member and 0 for others.
    """
    exact = math.comb(total, size) <= EXACT_PERMUTATIONS
    if exact:
        members = np.array(list(itertools.combinations(range(total), size)))
    else:
        draws = np.random.default_rng(seed).random((EXACT_PERMUTATIONS, total))
        members = draws.argsort(axis=1)[:, :size]
    groups = np.zeros((len(members), total))
    np.put_along_axis(groups, members, 1.0, axis=1)
    return groups, exact


def significance(comparisons: int) -> float:
    """Return the p-value below which one of so many comparisons counts (Bonferroni)."""
    return SIGNIFICANCE / max(1, comparisons)


def smallest_p_value(runs_a: int, runs_b: int) -> float:
    """Return the p-value of `p_value_better` when every run of ``a`` beats every run of ``b``."""
    return 1 / min(math.comb(runs_a + runs_b, runs_a), EXACT_PERMUTATIONS + 1)


def runs_to_prove(chance: float, level: float = SIGNIFICANCE) -> int | None:
    """Return about how many runs each side needs to show that it is better; None: over 100.

    So many show it in four of five cases, if a run of the one is above a run of the other with this
    probability. Noether, "Sample size determination for some common nonparametric tests", Journal
    of the American Statistical Association 1987.
    """
    if chance <= 0.5:
        return None
    normal = NormalDist()
    reach = normal.inv_cdf(1 - level) + normal.inv_cdf(POWER)
    runs = math.ceil(reach**2 / (6 * (min(chance, SUREST) - 0.5) ** 2))
    return next((n for n in range(runs, MOST_RUNS + 1) if smallest_p_value(n, n) <= level), None)


def far_below(values: npt.ArrayLike) -> float | None:
    """Return the lower edge below which outliers lie; None where there are none.

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
