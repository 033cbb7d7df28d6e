from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from rltune.answer.model import Answer, Circumstances, Finalist
from rltune.answer.ranking import build_answer
from rltune.answer.tournament import Tournament, job_name, least_seeds  # fmt: skip

Draw = Callable[[int, np.random.Generator], float]


def make(
    n: int, planned: int = 5, scores: dict[tuple[int, int], float] | None = None
) -> Tournament:
    """Return a tournament of the defaults (trial 0) and others with equal tuning scores."""
    finalists = [
        Finalist(trial=i, origins=("sampler" if i else "default",), config={"x": i}, objective=1.0)
        for i in range(n)
    ]
    return Tournament(finalists, range(100, 100 + 2 * planned), planned, scores)


def play(tournament: Tournament, draw: Draw, seed: int = 0) -> Answer:
    rng = np.random.default_rng(seed)
    while (job := tournament.next_job([])) is not None:
        finalist, test_seed = job
        tournament.record(finalist.trial, test_seed, draw(finalist.trial, rng))
    return build_answer(tournament.results(), Circumstances(planned_seeds=tournament.planned))


def counts(tournament: Tournament) -> list[int]:
    return [
        sum(t == finalist.trial for t, _ in tournament.scores) for finalist in tournament.finalists
    ]


def test_what_is_left_is_counted() -> None:
    tournament = make(3, planned=2, scores={(0, 100): 1.0, (1, 100): 1.0, (7, 100): 1.0})
    assert tournament.left == 4  # trial 7 is no finalist
    play(tournament, lambda trial, rng: 1.0)
    assert tournament.left == 0


def test_nothing_is_left_where_a_finalist_that_is_behind_gets_no_further_seeds() -> None:
    tournament = make(2)
    play(tournament, lambda trial, rng: 100.0 * (1 - trial) + rng.normal())
    assert len(tournament.scores) < tournament.total
    assert tournament.left == 0


def test_all_get_a_seed_before_anyone_gets_the_next() -> None:
    tournament, order = make(3, planned=2), []
    while (job := tournament.next_job([job_name(*key) for key in order])) is not None:
        order.append((job[0].trial, job[1]))
    assert order == [(0, 100), (1, 100), (2, 100), (0, 101), (1, 101), (2, 101)]


def test_the_dear_come_first_and_who_would_run_out_of_time_gets_no_further_seed() -> None:
    tournament = make(3, planned=2)

    def order(left: float) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        prices = [20.0, 10.0, 30.0]
        while job := tournament.next_job(
            [job_name(*entry) for entry in found], lambda one: prices[one.trial], left
        ):
            found.append((job[0].trial, job[1]))
        return found

    assert order(math.inf) == [(2, 100), (0, 100), (1, 100), (2, 101), (0, 101), (1, 101)]
    assert order(25) == [(0, 100), (1, 100), (0, 101), (1, 101)]
    assert order(5) == []


def test_all_seeds_count_when_time_was_too_short_for_some() -> None:
    scores = {(0, 100): 1.0, (0, 101): 2.0, (1, 100): 5.0}
    found = {score.trial: score.seeds for score in make(3, scores=scores).results()}
    assert found == {0: {100: 1.0, 101: 2.0}, 1: {100: 5.0}, 2: {}}


def test_clear_losers_make_room_for_further_seeds() -> None:
    tournament = make(5)
    answer = play(tournament, lambda trial, rng: [50, 100, 100, 0, 20][trial] + rng.normal(0, 5))
    default, one, other, *losers = counts(tournament)
    assert default == 5  # everyone is compared with them
    assert losers == [4, 4]
    assert one == other == 6
    assert sum(counts(tournament)) <= tournament.total
    assert answer.winner in (1, 2)
    assert answer.beats_default
    assert not any("fewer than the planned" in line for line in answer.warnings)
    last = answer.ranking[-1]
    assert (last.trial, last.behind, last.tied) == (3, True, False)


@pytest.mark.parametrize(
    ("finalists", "planned"), [(n, p) for n in (2, 3, 5, 8) for p in (3, 5, 10)]
)
def test_losers_have_enough_seeds_to_be_called_worse(finalists: int, planned: int) -> None:
    tournament = make(finalists, planned)
    answer = play(tournament, lambda trial, rng: rng.normal(trial == finalists - 1, 0.001))
    gone = [ranked for ranked in answer.ranking if len(ranked.scores) < planned]
    assert not any(entry.tied for entry in gone)
    assert bool(gone) == (finalists > 2 and least_seeds(finalists, planned) < planned)


def test_what_is_spared_goes_to_all_who_are_open_or_to_nobody() -> None:
    """A seed that only some have had would not count."""
    for repetition in range(20):
        tournament = make(5)
        play(tournament, lambda trial, rng: rng.normal(0 if trial == 4 else 100, 5), repetition)
        ahead = [n for finalist, n in zip(tournament.finalists, counts(tournament), strict=True)
                 if finalist.trial not in tournament.behind()]  # fmt: skip
        assert len(set(ahead)) == 1


def test_without_a_tie_the_spared_seeds_are_not_spent() -> None:
    tournament = make(3)
    play(tournament, lambda trial, rng: 100 * trial + rng.normal(0, 5))
    assert counts(tournament) == [5, 3, 5]


def test_equals_share_all_seeds() -> None:
    tournament = make(4)
    answer = play(tournament, lambda trial, rng: 500.0)
    assert counts(tournament) == [5] * 4
    assert answer.winner == 0
    assert answer.beats_default is False


def test_who_diverges_is_left_behind() -> None:
    tournament = make(3)
    play(tournament, lambda trial, rng: math.nan if trial == 2 else 100 + rng.normal(0, 5))
    assert counts(tournament)[2] == 3


def test_a_tournament_goes_on_as_if_it_had_not_been_cut() -> None:
    def draw(trial: int, rng: np.random.Generator) -> float:
        return [50, 100, 100, 0][trial] + rng.normal(0, 5)

    whole = make(4)
    play(whole, draw)
    for cut in range(len(whole.scores)):
        first = make(4)
        rng = np.random.default_rng(0)
        for _ in range(cut):
            job = first.next_job([])
            assert job is not None
            first.record(job[0].trial, job[1], draw(job[0].trial, rng))
        again = make(4, scores=first.scores)
        while (job := again.next_job([])) is not None:
            again.record(job[0].trial, job[1], draw(job[0].trial, rng))
        assert list(again.scores.items()) == list(whole.scores.items())


def test_a_configuration_that_was_lucky_on_one_seed_is_rejected() -> None:
    """Its tuning score was 500; else it is 100 worse than the defaults, as noisy as they are."""
    rejected = 0
    for repetition in range(100):
        tournament = make(4)
        answer = play(
            tournament, lambda trial, rng: rng.normal(300 if trial == 3 else 400, 50), repetition
        )
        rejected += answer.winner != 3
    assert rejected >= 95


def test_luck_alone_does_not_beat_the_defaults() -> None:
    claims = 0
    for repetition in range(100):
        answer = play(make(4), lambda trial, rng: rng.normal(400, 50), repetition)
        claims += bool(answer.beats_default)
    assert claims <= 5
