"""The progress of a search: its speed, the time that is left, and the time of its tournament."""

from __future__ import annotations

import time

import pytest
from rltune.planning.progress import SearchProgress


def train(progress: SearchProgress, number: int, env_steps: int, seconds: float) -> None:
    """Train a trial on one seed until there."""
    progress.training_started(number)
    progress.training_progress(number, 0, env_steps, seconds)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock: one number that may be changed."""
    found = [1000.0]
    monkeypatch.setattr(time, "time", lambda: found[0])
    return found


def test_the_speed_counts_what_is_done_here_and_now(now: list[float]) -> None:
    progress = SearchProgress(50_000)
    progress.training_started(1, env_steps=40_000)  # goes on after a resume
    progress.training_progress(1, 0, 40_000, 0.0)
    now[0] += 2
    progress.training_progress(1, 0, 44_000, 0.0)
    assert progress.rate() == pytest.approx(2000)
    assert progress.env_steps == 4_000
    now[0] += 60  # nothing for a minute
    rate = progress.rate()
    assert rate is not None
    assert rate < 100


def test_the_time_left_counts_trials_and_tests_and_keeps_to_the_limit(now: list[float]) -> None:
    progress = SearchProgress(50_000, trials=10, started=1000.0)
    assert progress.seconds_left() is None
    progress.restore({"COMPLETE": 5})  # of before a resume: tells nothing about the speed now
    progress.training_started(6)
    progress.training_progress(6, 0, 0, 0.0)
    now[0] += 10
    progress.training_progress(6, 0, 50_000, 0.0)
    progress.training_ended(6, 0, "COMPLETE")
    assert progress.seconds_left() == pytest.approx(4 * 10)
    progress.test_runs = 2
    assert progress.seconds_left() == pytest.approx(4 * 10 + 2 * 10)
    progress.time_limit = 30.0
    assert progress.seconds_left() == pytest.approx(20)
    progress.begin_tournament(2)
    progress.time_limit = None
    assert progress.seconds_left() == pytest.approx(2 * 10)
    assert progress.share() == 0.0
    progress.training_started(0, 100, "test")
    progress.training_progress(0, 100, 25_000, 5.0)
    assert progress.share() == pytest.approx(0.25)
    assert progress.seconds_left() == pytest.approx(5 + 10)
    progress.training_ended(0, 100, "COMPLETE")
    assert progress.tests_done == 1
    assert progress.ended == 6  # test trainings are no trials


def test_a_trial_that_races_is_one_trial() -> None:
    progress = SearchProgress(50_000, trials=10)
    train(progress, 1, 25_000, 5.0)
    for seed in range(3):
        progress.training_started(2, seed)
        progress.training_progress(2, seed, 50_000, 10.0)
    assert progress.share() == pytest.approx(1.5 / 10)
    progress.training_ended(2, 0, "COMPLETE")
    assert progress.share() == pytest.approx(1.5 / 10)


def test_the_time_left_goes_by_each_trials_own_speed() -> None:
    progress = SearchProgress(50_000, trials=8, slots=2)
    for number, env_steps, seconds in ((0, 50_000, 10.0), (1, 10_000, 2.0), (2, 10_000, 6.0)):
        train(progress, number, env_steps, seconds)
        progress.training_ended(number, 0, "COMPLETE" if env_steps == 50_000 else "PRUNED")
    # Five to come at the mean price of the three, early stops included, two at once.
    assert progress.seconds_left() == pytest.approx(5 * 6 / 2)
    train(progress, 3, 20_000, 80.0)  # it costs 20 times as much as the first
    # The one beyond 20,000 went to the end: 30,000 more at its own speed take longer than the rest.
    assert progress.seconds_left() == pytest.approx(120)
    progress.training_ended(3, 0, "PRUNED")
    progress.test_runs, progress.test_seconds = 4, 30.0
    assert progress.expected_tests(test_seeds=2) == (4 * 30 / 2, 30)
    progress.slots = 8  # no faster than one after the other, seed by seed
    assert progress.expected_tests(test_seeds=4) == (30, 30)
    progress.slots = 2
    mean = (10 + 2 + 6 + 80) / 4
    assert progress.seconds_left() == pytest.approx((4 * mean + 4 * 30) / 2)


def test_a_trial_that_ends_takes_its_other_seeds_with_it() -> None:
    progress = SearchProgress(1000, trials=2, seeds=2)
    for seed in (0, 1):
        progress.training_started(0, seed)
        progress.training_progress(0, seed, 500, 5.0)
    progress.training_ended(0, 0, "PRUNED")
    assert not progress.running
    assert progress.states == {"PRUNED": 1}
    assert progress.seconds_left() == pytest.approx(10)  # one more trial, of two seeds
