"""Replay searches on recorded learning curves: which stopped trial deserves to go on?

    python scripts/study_seeds.py record   # the curves
    python scripts/study_curves.py         # minutes

ASHA stops a trial for good. Three policies may take one up again where it was stopped, instead of
beginning a new one, whenever a worker is free:

- *promotion*: the best one that would be let through its rung now, as in the asynchronous halving
  of Li et al. (MLSys 2020), which pauses trials instead of stopping them
- *line*: the one with the most expected improvement for its remaining cost, if that is more than a
  new trial's. Its end is foretold by a line through the values at its rung and at the end of the
  trials that had their whole budget
- *neighbours*: the same, foretold by the three trials with whole budgets whose curves are nearest

All spend the same env steps. What counts is the true return of the configuration that is best in
the search, and of that which a tournament of three on three test seeds names: the mean over seeds
that neither used. Differences to ASHA have 95 % intervals over the repetitions.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import study_seeds as recorded
from scipy.special import ndtr

POINTS = (1, 3, 9)  # evaluations at which there are rungs
WHOLE = POINTS[-1]
LIMITS = (8, 15, 30)  # whole trainings
ENOUGH = 4  # trials with whole budgets, before an end is foretold
NEIGHBOURS = 3


class State(NamedTuple):
    """What a search knows.

    Attributes:
        curves: number -> objectives up to where the trial is
        stopped: number -> index of the rung at which it was stopped
        spent: whole trainings
    """

    curves: dict[int, list[float]]
    stopped: dict[int, int]
    spent: float

    @property
    def whole(self) -> dict[int, list[float]]:
        return {n: curve for n, curve in self.curves.items() if len(curve) == WHOLE}


Choice = Callable[[State], int | None]  # the stopped trial to go on with; None: a new one
Foretell = Callable[[State, Sequence[float]], tuple[float, float]]  # mean and deviation of an end


def never(state: State) -> int | None:
    return None


def promotion(state: State) -> int | None:
    """Return the best trial among the upper third of its rung, the highest rung first."""
    for rung in (1, 0):
        values = sorted(
            (curve[POINTS[rung] - 1] for curve in state.curves.values()
             if len(curve) >= POINTS[rung]), reverse=True,
        )  # fmt: skip
        waiting = [n for n, at in state.stopped.items() if at == rung]
        if len(values) < 5 or not waiting:
            continue
        best = max(waiting, key=lambda n: state.curves[n][-1])
        if state.curves[best][-1] >= values[len(values) // 3 - 1]:
            return best
    return None


def line(state: State, curve: Sequence[float]) -> tuple[float, float]:
    """Foretell an end by a line through the values at the same point."""
    known = list(state.whole.values())
    x = np.array([other[len(curve) - 1] for other in known])
    y = np.array([other[-1] for other in known])
    spread = float(x.std()) or 1.0
    design = np.column_stack([np.ones(len(x)), (x - x.mean()) / spread])
    weights = np.linalg.solve(design.T @ design + np.diag([0.0, 1.0]), design.T @ y)
    left = y - design @ weights
    deviation = math.sqrt(float(left @ left) / max(1, len(y) - 2))
    return float(weights @ [1.0, (curve[-1] - x.mean()) / spread]), deviation


def neighbours(state: State, curve: Sequence[float]) -> tuple[float, float]:
    """Foretell an end by how much the nearest curves have risen after this point."""
    known = np.array(list(state.whole.values()))
    n = len(curve)
    distance = np.square(known[:, :n] - np.array(curve)).mean(axis=1)
    near = known[np.argsort(distance)[:NEIGHBOURS]]
    ends = curve[-1] + near[:, -1] - near[:, n - 1]
    return float(ends.mean()), float(ends.std(ddof=1)) + 1e-9


def improving(foretell: Foretell) -> Choice:
    """Return the choice by expected improvement over cost."""

    def choose(state: State) -> int | None:
        if len(state.whole) < ENOUGH or not state.stopped:
            return None
        best = max(curve[-1] for curve in state.whole.values())

        def gain(curve: Sequence[float]) -> float:
            mean, deviation = foretell(state, curve)
            z = (mean - best) / (deviation or 1e-9)
            return deviation * (z * float(ndtr(z)) + math.exp(-z * z / 2) / math.sqrt(2 * math.pi))

        first = [gain(curve[: POINTS[0]]) for curve in state.curves.values()]
        new = float(np.mean(first)) / (state.spent / len(state.curves))
        worth = {
            n: gain(state.curves[n]) / (1 - POINTS[rung] / WHOLE)
            for n, rung in state.stopped.items()
        }
        found = max(worth, key=lambda n: worth[n])
        return found if worth[found] > new else None

    return choose


CHOICES: dict[str, Choice] = {
    "asha": never,
    "promotion": promotion,
    "line": improving(line),
    "neighbours": improving(neighbours),
}


def search(
    curves: dict[int, list[float]], choose: Choice, limit: float, order: Sequence[int]
) -> Iterator[int]:
    """Run a search; yield its trials with whole budgets, the best first."""
    from rltune.schedulers.asha import ASHA

    asha, new = ASHA(POINTS), iter(order)
    state = State({}, {}, 0.0)
    while state.spent < limit:
        number = choose(state)
        if number is None and (number := next(new, None)) is None:
            break
        rung = state.stopped.pop(number, -1) + 1
        spent = state.spent
        while rung < len(POINTS):
            spent += (POINTS[rung] - (POINTS[rung - 1] if rung else 0)) / WHOLE
            value = curves[number][POINTS[rung] - 1]
            if not math.isfinite(value):
                break
            state.curves[number] = curves[number][: POINTS[rung]]
            if asha.decide(number, POINTS[rung], value) == "stop":
                state.stopped[number] = rung
                break
            rung += 1
        state = state._replace(spent=spent)
    whole = state.whole
    yield from sorted(whole, key=lambda n: whole[n][-1], reverse=True)


def outcome(curves: recorded.Curves, choose: Choice, limit: float, repetition: int) -> Any:
    """Return the true returns of the best of a search, and of the tournament's winner."""
    from rltune.stats.estimates import iqm

    rng = np.random.default_rng(repetition)
    seeds = rng.permutation(recorded.SEEDS).tolist()
    tune, tests, unseen = seeds[0], seeds[1:4], seeds[4:]
    order = rng.permutation(list(curves)).tolist()
    best = list(search({n: c[tune] for n, c in curves.items()}, choose, limit, order))
    worst = recorded.floor(curves)
    if not best:
        return worst, worst

    def true(number: int) -> float:
        return float(np.mean([max(curves[number][seed][-1], worst) for seed in unseen]))

    ends = {n: iqm([curves[n][seed][-1] for seed in tests]) for n in best[:3]}
    return true(best[0]), true(max(ends, key=lambda n: ends[n]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=300)
    args = parser.parse_args()
    for place, what in enumerate(("best of the search", "winner of the tournament")):
        print(f"\n{what}\n\n| agent, environment | trainings | {' | '.join(CHOICES)} |")
        print("|---" * (2 + len(CHOICES)) + "|")
        for setting, limit in itertools.product(recorded.SETTINGS, LIMITS):
            curves = recorded.curves_of(setting)
            found = [
                [outcome(curves, choose, limit, n)[place] for n in range(args.repetitions)]
                for choose in CHOICES.values()
            ]
            cells = [recorded.against(mine, found[0]) for mine in found]
            print(f"| {setting.agent}, {setting.env} | {limit} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
