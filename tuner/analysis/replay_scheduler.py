"""Replaying a recorded search under another scheduler.

The evaluations of the search are gone through in the order in which they came. A trial that is
stopped earlier than it was saves env steps; a trial that was stopped, and would have gone on, is
counted apart: what would have become of it is not known. With the search's own scheduler, every
decision is the recorded one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import UserError
from rltune.objectives.goals import FurtherObjectives
from rltune.objectives.metrics import metric_of, objective_of
from rltune.objectives.seeds import SeedNoise, TrialSeeds, judged
from rltune.runs.reader import RunReader, read_run
from rltune.runs.search_spec import SearchSpec
from rltune.schedulers.base import Rung
from rltune.schedulers.registry import (
    for_several_objectives,
    is_population,
    make_scheduler,
    rungs_of,
)
from rltune.schedulers.resource import Resource

if TYPE_CHECKING:
    import pandas as pd
    from rltune.schedulers.base import Scheduler

# trial, point, objective, its standard error, training return
Report = tuple[int, int, float, float, float | None]


@dataclass(frozen=True)
class Fate:
    """The end of a trial, as recorded and as replayed.

    Attributes:
        trial: its number
        stopped_at: env steps at which the replayed scheduler stops it; None: it does not
        was_stopped_at: env steps at which the recorded one did; None: it did not
        env_steps: that the replayed scheduler spends on it, as far as they are recorded
        objective: its last recorded value up to there
    """

    trial: int
    stopped_at: int | None
    was_stopped_at: int | None
    env_steps: int
    objective: float

    @property
    def same(self) -> bool:
        """Whether both schedulers decided alike about this trial."""
        return self.stopped_at == self.was_stopped_at

    @property
    def unknown(self) -> bool:
        """Whether it would have gone on beyond what was recorded."""
        return self.was_stopped_at is not None and (
            self.stopped_at is None or self.stopped_at > self.was_stopped_at
        )


@dataclass(frozen=True)
class Replay:
    """A search under another scheduler.

    Attributes:
        scheduler: its name
        options: its options
        fates: one of each trial with a value, by number
        rungs: the scheduler's table at the end
        recorded_env_steps: what those trials took in the recorded search
        best: the best trial among those that run the whole budget; None: there is none
    """

    scheduler: str
    options: dict[str, Any]
    fates: tuple[Fate, ...]
    rungs: tuple[Rung, ...]
    recorded_env_steps: int
    best: int | None

    @property
    def env_steps(self) -> int:
        """The env steps of the trials under this scheduler, as far as they are recorded."""
        return sum(fate.env_steps for fate in self.fates)

    def to_dict(self) -> dict[str, Any]:
        """Return plain types."""
        return {
            "scheduler": self.scheduler,
            "options": self.options,
            "env_steps": self.env_steps,
            "recorded_env_steps": self.recorded_env_steps,
            "best": self.best,
            "rungs": [vars(rung) for rung in self.rungs],
            "trials": [
                {**vars(fate), "same": fate.same, "unknown": fate.unknown} for fate in self.fates
            ],
        }


def replay(
    run: str | os.PathLike[str] | RunReader,
    scheduler: str | None = None,
    scheduler_options: Mapping[str, Any] | None = None,
) -> Replay:
    """Return the decisions of a scheduler on a recorded search.

    Args:
        run: the run directory, its name, or latest
        scheduler: its name; None: the search's own, with its options
        scheduler_options: the options of ``scheduler``

    Raises:
        UserError: there is no such search, scheduler or option.
    """
    recorded, spec = searched(run, scheduler)
    if scheduler is None:
        scheduler, scheduler_options = spec.scheduler, scheduler_options or spec.scheduler_options
    options = dict(scheduler_options or {})
    others = spec.further_objectives()
    if spec.against and scheduler not in (known := for_several_objectives()):
        raise UserError(
            f"{scheduler!r} compares one number only; a search with several objectives can be "
            f"replayed with {' or '.join(known)}."
        )
    judge = make_scheduler(scheduler, spec.budget, options, others=others)
    table = recorded.trials()
    complete = set(table["trial"][table["state"] == "COMPLETE"])
    was_stopped = set(table["trial"][table["reason"].astype(str).str.startswith("stopped")])
    resource = Resource.of(spec, options, read_history=recorded.history)
    ordered = reports(recorded.history(), spec, complete, others)
    ends = _judged(judge, resource, ordered, complete)
    fates = tuple(
        Fate(
            trial=trial,
            stopped_at=end.stopped,
            was_stopped_at=end.last if trial in was_stopped else None,
            env_steps=end.env_steps,
            objective=end.objective,
        )
        for trial, end in sorted(ends.items())
    )
    whole = [fate for fate in fates if fate.trial in complete and fate.stopped_at is None]
    best = max(whole, key=lambda fate: (fate.objective, -fate.trial), default=None)
    return Replay(
        scheduler=scheduler,
        options=options,
        fates=fates,
        rungs=tuple(judge.table()),
        recorded_env_steps=sum(end.last for end in ends.values()),
        best=best.trial if best else None,
    )


@dataclass
class _End:
    """The end of a trial: the last point that is recorded, and the last that was judged."""

    last: int
    env_steps: int
    objective: float
    stopped: int | None = None


def _judged(
    judge: Scheduler, resource: Resource, ordered: Iterable[Report], complete: Collection[int]
) -> dict[int, _End]:
    """Return each trial's end under a scheduler that judges the reports in their order."""
    ends: dict[int, _End] = {}
    for trial, point, value, standard_error, training in ordered:
        end = ends.setdefault(trial, _End(point, point, value))
        end.last = point
        if end.stopped is not None:
            continue
        end.env_steps, end.objective = point, value
        at = resource.at(trial, point)
        if judge.decide(trial, at, value, standard_error, training) == "stop":
            end.stopped = point
    for trial in ends.keys() & complete:  # there was nothing left to stop
        if ends[trial].stopped == ends[trial].last:
            ends[trial].stopped = None
    return ends


