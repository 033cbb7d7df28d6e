"""Statistics over several environments, of normalised scores: rliable's, for few runs.

Definitions follow rliable (Agarwal et al., "Deep RL at the Edge of the Statistical Precipice",
NeurIPS 2021). All of them take a list with the scores of each environment, each of shape (runs,):
the numbers of runs may differ. 0 is a bad policy and 1 a good one, see `suite.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from rltune.stats.estimates import FEW_RUNS, Estimate, Scores, interval_of, iqm_of_rows
from rltune.stats.estimates import probability_of_improvement as of_one_environment

SAMPLES = 10_000
PROFILE_SAMPLES = 2000  # rliable's number
PROFILE_POINTS = 101

# Of each row of the environments' scores, each of shape (rows, runs) -> (rows,).
Statistic = Callable[[Sequence[Scores]], Scores]


def _iqm(rows: Sequence[Scores]) -> Scores:
    return iqm_of_rows(np.concatenate(list(rows), axis=1))


def _median(rows: Sequence[Scores]) -> Scores:
    return np.asarray(np.median([row.mean(axis=1) for row in rows], axis=0))


def _mean(rows: Sequence[Scores]) -> Scores:
    return np.asarray(np.mean([row.mean(axis=1) for row in rows], axis=0))


def _optimality_gap(rows: Sequence[Scores]) -> Scores:
    return np.asarray(1 - np.mean([np.minimum(row, 1.0).mean(axis=1) for row in rows], axis=0))


STATISTICS: Mapping[str, Statistic] = {
    "IQM": _iqm,  # over all runs and environments together
    "median": _median,  # over environments, of the means over runs
    "mean": _mean,
    "optimality gap": _optimality_gap,  # the distance to 1; more than 1 brings no credit
}


def aggregate(
    scores: Sequence[npt.ArrayLike],
    statistic: str = "IQM",
    confidence: float = 0.95,
    n: int = SAMPLES,
    seed: int = 0,
) -> Estimate:
    """Return a statistic of `STATISTICS` with its stratified bootstrap interval.

    Runs are drawn anew within each environment, ``n`` times. The interval is rliable's percentile
    interval, widened for few runs as `estimates.bootstrap_interval` says; the smallest number of
    runs counts. Fewer than five give an infinite interval.
    """
    of, columns = STATISTICS[statistic], _columns(scores)
    value = float(of([column[None, :] for column in columns])[0])
    estimates = of(_draws(columns, n, seed))
    return Estimate(value, *interval_of(estimates, min(map(len, columns)), confidence))


@dataclass(frozen=True)
class Profile:
    """The share of the runs that score above each ``tau``; ``low`` is None with too few runs."""

    tau: list[float]
    value: list[float]
    low: list[float] | None
    high: list[float] | None


def performance_profile(
    scores: Sequence[npt.ArrayLike], tau: npt.ArrayLike, n: int = PROFILE_SAMPLES, seed: int = 0
) -> Profile:
    """Return the score distribution with pointwise 95 % bootstrap bands.

    Each environment counts the same. Below five runs an environment there is no band: it would
    claim that no run scores beyond those seen.
    """
    columns, points = _columns(scores), np.asarray(tau, dtype=np.float64)

    def above(rows: Sequence[Scores]) -> Scores:
        shares = [(row[:, :, None] > points).mean(axis=1) for row in rows]
        return np.asarray(np.mean(shares, axis=0))  # (rows, points)

    value = above([column[None, :] for column in columns])[0]
    runs = min(map(len, columns))
    low = high = None
    if runs >= FEW_RUNS:
        drawn = above(_draws(columns, n, seed))
        ends = [interval_of(column, runs) for column in drawn.T]
        low, high = [end[0] for end in ends], [end[1] for end in ends]
    return Profile(points.tolist(), value.tolist(), low, high)


def probability_of_improvement(
    a: Sequence[npt.ArrayLike], b: Sequence[npt.ArrayLike], confidence: float = 0.95
) -> Estimate:
    """Return the probability that a run of ``a`` scores above one of ``b``, the environments' mean.

    The value is rliable's. The interval puts those of the environments together (the method of
    variance estimates recovery; Zou & Donner, "Construction of confidence limits about effect
    measures", Statistics in Medicine 2008): a bootstrap would claim 100 to 100 % where every run
    has beaten every other.
    """
    found = [of_one_environment(x, y, confidence) for x, y in zip(a, b, strict=True)]
    value = math.fsum(estimate.value for estimate in found) / len(found)
    below = math.hypot(*(e.value - e.low for e in found)) / len(found)
    above = math.hypot(*(e.high - e.value for e in found)) / len(found)
    return Estimate(value, max(0.0, value - below), min(1.0, value + above))


def _columns(scores: Sequence[npt.ArrayLike]) -> list[Scores]:
    return [np.asarray(table, dtype=np.float64) for table in scores]


def _draws(columns: Sequence[Scores], n: int, seed: int) -> list[Scores]:
    rng = np.random.default_rng(seed)
    return [column[rng.integers(len(column), size=(n, len(column)))] for column in columns]
