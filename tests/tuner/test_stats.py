"""The statistics of few runs: definitions, and coverage by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from rltune.stats import (
    bootstrap_interval,
    iqm,
    p_value_better,
    paired_difference,
    probability_of_improvement,
    smallest_p_value,
)
from scipy import stats as scipy_stats

# How scores of RL look: (draws n scores, coverage that the interval must reach at 3, 5, 10 runs).
WORLDS = {
    "normal": (lambda rng, n: rng.normal(300, 40, n), (0.93, 0.92, 0.94)),
    "skewed": (lambda rng, n: 500 - rng.lognormal(3, 1, n), (0.91, 0.91, 0.94)),
    "clipped": (lambda rng, n: np.minimum(500, rng.normal(480, 60, n)), (0.86, 0.92, 0.94)),
    "bad seeds": (
        lambda rng, n: np.minimum(
            500, np.where(rng.random(n) < 0.25, rng.normal(200, 80, n), rng.normal(480, 15, n))
        ),
        (0.93, 0.92, 0.94),
    ),
    "many bad seeds": (
        lambda rng, n: np.where(
            rng.random(n) < 0.4, rng.normal(100, 30, n), rng.normal(450, 30, n)
        ),
        (0.72, 0.89, 0.94),
    ),
}


def coverage(draw, runs, experiments, samples=1000):
    truth = iqm(draw(np.random.default_rng(0), 1_000_000))
    hits = 0
    for seed in range(experiments):
        scores = draw(np.random.default_rng([seed, runs]), runs)
        low, high = bootstrap_interval(scores, n=samples, seed=seed)
        hits += low <= truth <= high
    return hits / experiments


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 11, 40])
def test_iqm_is_the_mean_of_the_middle_half(count):
    scores = np.random.default_rng(count).normal(size=count)
    assert iqm(scores) == pytest.approx(scipy_stats.trim_mean(scores, 0.25))


def test_iqm_takes_all_environments_together_and_a_diverged_run_as_the_worst():
    scores = np.arange(20.0).reshape(5, 4)
    assert iqm(scores) == pytest.approx(scipy_stats.trim_mean(scores, 0.25, axis=None))
    assert iqm([1, 2, 3, 4, -math.inf]) == pytest.approx(2.0)
    assert iqm([1, 2, 3, -math.inf, -math.inf]) == -math.inf


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(("position", "runs"), [(0, 3), (1, 5), (2, 10)])
def test_the_interval_covers_the_truth_as_often_as_it_says(world, position, runs):
    draw, least = WORLDS[world]
    # 400 experiments: three standard errors are 0.03 to 0.06
    reached = coverage(draw, runs, 400)
    assert reached >= least[position] - 0.04


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(("position", "runs"), [(0, 3), (1, 5), (2, 10)])
def test_the_interval_covers_the_truth_as_often_as_it_says_in_many_experiments(
    world, position, runs
):
    draw, least = WORLDS[world]
    assert coverage(draw, runs, 4000, samples=2000) >= least[position] - 0.005


def test_the_plain_percentile_interval_would_be_too_narrow():
    """Why `bootstrap_interval` is none."""
    draw = WORLDS["bad seeds"][0]
    truth, hits = iqm(draw(np.random.default_rng(0), 1_000_000)), 0
    for seed in range(400):
        scores = draw(np.random.default_rng([seed, 5]), 5)
        picks = np.random.default_rng(seed).integers(5, size=(1000, 5))
        means = np.sort(scores[picks], axis=1)[:, 1:4].mean(axis=1)
        low, high = np.quantile(means, [0.025, 0.975])
        hits += low <= truth <= high
    assert hits / 400 < 0.9
    assert coverage(draw, 5, 400) > hits / 400 + 0.03


def test_the_interval_stays_within_the_scores_from_five_runs_on():
    scores = [381.0, 467.0, 500.0, 500.0, 500.0]
    low, high = bootstrap_interval(scores)
    assert (low, high) == (381.0, 500.0)
    assert bootstrap_interval([500.0] * 5) == (500.0, 500.0)


def test_the_interval_of_one_run_is_infinite_and_of_three_is_wide():
    assert bootstrap_interval([500.0]) == (-math.inf, math.inf)
    low, high = bootstrap_interval([400.0, 450.0, 500.0])
    assert low < 350
    assert high > 550


def test_a_diverged_run_lowers_the_interval_to_the_bottom():
    assert bootstrap_interval([500.0] * 4 + [-math.inf]) == (-math.inf, 500.0)
    assert bootstrap_interval([500.0, 500.0, -math.inf]) == (-math.inf, math.inf)


def test_the_interval_depends_on_the_seed_alone():
    scores = np.random.default_rng(0).normal(size=20)
    assert bootstrap_interval(scores, seed=1) == bootstrap_interval(scores, seed=1)
    assert bootstrap_interval(scores, n=100, seed=1) != bootstrap_interval(scores, n=100, seed=2)


def test_runs_are_drawn_anew_within_each_environment():
    """Environments of very different scales: mixing them would widen the interval hugely."""
    scores = np.random.default_rng(0).normal([0, 1000, 2000, 3000], 1, size=(10, 4))
    low, high = bootstrap_interval(scores, statistic=lambda values: float(np.mean(values)))
    assert high - low < 3


def test_a_wider_confidence_gives_a_wider_interval():
    scores = np.random.default_rng(0).normal(size=20)
    inner, outer = bootstrap_interval(scores, confidence=0.8), bootstrap_interval(scores)
    assert outer[0] < inner[0] < inner[1] < outer[1]


def test_probability_of_improvement_is_the_mann_whitney_statistic():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 6, 9), rng.integers(0, 5, 7)
    wins = scipy_stats.mannwhitneyu(a, b).statistic
    assert probability_of_improvement(a, b).value == pytest.approx(wins / (9 * 7))
    assert probability_of_improvement([1, 1], [1, 1]).value == 0.5


def test_five_wins_of_five_are_no_certainty():
    value, low, high = probability_of_improvement([6, 7, 8, 9, 10], [1, 2, 3, 4, 5])
    assert value == high == 1.0
    assert 0.6 < low < 0.7
    assert probability_of_improvement([2.0], [1.0]).low < 0.3


@pytest.mark.parametrize("shift", [0.0, 1.0, 2.0])
def test_the_interval_of_the_probability_covers_the_truth(shift):
    truth = scipy_stats.norm.cdf(shift / math.sqrt(2))
    hits = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        found = probability_of_improvement(rng.normal(shift, 1, 5), rng.normal(0, 1, 5))
        hits += found.low <= truth <= found.high
    assert hits / 400 > 0.91


def test_p_value_is_the_exact_permutation_test():
    a, b = [5.0, 6.0, 6.0, 9.0], [1.0, 5.0, 2.0, 3.0]

    def wins(x, y, axis):
        pairs = np.expand_dims(x, -1) - np.expand_dims(y, -2)
        return ((pairs > 0) + 0.5 * (pairs == 0)).sum(axis=(-1, -2))

    expected = scipy_stats.permutation_test((a, b), wins, alternative="greater", vectorized=True)
    assert p_value_better(a, b) == pytest.approx(expected.pvalue)
    assert p_value_better([2, 3, 4], [-1, 0, 1]) == pytest.approx(smallest_p_value(3, 3))
    assert p_value_better([500] * 5, [500] * 5) == 1.0
    assert p_value_better([1, 2, 3, 4, 5], [-math.inf] * 5) == pytest.approx(1 / 252)


def test_p_value_of_many_runs_is_sampled_and_agrees_with_the_normal_approximation():
    rng = np.random.default_rng(3)
    a, b = rng.normal(0.7, 1, 15), rng.normal(0, 1, 15)
    expected = scipy_stats.mannwhitneyu(a, b, alternative="greater").pvalue
    assert p_value_better(a, b) == pytest.approx(expected, rel=0.3)


def test_alike_configurations_are_rarely_told_apart():
    false = sum(
        p_value_better(*np.random.default_rng(seed).normal(size=(2, 5))) <= 0.05
        for seed in range(400)
    )
    assert false / 400 < 0.08


def test_paired_difference_removes_what_the_seeds_share():
    shared = np.random.default_rng(0).normal(0, 100, 10)
    value, low, high = paired_difference(shared + 5.0, shared + np.linspace(-1, 1, 10))
    assert low < value < high
    assert (low, high) == pytest.approx((5, 5), abs=1.1)