def searched(
    run: str | os.PathLike[str] | RunReader, scheduler: str | None = None
) -> tuple[RunReader, SearchSpec]:
    """Return a recorded search that can be replayed; with this scheduler, if there is one.

    Raises:
        UserError: there is no such search, or it can't be replayed.
    """
    recorded = run if isinstance(run, RunReader) else read_run(run)
    if recorded.rundir.kind != "search":
        raise UserError(f"{recorded.path} is a training; only a search can be replayed.")
    spec = SearchSpec.from_dict(recorded.spec)
    for name in (scheduler, spec.scheduler):
        if is_population(name):
            raise UserError(
                f"{name} can't be replayed: it changes what trials are trained with, so with or "
                "without it the recorded evaluations would have been others."
            )
    if ":" in spec.scheduler:
        raise UserError(
            f"{recorded.path} was searched with the scheduler {spec.scheduler!r}, and what only "
            "reads a run imports no code that it names; such a search can't be replayed."
        )
    return recorded, spec


def reports(
    history: pd.DataFrame,
    spec: SearchSpec,
    complete: Collection[int],
    others: FurtherObjectives | None = None,
) -> Iterator[Report]:
    """Yield (trial, point, objective, its standard error, training return) as they were judged.

    They come in order, as the driver saw them. ``others`` knows the values of the other objectives
    by then.
    """
    others = others or FurtherObjectives()
    plan = spec.seed_plan(rungs_of(spec))
    rows = history[history["role"] == "tune"].dropna(subset=["eval_return"])
    results: list[tuple[float, int, int, int, float, bool, list[float], float]] = []
    trainings: Any = rows.sort_values("iteration").groupby(["trial", "seed"])
    for (trial, seed), mine in trainings:
        records = mine.to_dict("records")
        returns = [metric_of(row, spec.metric) for row in records]
        points = [spec.points[iteration - 1] for iteration in mine["iteration"].tolist()]
        for n, timestamp in enumerate(mine["timestamp"].tolist(), 1):
            done = trial in complete and n == len(points)
            objective = objective_of(returns[:n], spec.objective)
            measured = others.measure(records[n - 1])
            training = _number(records[n - 1].get("mean_reward"))
            results.append(
                (timestamp, trial, seed, points[n - 1], objective, done, measured, training)
            )
    raced = {trial for _, trial, seed, *_ in results if seed not in plan.seeds(plan.count)}
    trials: dict[int, TrialSeeds] = {}
    noise = SeedNoise()
    for _, trial, seed, point, objective, done, measured, training in sorted(results):
        seeds = trials.setdefault(trial, TrialSeeds(plan))
        run = seeds.run(seed)
        run.values[point], run.measured[point], run.done = objective, measured, done
        if math.isfinite(training):
            run.training[point] = training
        noise.learn(trial, seeds)
        while not seeds.finished and (due := seeds.due()) is not None:
            at, values = due
            seeds.settled = at
            others.judge(trial, seeds, at)
            value, doubt = judged(values, spec.over_seeds), noise.standard_error(at, len(values))
            yield trial, at, value, doubt, seeds.training_at(at)
        if trial in raced and seeds.finished and not seeds.races:
            seeds.race()


def training_returns(history: pd.DataFrame, spec: SearchSpec) -> dict[int, dict[int, float]]:
    """Return trial -> {point: mean return of training episodes}, of what has been judged."""
    found: dict[int, dict[int, float]] = {}
    if len(history) and "eval_return" in history:
        for trial, point, _, _, training in reports(history, spec, ()):
            if training is not None:
                found.setdefault(trial, {})[point] = training
    return found


def _number(value: float | None) -> float:
    """Return the value; NaN where there is none."""
    return math.nan if value is None else value
