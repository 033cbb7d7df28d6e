"""Judging portfolios: what each would have gained on an environment that it was not learned from.

The search of that environment is replayed with two workers: its starts, the portfolio's members,
its other trials in their order, each with the curve that was recorded. ASHA judges all of them
anew; a trial that it stopped then and would not now has no further values, and ends where it ended.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from json_lines import read
from rltune.schedulers.asha import ASHA

from portfolios.choose import SIZE, choose, scores
from portfolios.record import EVALUATIONS, candidates, end, file_of, number_of, searches

WORKERS = 2
POINTS = (1, 3, 9)
NEAR = 0.9  # of the way from the lowest tenth of the search to its best: the threshold


class Trial(NamedTuple):
    """A trial to replay: its evaluations, and the seconds of a whole training."""

    returns: list[float]
    seconds: float


class Variant(NamedTuple):
    """A way to begin a search with a portfolio.

    Attributes:
        size: members at most
        per_cost: see `choose`
        order: of its members, the agent's defaults and the known-good settings
    """

    size: int = SIZE
    per_cost: bool = True
    order: tuple[str, ...] = ("portfolio", "default", "start")


WITHOUT = "without"


class Outcome(NamedTuple):
    """What a replay came to.

    Attributes:
        seconds: when the first trial with the threshold's return had ended, over the search's
            length; infinite: none
        area: the mean over time of the best so far, from 0 (lowest tenth) to 1 (the search's best)
        best: the best at the end, likewise
    """

    seconds: float
    area: float
    best: float


def replay(trials: Sequence[Trial]) -> list[tuple[float, float]]:
    """Return when each trial ends, in seconds, and its objective then."""
    asha = ASHA(POINTS)
    waiting = list(enumerate(trials))
    running: list[tuple[float, int, int]] = []
    ended: list[tuple[float, float]] = []
    now = 0.0
    while waiting or running:
        while waiting and len(running) < WORKERS:
            number, trial = waiting.pop(0)
            heapq.heappush(running, (now + trial.seconds * POINTS[0] / EVALUATIONS, number, 0))
        now, number, rung = heapq.heappop(running)
        trial, point = trials[number], POINTS[rung]
        value = end(trial.returns[:point])
        goes_on = len(trial.returns) >= point and point < EVALUATIONS
        if not (goes_on and asha.decide(number, point, value) == "continue"):
            ended.append((now, value))
            continue
        after = now + trial.seconds * (POINTS[rung + 1] - point) / EVALUATIONS
        heapq.heappush(running, (after, number, rung + 1))
    return ended


def outcome(
    ended: Sequence[tuple[float, float]], low: float, high: float, length: float
) -> Outcome:
    """Return what a replay came to within ``length`` seconds."""

    def part(value: float) -> float:
        return max(0.0, (value - low) / ((high - low) or 1.0))

    best, area, last, reached = 0.0, 0.0, 0.0, math.inf
    for at, value in ended:
        if at > length:
            break
        area += best * (at - last)
        last, best = at, max(best, part(value))
        if best >= NEAR:
            reached = min(reached, at / length)
    return Outcome(reached, (area + best * (length - last)) / length, best)


def compare(agent: str, variants: Mapping[str, Variant]) -> dict[str, dict[str, Outcome]]:
    """Return for each environment what each variant comes to, and `WITHOUT` a portfolio.

    The portfolio is that of the other environments.
    """
    known, costs = scores(file_of(agent))
    origins = {candidate["name"]: candidate["of"] for candidate in candidates(agent)}
    curves: dict[tuple[str, str], Trial] = {
        (row["name"], row["env"]): Trial(row["returns"], row["seconds"])
        for row in read(file_of(agent))
        if row["what"] == "training" and row["seed"] == 0
    }
    found: dict[str, dict[str, Outcome]] = {}
    latest = max(map(number_of, searches(agent)))
    for row in searches(agent):
        env = row["env"]
        if number_of(row) < latest:
            continue
        if env not in known or env in found:  # of several samplers, the first
            continue
        parts: dict[str, list[Trial]] = {"default": [], "start": [], "sampler": []}
        for trial in row["trials"]:
            parts[trial["origin"].partition(":")[0]].append(_trial(trial))
        others = parts.pop("sampler")
        plain = replay([*parts["default"], *parts["start"], *others])
        values = sorted(value for _, value in plain if math.isfinite(value))
        low, high, length = values[len(values) // 10], values[-1], max(at for at, _ in plain)
        found[env] = {WITHOUT: outcome(plain, low, high, length)}
        for name, (size, per_cost, order) in variants.items():
            chosen = choose(known, costs, origins, without=env, size=size, per_cost=per_cost)
            parts["portfolio"] = [curves[member, env] for member in chosen]
            first = [trial for part in order for trial in parts[part]]
            found[env][name] = outcome(replay([*first, *others]), low, high, length)
    return found


def _trial(row: dict[str, Any]) -> Trial:
    return Trial(row["returns"], row["seconds"] * EVALUATIONS / max(1, len(row["returns"])))
