"""Deadlines: the time at which a search gives way to the tournament, or has none."""

from __future__ import annotations

import math
import time

import pytest
from rltune.planning.deadlines import Deadlines, TournamentTime

LIMIT = 1000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds since the search began, to be set."""
    now = [0.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now


def test_the_tournament_gets_what_it_takes_and_at_most_its_share(clock: list[float]) -> None:
    deadlines = Deadlines(0.0, LIMIT, True)
    assert deadlines.end == pytest.approx(987)
    assert deadlines.of_search(None) == pytest.approx(987 - 400)
    assert deadlines.of_search(TournamentTime(100, 20)) == pytest.approx(987 - 110)
    assert deadlines.of_search(TournamentTime(5000, 500)) == pytest.approx(987 - 400)
    assert Deadlines(0.0, LIMIT, False).of_search(TournamentTime(100, 20)) == pytest.approx(987)
    assert math.isinf(Deadlines(0.0, None, True).of_search(TournamentTime(100, 20)))


def test_without_time_for_a_round_of_it_there_is_none(clock: list[float]) -> None:
    deadlines, slow = Deadlines(0.0, LIMIT, True), TournamentTime(3500, 700)
    assert deadlines.too_short(slow)
    assert deadlines.of_search(slow) == deadlines.end
    assert not deadlines.too_short(None)
    # 1.1 times 3500 seconds are to be 40 % of it.
    said = deadlines.advice(slow, 100_000)
    assert "--time-limit 3h, or --budget 10000." in said
    assert "16:40 is too short" in said
    assert "about 11:40" in said


def test_who_has_given_way_does_not_come_back(clock: list[float]) -> None:
    deadlines = Deadlines(0.0, LIMIT, True)
    tests = TournamentTime(300, 300)
    clock[0] = 987 - 331
    assert not deadlines.search_is_over(tests)
    clock[0] = 987 - 280  # the last result came late
    assert deadlines.search_is_over(tests)
    assert deadlines.search_is_over(TournamentTime(10, 10))
    assert not deadlines.too_short(TournamentTime(900, 900))  # it has begun
    assert not deadlines.has_more(TournamentTime(10, 10))


def test_a_training_that_was_cut_goes_on_when_the_tournament_takes_less(clock: list[float]) -> None:
    deadlines = Deadlines(0.0, LIMIT, True)
    clock[0] = 590.0  # past what it was told at its start
    assert deadlines.has_more(TournamentTime(100, 20))
    assert not deadlines.has_more(TournamentTime(350, 70))  # 12 seconds are not worth while
    assert not deadlines.has_more(None)
