"""Several seeds per trial: seed plans, the runs of a trial on its seeds, and the noise of seeds.

A trial is one configuration, and a training of its own on each of its seeds (`SeedRun`). All
trainings of a stage meet at its end, a rung of the scheduler: there the trial is judged by the
interquartile mean over its seeds. With *racing* a trial that is among the best after its whole
budget gets further seeds, as in the intensification of SMAC (Hutter et al., "Sequential Model-Based
Optimization for General Algorithm Configuration", LION 2011). All configurations get the same
ones, so like is compared with like.

How much the seed matters is learned from the configurations that were trained on several: a value
may be too low by so many standard errors (the scheduler's `margin`) and its trial still goes on.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from rltune.agents.errors import UserError, unknown
from rltune.stats.estimates import iqm

RACING = "racing"
OVER_SEEDS = ("iqm", "mean", "worst", "q25")
MAX_SEEDS = 10


@dataclass(frozen=True)
class SeedPlan:
    """The seeds that trials are trained on.

    Attributes:
        points: env steps at which a training is evaluated, ascending
        stops: those of them at which stages end; the last is the budget
        count: seeds of every trial
        most: seeds of a trial that is among the best after its whole budget
        first: the first seed
    """

    points: tuple[int, ...]
    stops: tuple[int, ...]
    count: int = 1
    most: int = 1
    first: int = 0

    @property
    def races(self) -> bool:
        """Whether the best trials get further seeds."""
        return self.most > self.count

    def seeds(self, n: int) -> list[int]:
        """Return the first so many seeds."""
        return [self.first + index for index in range(n)]

    def stop_after(self, point: int) -> int:
        """Return the end of the stage that follows the point."""
        return self.stops[min(bisect.bisect_right(self.stops, point), len(self.stops) - 1)]


def make_plan(
    seeds: str | int, points: Sequence[int], rungs: Sequence[int], first: int = 0
) -> SeedPlan:
    """Return the plan.

    Args:
        seeds: how many, or "racing" (up to three) or "racing:N"
        points: env steps at which a training is evaluated; the last is the budget
        rungs: of the scheduler, in env steps; empty where it has none
        first: the first seed

    Raises:
        UserError: racing without rungs, or no such plan.
    """
    racing, most = parse_seeds(seeds)
    # A rung is entered with the first value at or above it.
    stops = {point for rung in rungs for point in [p for p in points if p >= rung][:1]}
    ends = sorted(stops | {points[-1]})
    if racing and len(ends) < 2:
        raise UserError(
            "--seeds racing compares trials at the scheduler's last rung, and there are none: use "
            "asha."
        )
    return SeedPlan(tuple(points), tuple(ends), 1 if racing else most, most, first)


def parse_seeds(seeds: str | int) -> tuple[bool, int]:
    """Parse a plan of seeds: whether they are raced, and their number; UserError: no plan."""
    kind, colon, text = str(seeds).partition(":")
    racing = kind == RACING
    number = text if racing and colon else "3" if racing else str(seeds)
    least = 2 if racing else 1
    if not number.isdecimal() or not least <= int(number) <= MAX_SEEDS:
        raise UserError(
            f"--seeds {seeds}: write a number from 1 to {MAX_SEEDS}, or racing, or racing:N with N "
            f"from 2 to {MAX_SEEDS}."
        )
    return racing, int(number)


@dataclass
class SeedRun:
    """The training of a trial on one seed.

    Attributes:
        values: point in env_steps -> objective
        done: it is trained to its end
        env_steps: so far
        seconds: of its training and evaluation
        objective_mean: of all its evaluations
        measured: point -> what its evaluation said of the other objectives (`goals.py`)
        training: point -> mean return of the training episodes before it, once some have ended
    """

    values: dict[int, float] = field(default_factory=dict)
    done: bool = False
    env_steps: int = 0
    seconds: float = 0.0
    objective_mean: float | None = None
    measured: dict[int, list[float]] = field(default_factory=dict)
    training: dict[int, float] = field(default_factory=dict)

    @property
    def last(self) -> float | None:
        """Its latest objective."""
        return self.values[max(self.values)] if self.values else None

    def value_at(self, point: int) -> float | None:
        """Return its objective at the point; the next one where it jumped over, None before."""
        reached = self.point_at(point)
        return None if reached is None else self.values[reached]

    def point_at(self, point: int) -> int | None:
        """Return the point of its value for that point; None: it has none yet."""
        later = min((p for p in self.values if p >= point), default=None)
        return max(self.values, default=None) if later is None and self.done else later


class TrialSeeds:
    """A trial over its seeds: its runs, and up to where it has been judged.

    Args:
        plan: the search's
        runs: seed -> run, of a search that is resumed
        settled: env steps of the last value that was judged

    Attributes:
        seeds: that it is trained on
        races: whether it gets further seeds, for being among the best
    """

    def __init__(
        self, plan: SeedPlan, runs: dict[int, SeedRun] | None = None, settled: int = 0
    ) -> None:
        self.plan = plan
        self.runs = runs or {}
        self.settled = settled
        self.seeds = plan.seeds(plan.count)
        self.races = False

    def race(self) -> None:
        """Train it on all seeds of the plan, and judge it at the end of its budget once more."""
        self.seeds, self.races = self.plan.seeds(self.plan.most), True
        self.settled = max((p for p in self.plan.points if p < self.plan.stops[-1]), default=0)

    @property
    def target(self) -> int:
        """The end of its stage, up to which its seeds are trained now."""
        return self.plan.stop_after(self.settled)

    def run(self, seed: int) -> SeedRun:
        """Return the run on the seed."""
        return self.runs.setdefault(seed, SeedRun())

    def waits(self, seed: int) -> bool:
        """Whether the run on the seed has done its part of the stage."""
        return self.run(seed).value_at(self.target) is not None

    def to_train(self) -> list[int]:
        """Return the seeds that still have to be trained in this stage, the furthest behind first.

        The order of the seeds decides between equals.
        """
        open_seeds = [seed for seed in self.seeds if not self.waits(seed)]
        return sorted(open_seeds, key=lambda seed: max(self.run(seed).values, default=0))

    @property
    def finished(self) -> bool:
        """Whether it is trained to its end on all seeds, and judged there."""
        runs = [self.run(seed) for seed in self.seeds]
        ends = [max(run.values, default=0) for run in runs]
        return all(run.done for run in runs) and self.settled >= max(ends)

    def due(self) -> tuple[int, list[float]] | None:
        """Return the next point that all runs have a value for, and their values; None: none yet.

        A point that every run jumped over is left out.
        """
        for point in self.plan.points[bisect.bisect_right(self.plan.points, self.settled) :]:
            runs = [self.run(seed) for seed in self.seeds]
            values = [value for run in runs if (value := run.value_at(point)) is not None]
            if len(values) < len(runs):
                return None
            if any(point in run.values for run in runs):
                return point, values
        return None

    def training_at(self, point: int) -> float | None:
        """Return the mean return of its training episodes there, over its seeds; None: unknown."""
        runs = [self.run(seed) for seed in self.seeds]
        at = [(run, run.point_at(point)) for run in runs]
        known = [run.training[p] for run, p in at if p is not None and p in run.training]
        return sum(known) / len(known) if known else None

    def to_dict(self) -> dict[str, Any]:
        """Return the runs in plain types."""
        return {str(seed): asdict(run) for seed, run in self.runs.items()}

    @classmethod
    def from_dict(cls, plan: SeedPlan, data: dict[str, Any], settled: int) -> TrialSeeds:
        """Read back what `to_dict` gave."""
        runs = {}
        for seed, run in data.items():
            by_point = {
                name: {int(point): value for point, value in run.get(name, {}).items()}
                for name in ("values", "measured", "training")
            }
            runs[int(seed)] = SeedRun(**{**run, **by_point})
        return cls(plan, runs, settled)


class SeedNoise:
    """The spread of values at a point between the seeds of a configuration, pooled over all."""

    def __init__(self) -> None:
        # point -> trial -> (degrees of freedom, sum of squares)
        self._squares: dict[int, dict[int, tuple[int, float]]] = {}

    def learn(self, trial: int, seeds: TrialSeeds) -> None:
        """Take what a trial's seeds have shown so far.

        With racing, that is nothing: only the best have several, and no rung waits for them.
        """
        if seeds.plan.races:
            return
        for point in seeds.plan.stops:
            values = [run.values[point] for run in seeds.runs.values() if point in run.values]
            if len(values) > 1 and all(map(math.isfinite, values)):
                mean = sum(values) / len(values)
                squares = sum((value - mean) ** 2 for value in values)
                self._squares.setdefault(point, {})[trial] = (len(values) - 1, squares)

    def standard_error(self, point: int, n: int) -> float:
        """Return the standard error of a mean over `n` seeds; 0 while nothing is known."""
        known = self._squares.get(point, {}).values()
        freedom = sum(f for f, _ in known)
        return math.sqrt(sum(s for _, s in known) / freedom / n) if freedom else 0.0


def judged(values: Sequence[float], over_seeds: str = "iqm") -> float:
    """Return the value of a trial from its values on each of its seeds.

    Args:
        values: one a seed
        over_seeds: "iqm", "mean", or to avoid risks "worst" or a lower quantile such as "q25"
    """
    if over_seeds == "iqm":
        return iqm(values)
    if over_seeds == "mean":
        return sum(values) / len(values)
    return float(np.quantile(values, quantile_of(over_seeds)))


def quantile_of(over_seeds: str) -> float:
    """Return the quantile that "worst" and "q25" stand for, in parts of 1; UserError: neither."""
    number = "0" if over_seeds == "worst" else over_seeds.removeprefix("q")
    if (over_seeds != "worst" and number == over_seeds) or not number.isdecimal():
        raise unknown("way to sum up seeds", over_seeds, OVER_SEEDS, "--over-seeds")
    if int(number) > 100:
        raise UserError(f"--over-seeds {over_seeds}: a quantile is between q0 and q100.")
    return int(number) / 100
