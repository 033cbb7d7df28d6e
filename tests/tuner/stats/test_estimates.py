"""The statistics of few runs: definitions, and coverage by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from rltune.stats.estimates import (
    bootstrap_interval,
    difference,
    iqm,
    p_value_better,
    probability_of_improvement,
    runs_to_prove,
    smallest_p_value,
)
from scipy import stats as scipy_stats

# How scores of RL look: (draws n scores, coverage that the interval must reach at 5, 10, 20 runs).
WORLDS = {
    "normal": (lambda rng, n: rng.normal(300, 40, n), (0.92, 0.94, 0.94)),
    "lognormal costs": (lambda rng, n: rng.lognormal(3, 1, n), (0.91, 0.94, 0.94)),
    "beta, near a cap of 500": (lambda rng, n: 500 * rng.beta(5, 1, n), (0.91, 0.94, 0.94)),
    "normal, cut at a cap": (
        lambda rng, n: np.minimum(500, rng.normal(480, 60, n)),
        (0.92, 0.94, 0.94),
    ),
    "success or failure": (
        lambda rng, n: np.where(
            rng.random(n) < 0.4, rng.normal(100, 30, n), rng.normal(450, 30, n)
        ),
        (0.89, 0.94, 0.94),
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
@pytest.mark.parametrize(("position", "runs"), [(0, 5), (1, 10), (2, 20)])
def test_the_interval_covers_the_truth_as_often_as_it_says(world, position, runs):
    draw, least = WORLDS[world]
    # 400 experiments: three standard errors are 0.03 to 0.06
    reached = coverage(draw, runs, 400)
    assert reached >= least[position] - 0.04


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(("position", "runs"), [(0, 5), (1, 10), (2, 20)])
def test_the_interval_covers_the_truth_as_often_as_it_says_in_many_experiments(
    world, position, runs
):
    draw, least = WORLDS[world]
    assert coverage(draw, runs, 4000, samples=2000) >= least[position] - 0.005


def test_the_plain_percentile_interval_would_be_too_narrow():
    """`bootstrap_interval` is no such interval, and why."""
    draw = WORLDS["success or failure"][0]
    truth, hits = iqm(draw(np.random.default_rng(0), 1_000_000)), 0
    for seed in range(400):
        scores = draw(np.random.default_rng([seed, 5]), 5)
        picks = np.random.default_rng(seed).integers(5, size=(1000, 5))
        means = np.sort(scores[picks], axis=1)[:, 1:4].mean(axis=1)
        low, high = np.quantile(means, [0.025, 0.975])
        hits += low <= truth <= high
    assert coverage(draw, 5, 400) > hits / 400 + 0.02


def test_the_interval_stays_within_the_scores_from_five_runs_on():
    scores = [381.0, 467.0, 500.0, 500.0, 500.0]
    low, high = bootstrap_interval(scores)
    assert (low, high) == (381.0, 500.0)


@pytest.mark.parametrize(("runs", "known"), [(2, False), (5, False), (9, False), (10, True)])
def test_few_scores_that_are_all_equal_have_no_interval(runs, known):
    """Of five equal ones, up to 45 % of the seeds may differ unseen."""
    found = (500.0, 500.0) if known else (-math.inf, math.inf)
    assert bootstrap_interval([500.0] * runs) == found
    assert bootstrap_interval([-math.inf] * 5) == (-math.inf, math.inf)
    low, high = bootstrap_interval([500.0] * 8 + [499.0])
    assert 499.0 <= low <= high == 500.0


@pytest.mark.parametrize("scores", [[500.0], [400.0, 450.0, 500.0], [10.0, 20.0, 30.0, 400.0]])
def test_fewer_than_five_runs_have_no_interval(scores):
    assert bootstrap_interval(scores) == (-math.inf, math.inf)


@pytest.mark.parametrize("runs", [5, 6, 10, 20])
def test_no_interval_reaches_beyond_the_scores(runs):
    """Costs below zero, and returns above the cap, were in intervals once."""
    for seed in range(50):
        costs = np.random.default_rng(seed).lognormal(0, 2, runs)
        low, high = bootstrap_interval(costs, n=1000)
        assert costs.min() * (1 - 1e-9) <= low <= high <= costs.max() * (1 + 1e-9)


def test_a_diverged_run_lowers_the_interval_to_the_bottom():
    assert bootstrap_interval([500.0] * 4 + [-math.inf]) == (-math.inf, 500.0)


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


@pytest.mark.parametrize("runs", [3, 5, 6])
@pytest.mark.parametrize("level", [0.05, 0.0125])
@pytest.mark.parametrize("step", [0.0, 40.0, 150.0])
def test_the_claim_is_made_exactly_when_the_interval_of_the_difference_excludes_zero(
    runs, level, step
):
    found = set()
    for seed in range(40):
        rng = np.random.default_rng(seed)
        a, b = (np.clip(rng.normal(loc, 80, runs).round(-1), 0, 500) for loc in (400 + step, 400))
        (value, low, high), claimed = difference(a, b, level)
        assert value == pytest.approx(iqm(a) - iqm(b))
        assert low <= value <= high
        assert claimed == (low > 0)
        assert not claimed or p_value_better(a, b) <= level
        if math.isfinite(low):
            assert a.min() - b.max() <= low <= high <= max(a.max() - b.min(), 0.0)
        found.add(claimed)
    assert found == ({False, True} if step == 150 and (runs > 3 or level == 0.05) else found)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([500.0] * 10, [500.0] * 5 + [200.0, 210, 220, 230, 240]),  # half of the defaults solve it
        ([-80.0] * 5 + [-500.0] * 3, [-500.0] * 8),  # half of ours leave the floor
    ],
)
def test_scores_at_a_bound_take_no_claim_away(a, b):
    """A shift would carry them beyond what the environment gives."""
    assert p_value_better(a, b) <= 0.05
    found, claimed = difference(a, b)
    assert claimed
    assert found.low > 0


def test_the_difference_of_diverged_runs():
    inf = math.inf
    found, claimed = difference([400.0, 410, 420, 430, 440], [-inf] * 5)
    assert claimed
    assert (found.value, found.low, found.high) == (inf, -inf, inf)
    found, claimed = difference([-inf] * 5, [-inf] * 5)
    assert (found.value, claimed) == (0.0, False)
    found, claimed = difference([-inf, 410.0, 420, 430, 440], [10.0, 20, 30, 40, 50])
    assert (found.value, found.low) == (390.0, -inf)


def test_the_runs_that_prove_a_lead_do_so_in_most_cases():
    chance = scipy_stats.norm.cdf(1.2 / math.sqrt(2))
    runs = runs_to_prove(chance, 0.05)
    proven = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        a, b = rng.normal(1.2, 1, runs), rng.normal(0, 1, runs)
        proven += scipy_stats.mannwhitneyu(a, b, alternative="greater").pvalue <= 0.05
    assert 0.7 < proven / 200 < 0.92
    assert runs_to_prove(1.0, 0.05 / 12) >= 5
    assert runs_to_prove(0.5) is runs_to_prove(0.3) is runs_to_prove(0.55) is None
