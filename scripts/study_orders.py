"""Replay searches on recorded learning curves: which order of trials finds a good one soonest?

    python scripts/study_seeds.py record       # the curves
    python scripts/study_orders.py openings    # a minute: whole trials first, or first rungs
    python scripts/study_orders.py endings     # minutes: whom the test seeds are spent on
    python scripts/study_orders.py dear        # minutes: the same, where the defaults are dear

`openings` replays the first trials with two workers: the defaults, the known-good settings and
configurations drawn from the space, judged by ASHA. *whole* is what a search does: a trial goes on
while its rung has too few values to judge it. *breadth K*: trials wait at the first rung until K
have reached it; the best go on first, and a free worker begins the next trial meanwhile.

`endings` spends so many trainings in all on a search and its tournament, and names a configuration
by the rule of the answer. *race* is what a search does: every finalist gets test seeds until it is
clearly behind. *top two*: each gets one; then the next goes to the best or to its closest rival.
*halving*: each gets one, then the better half of them, and so on. Behind the number of finalists
stands the part of the trainings that the tournament may take. A configuration at the median or at
0.8 of the order stands for the defaults.

`dear` has a tournament that is short of time, where training the defaults takes as long as several
finalists. Finalists join it where there is time for three seeds of each, and so many of the
defaults.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import study_seeds as recorded
from json_lines import read
from rltune.common.formats import plural

if TYPE_CHECKING:
    from rltune.answer.model import Finalist

WORKERS = 2
POINTS = (1, 3, 9)  # evaluations at which there are rungs
LENGTH = 12  # median trainings that a replay lasts
NEAR = 0.9  # of the way from the floor to the best value: the threshold
BREADTHS = (0, 3, 5, 8)
TEST_SEEDS = 6


# ---------------------------------------------------------------------------------------- openings


class Opening(NamedTuple):
    """What a replay came to.

    Attributes:
        threshold: when the first trial at the threshold has ended, in median trainings
        area: the mean over time of the best so far, from 0 (the floor) to 1 (the best)
    """

    threshold: float
    area: float


Ended = list[tuple[float, float]]  # when a trial ends, and its objective


def opening(
    values: dict[int, list[float]], seconds: dict[int, float], order: Sequence[int], breadth: int
) -> Iterator[tuple[float, float]]:
    """Replay trials; yields the second at which each ends, and its objective."""
    from rltune.schedulers.asha import ASHA

    asha, waiting, now = ASHA(POINTS), list(order), 0.0
    parked: list[int] = []
    running: list[tuple[float, int, int]] = []
    reached = 0

    def start(number: int, rung: int) -> None:
        before = POINTS[rung - 1] if rung else 0
        took = seconds[number] * (POINTS[rung] - before) / POINTS[-1]
        heapq.heappush(running, (now + took, number, rung))

    while waiting or running or parked:
        while len(running) < WORKERS and (waiting or parked):
            if parked and (reached >= breadth or not waiting):
                best = max(parked, key=lambda number: values[number][0])
                parked.remove(best)
                if asha.decide(best, POINTS[0], values[best][0]) == "stop":
                    yield now, values[best][0]
                else:
                    start(best, 1)
            elif waiting:
                start(waiting.pop(0), 0)
            else:
                break
        if not running:
            continue
        now, number, rung = heapq.heappop(running)
        value = values[number][POINTS[rung] - 1]
        if not math.isfinite(value):
            continue
        verdict = asha.decide(number, POINTS[rung], value)
        reached += rung == 0
        if rung == len(POINTS) - 1 or verdict == "stop":
            yield now, value
        elif rung == 0 and reached < breadth and waiting:
            parked.append(number)
        else:
            start(number, rung + 1)


def judged(ended: Ended, floor: float, top: float, unit: float) -> Opening:
    """Return what a replay came to within `LENGTH` median trainings of ``unit`` seconds."""
    best, area, last, threshold = 0.0, 0.0, 0.0, math.inf
    for at, value in sorted(ended):
        if at > LENGTH * unit:
            break
        area += best * (at - last)
        last, best = at, max(best, (value - floor) / (top - floor))
        if best >= NEAR:
            threshold = min(threshold, at / unit)
    return Opening(threshold, (area + best * (LENGTH * unit - last)) / (LENGTH * unit))


def openings(repetitions: int) -> None:
    """Print the median time to the threshold and the area, and its difference to whole trials."""
    names = ["whole", *(f"breadth {breadth}" for breadth in BREADTHS[1:])]
    print(f"| agent, environment | what | {' | '.join(names)} |\n{'|---' * (2 + len(names))}|")
    for setting in recorded.SETTINGS:
        curves = recorded.curves_of(setting, with_starts=True)
        seconds: dict[int, dict[int, float]] = {}
        for row in read(recorded.file_of(setting)):
            seconds.setdefault(row["configuration"], {})[row["seed"]] = row["seconds"]
        unit = median(s for by_seed in seconds.values() for s in by_seed.values())
        floor = recorded.floor(curves)
        top = max(curve[-1] for by_seed in curves.values() for curve in by_seed.values())
        found: list[list[Opening]] = [[] for _ in BREADTHS]
        for repetition in range(repetitions):
            rng = np.random.default_rng(repetition)
            seed = int(rng.integers(len(recorded.SEEDS)))
            drawn = rng.permutation([n for n in curves if n >= 0]).tolist()
            order = [n for n in recorded.STARTS if n in curves] + drawn
            values = {n: by_seed[seed] for n, by_seed in curves.items()}
            price = {n: seconds[n][seed] for n in values}
            for outcomes, breadth in zip(found, BREADTHS, strict=True):
                ended = list(opening(values, price, order, breadth))
                outcomes.append(judged(ended, floor, top, unit))
        name = f"{setting.agent}, {setting.env}"
        times = [f"{float(np.median([o.threshold for o in mine])):.2f}" for mine in found]
        print(f"| {name} | threshold | {' | '.join(times)} |")
        areas = [[100 * o.area for o in mine] for mine in found]
        cells = [recorded.against(mine, areas[0]) for mine in areas]
        print(f"| {name} | area, % | {' | '.join(cells)} |", flush=True)


# ----------------------------------------------------------------------------------------- endings

Scores = dict[int, dict[int, float]]  # configuration -> test seed -> score
Spend = Callable[[Sequence[int], int, Sequence[int], Scores], Scores]


class Ending(NamedTuple):
    """A way to spend test seeds: finalists beside the defaults, the part of the trainings."""

    how: str
    finalists: int
    part: float


ENDINGS = (
    Ending("race", 3, 0.4), Ending("race", 5, 0.4), Ending("top two", 3, 0.4),
    Ending("top two", 3, 0.3), Ending("top two", 5, 0.3), Ending("halving", 3, 0.4),
    Ending("halving", 7, 0.4),
)  # fmt: skip


def race(finalists: Sequence[int], limit: int, seeds: Sequence[int], scores: Scores) -> Scores:
    """Spend the test seeds as a search does."""
    from rltune.answer.tournament import Tournament

    tournament = Tournament(_entries(finalists), seeds, len(seeds) - 1)
    for _ in range(limit):
        if (job := tournament.next_job(())) is None:
            break
        finalist, seed = job
        tournament.record(finalist.trial, seed, scores[finalist.trial][seed])
    return {f.trial: dict(f.seeds) for f in tournament.results()}


def top_two(finalists: Sequence[int], limit: int, seeds: Sequence[int], scores: Scores) -> Scores:
    """One each; then to the best or its closest rival, whichever has fewer."""
    got = _one_each(finalists, limit, seeds, scores)
    for _ in range(limit - len(got)):
        means = {n: fmean(known.values()) for n, known in got.items()}
        best = max(means, key=lambda n: means[n])

        def gap(n: int, best: int = best, means: dict[int, float] = means) -> float:
            return (means[best] - means[n]) / math.sqrt(1 / len(got[best]) + 1 / len(got[n]))

        rivals = [n for n in got if n != best and len(got[n]) < len(seeds)]
        open_ones = ([min(rivals, key=gap)] if rivals else []) + [best]
        number = min(open_ones, key=lambda n: len(got[n]))
        if len(got[number]) == len(seeds):
            break
        got[number][seeds[len(got[number])]] = scores[number][seeds[len(got[number])]]
    return got


def halving(finalists: Sequence[int], limit: int, seeds: Sequence[int], scores: Scores) -> Scores:
    """One each; then to the better half and the defaults, down to two."""
    got = _one_each(finalists, limit, seeds, scores)
    left, alive = limit - len(got), list(got)
    while left > 0 and min(len(got[n]) for n in alive) < len(seeds):
        alive.sort(key=lambda n: -fmean(got[n].values()))
        alive = alive[: max(2, math.ceil(len(alive) / 2))]
        for number in dict.fromkeys([*alive, finalists[0]]):
            if left > 0 and len(got[number]) < len(seeds):
                got[number][seeds[len(got[number])]] = scores[number][seeds[len(got[number])]]
                left -= 1
    return got


def _entries(finalists: Sequence[int]) -> list[Finalist]:
    """Return the finalists as those of a search; the first one is the defaults."""
    from rltune.answer.model import Finalist

    return [
        Finalist(trial=n, config={}, origins=("default",) if i == 0 else ("sampler",))
        for i, n in enumerate(finalists)
    ]


def _one_each(finalists: Sequence[int], limit: int, seeds: Sequence[int], scores: Scores) -> Scores:
    return {n: {seeds[0]: scores[n][seeds[0]]} for n in finalists[:limit]}


HOW = {"race": race, "top two": top_two, "halving": halving}


def endings(repetitions: int) -> None:
    """Print the true return of the configuration that is named."""
    names = [f"{e.how}, {e.finalists}, {e.part:.0%}" for e in ENDINGS]
    print(f"| agent, environment | trainings | {' | '.join(names)} |\n{'|---' * (2 + len(names))}|")
    for setting in recorded.SETTINGS:
        for total in (20, 30, 45):
            found = [
                true_returns(setting, total, e.finalists, e.part, HOW[e.how], repetitions)
                for e in ENDINGS
            ]
            cells = [recorded.against(mine, found[0]) for mine in found]
            name = f"{setting.agent}, {setting.env}"
            print(f"| {name} | {total} | {' | '.join(cells)} |", flush=True)


# ------------------------------------------------------------------------------------ dear defaults

DEAR = (3.0, 4.0, 6.0)  # trainings of a finalist that one of the defaults takes
OF_DEFAULTS = (3, 2, 1)  # seeds of the defaults for which there has to be time


def dear(repetitions: int) -> None:
    """Print the true return of the configuration that is named."""
    names = [f"{plural(n, 'seed')} of the defaults" for n in OF_DEFAULTS]
    print(f"| agent, environment | trainings | price | {' | '.join(names)} |")
    print("|---" * (3 + len(names)) + "|")
    for setting in recorded.SETTINGS:
        for total, price in itertools.product((30, 45, 60), DEAR):
            found = [
                true_returns(setting, total, 3, 0.4, partial(short_of_time, n, price), repetitions)
                for n in OF_DEFAULTS
            ]
            cells = [recorded.against(mine, found[0]) for mine in found]
            name = f"{setting.agent}, {setting.env}"
            print(f"| {name} | {total} | {price:g} | {' | '.join(cells)} |", flush=True)


def short_of_time(
    of_defaults: int,
    price: float,
    finalists: Sequence[int],
    limit: int,
    seeds: Sequence[int],
    scores: Scores,
) -> Scores:
    """Spend the test seeds on those for whom there is time."""
    from rltune.answer.tournament import LEAST_SEEDS, Tournament

    kept, others = finalists[:2], finalists[2:]
    for number in others:
        if price * of_defaults + LEAST_SEEDS * len(kept) <= limit:
            kept = [*kept, number]
    tournament, left = Tournament(_entries(kept), seeds, len(seeds) - 1), float(limit)

    def price_of(finalist: Finalist) -> float:
        return price if finalist.trial == finalists[0] else 1.0

    while (job := tournament.next_job((), price_of, left)) is not None:
        finalist, seed = job
        left -= price_of(finalist)
        tournament.record(finalist.trial, seed, scores[finalist.trial][seed])
    return {f.trial: dict(f.seeds) for f in tournament.results()}


_curves: dict[Any, Any] = {}


def true_returns(
    setting: recorded.Setting,
    total: int,
    finalists: int,
    part: float,
    spend: Spend,
    repetitions: int,
) -> list[float]:
    """Return the true returns of the configurations that searches name.

    Args:
        setting: agent and environment
        total: trainings of the search and its tournament
        finalists: beside the defaults
        part: of the trainings, for the tournament
        spend: the test seeds, on whom
        repetitions: for each configuration that stands for the defaults
    """
    return [
        named(setting, place, total, finalists, part, spend, repetition)
        for place in recorded.DEFAULTS_AT
        for repetition in range(repetitions)
    ]


def named(
    setting: recorded.Setting,
    place: float,
    total: int,
    finalists: int,
    part: float,
    spend: Spend,
    repetition: int,
) -> float:
    """Return the true return of the configuration that one search names; see `true_returns`."""
    from rltune.answer.model import Finalist
    from rltune.answer.ranking import build_answer

    curves = _curves.setdefault(setting, recorded.curves_of(setting))
    worst = recorded.floor(curves)
    scores = {n: {s: max(c[s][-1], worst) for s in recorded.SEEDS} for n, c in curves.items()}
    order = sorted(scores, key=lambda n: sum(scores[n].values()))
    default = order[int(place * len(order))]
    rng = np.random.default_rng(repetition)
    seeds = rng.permutation(recorded.SEEDS).tolist()
    tests, unseen, own = seeds[:TEST_SEEDS], seeds[TEST_SEEDS:-1], seeds[-1:]
    limit = round(part * total)
    pool = {n: by_seed for n, by_seed in curves.items() if n != default}
    best, _ = recorded.search(pool, recorded.POLICIES["one seed"], total - limit, own, rng)
    got = spend([default, *best[:finalists]], limit, tests, scores)
    answer = build_answer(
        Finalist(
            trial=n, config={}, origins=("default",) if n == default else ("sampler",), seeds=seeds
        )
        for n, seeds in got.items()
    )  # fmt: skip
    winner = default if answer.winner is None else answer.winner
    return fmean(scores[winner][seed] for seed in unseen)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("openings", "endings", "dear"))
    parser.add_argument("--repetitions", type=int)
    args = parser.parse_args()
    if args.what == "openings":
        openings(args.repetitions or 300)
    elif args.what == "endings":
        endings(args.repetitions or 60)
    else:
        dear(args.repetitions or 60)


if __name__ == "__main__":
    main()
