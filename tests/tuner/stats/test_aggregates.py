"""Statistics over environments: rliable's numbers, and intervals that few runs can carry."""

from __future__ import annotations

import math

import numpy as np
import pytest
from rltune.stats import aggregates, estimates
from rltune.stats.aggregates import (
    STATISTICS,
    aggregate,
    performance_profile,
    probability_of_improvement,
)

# Scores (runs, environments), and what rliable 1.2.0 (the Python package, with arch 7.2.0) says of
# them: get_interval_estimates with 20,000 samples, and create_performance_profile.
A = [
    [0.9, 0.56, 0.173, 0.433], [0.855, 0.302, 0.206, 1.102], [0.851, 0.376, 0.249, 0.807],
    [0.911, 0.314, 0.197, 0.909], [0.766, 0.408, 0.01, 0.313], [0.716, 0.453, 0.073, 0.781],
    [0.916, 0.463, 0.0, 0.538], [0.895, 0.523, 0.047, 0.557], [0.802, 0.338, 0.306, 0.458],
    [0.897, 0.677, 0.142, 0.666],
]  # fmt: skip
B = [
    [0.822, 0.513, 0.177, 0.415], [1.072, 0.191, 0.386, 0.424], [0.672, 0.9, 0.376, 0.16],
    [0.815, 0.615, 0.281, 0.537], [0.787, 0.633, 0.444, 0.265], [0.841, 0.407, 0.313, 0.163],
    [0.684, 0.461, 0.39, 0.629], [0.535, 0.341, 0.365, 0.002],
]  # fmt: skip
POINT = {"A": [0.5224, 0.5489, 0.52225, 0.4803], "B": [0.4669375, 0.4245625, 0.488, 0.51425]}
LOW = {"A": [0.4602, 0.47145, 0.47958, 0.43877], "B": [0.40237, 0.36044, 0.43181, 0.45734]}
HIGH = {"A": [0.58845, 0.62825, 0.56648, 0.52128], "B": [0.52694, 0.52025, 0.54647, 0.56894]}
TAU = np.linspace(0, 1.2, 7)
PROFILE = {"A": [0.975, 0.825, 0.625, 0.4, 0.275, 0.025, 0.0],
           "B": [1.0, 0.84375, 0.59375, 0.34375, 0.15625, 0.03125, 0.0]}  # fmt: skip
A_ABOVE_B, A_ABOVE_B_ENDS = 0.51875, (0.409, 0.625)

COLUMNS = {name: list(np.array(rows).T) for name, rows in (("A", A), ("B", B))}


@pytest.mark.parametrize("name", ["A", "B"])
def test_the_estimates_are_those_of_rliable(name):
    found = [aggregate(COLUMNS[name], statistic).value for statistic in STATISTICS]
    assert found == pytest.approx(POINT[name], abs=1e-12)
    profile = performance_profile(COLUMNS[name], TAU)
    assert profile.value == pytest.approx(PROFILE[name], abs=1e-12)


def test_the_probability_of_improvement_is_that_of_rliable():
    found = probability_of_improvement(COLUMNS["A"], COLUMNS["B"])
    assert found.value == pytest.approx(A_ABOVE_B, abs=1e-12)
    assert (found.low, found.high) == pytest.approx(A_ABOVE_B_ENDS, abs=0.01)


@pytest.mark.parametrize("name", ["A", "B"])
def test_without_the_correction_for_few_runs_the_intervals_are_those_of_rliable(name, monkeypatch):
    widened = [aggregate(COLUMNS[name], statistic) for statistic in STATISTICS]
    plain = estimates.interval_of
    monkeypatch.setattr(aggregates, "interval_of", lambda e, runs, c=0.95: plain(e, 10**6, c))
    for statistic, wide, low, high in zip(STATISTICS, widened, LOW[name], HIGH[name], strict=True):
        found = aggregate(COLUMNS[name], statistic)
        assert (found.low, found.high) == pytest.approx((low, high), abs=0.004)
        assert wide.low < low < high < wide.high < 2 * high - low


def test_environments_may_have_different_numbers_of_runs():
    first, second = [0.1, 0.2, 0.3, 0.4, 0.5], [1.0, 1.0, 1.4]
    assert aggregate([first, second], "mean").value == pytest.approx((0.3 + 3.4 / 3) / 2)
    assert aggregate([first, second], "optimality gap").value == pytest.approx(0.7 / 2)
    assert performance_profile([first, second], [0.35, 1.1]).value == pytest.approx([0.7, 1 / 6])


def test_of_a_single_environment_it_is_the_interval_of_the_seeds():
    scores = np.random.default_rng(0).normal(size=12)
    found = aggregate([scores])
    assert found.value == pytest.approx(estimates.iqm(scores))
    assert (found.low, found.high) == pytest.approx(estimates.bootstrap_interval(scores), abs=0.1)


def test_what_few_runs_cannot_carry_is_not_claimed():
    one_seed = aggregate([[0.4], [0.6], [0.5]])
    assert (one_seed.low, one_seed.high) == (-math.inf, math.inf)
    assert performance_profile([[0.4] * 4, [0.6] * 9], [0.5]).low is None
    assert performance_profile([[0.4] * 5, [0.6] * 9], [0.5]).low == [0.5]
    wins = probability_of_improvement([[2, 3, 4], [2, 3, 4]], [[0, 1, 1], [0, 1, 1]])
    assert wins.value == wins.high == 1
    assert 0.4 < wins.low < 0.9


def test_a_diverged_run_is_the_worst_score_there_is():
    scores = [[0.5, 0.6, 0.5, 0.6, -math.inf], [0.4, 0.5, 0.6, 0.4, 0.5]]
    assert aggregate(scores, "mean").value == -math.inf
    assert aggregate(scores, "optimality gap").value == math.inf
    assert 0.4 < aggregate(scores, "IQM").value < 0.6
    assert performance_profile(scores, [0.0]).value == pytest.approx([0.9])


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_the_interval_of_the_mean_probability_covers_the_truth(shift):
    truth = 0.5 * 0.5 + 0.5 * 0.5 * math.erfc(-shift / 2)  # alike on the one, shifted on the other
    hits = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        a = [rng.normal(0, 1, 5), rng.normal(shift, 1, 5)]
        found = probability_of_improvement(a, [rng.normal(0, 1, 5) for _ in a])
        hits += found.low <= truth <= found.high
    assert hits / 200 > 0.91
