"""Cost forecast of a search, before it runs: `rltune plan`.

Some configurations are trained for a few seconds each (`measure.py`). The price of all others is
predicted from them (`cost_model.py`). The search is then simulated many times with its own
scheduler and made-up scores: which trial is stopped where is chance, what it costs is not.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rltune.agents.errors import UserError
from rltune.planning.bounds import most_env_steps
from rltune.planning.measure import CostMeter, MeasuredCost, Measurement
from rltune.samplers.cost_model import CostModel
from rltune.schedulers.base import NoScheduler
from rltune.schedulers.registry import is_population, make_scheduler, rungs_of
from rltune.schedulers.resource import Resource
from rltune.study.records import is_reference

if TYPE_CHECKING:
    from rltune.runs.search_spec import SearchSpec
    from rltune.space.space import Space
    from rltune.study.records import StartConfig

DRAWN = 200  # configurations whose price is predicted: the space in small
# After the starts, configurations at these places of the prices predicted so far are measured.
PLACES = (0.95, 0.05, 0.5, 0.75, 0.25, 0.9, 0.35, 0.6)
AT_LEAST = 3  # of them
PLAYED = 60  # searches
START_LEAD = 1.0  # standard deviations by which starts are better than a configuration of chance
NOISE = 0.5  # standard deviations of a score's noise, in those of the configurations' quality
# From the command to the first worker, and from the last result to the report: measured on two
# idle cores with five searches, 18 to 30 s beside their trials and the start of one worker.
RAY_SECONDS = 20.0
JOB_SECONDS = 0.1  # a worker's change to another trial, and what the driver does
MOST_TRIALS = 2000  # that a time limit alone is assumed to allow


@dataclass(frozen=True)
class About:
    """A number and how far it may be off."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float] | NDArray[Any], error: float) -> About:
        """Return the mean, from the 10 % to the 90 % quantile, widened by a relative error."""
        low, high = np.quantile(values, [0.1, 0.9])
        mean = float(np.mean(values))
        return cls(mean, float(low) / (1 + error), float(high) * (1 + error))

    def at_most(self, limit: float) -> About:
        """Return the number where it can't be above a limit."""
        return About(min(self.value, limit), min(self.low, limit), min(self.high, limit))


@dataclass(frozen=True)
class Priced:
    """A configuration with the seconds of its whole budget."""

    name: str
    config: dict[str, Any]
    measured: Measurement


@dataclass(frozen=True)
class Forecast:
    """The forecast cost of a search. Times are in seconds, memory in bytes.

    Attributes:
        trials: that are played; with a time limit alone, as many as fit
        runs: re-trainings of the tournament
        env_steps: of trials and re-trainings
        most_env_steps: that they can take; None: a time limit alone ends the search
        trial: wall seconds of the whole budget with a configuration of the space
        cpu, gpu: seconds of processors and of graphics cards; the latter are held, used or not
        wall: from the command to the answer, on these resources
        memory: of all workers together, and of one
        checkpoint, replay: bytes of a trial's checkpoint, and of the replay memory in it that is
            dropped when the trial has run to its end; the largest that were measured
        money: at the price per hour that was given
        slots: trials at once
        measured: what was measured
        libraries: the faster of the numerical libraries, by operation
        error: typical relative error of a predicted price
        is_cut: whether the time limit ends it
        seconds: that measuring and playing took
    """

    trials: int
    runs: About
    env_steps: About
    most_env_steps: int | None
    trial: About
    cpu: About
    gpu: About
    wall: About
    memory: int
    memory_each: int
    checkpoint: int
    replay: int
    money: About | None
    slots: int
    measured: tuple[Priced, ...]
    libraries: str
    error: float
    is_cut: bool
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, for JSON."""
        return asdict(self)


def forecast(
    spec: SearchSpec,
    space: Space,
    starts: Sequence[StartConfig],
    *,
    full: Callable[[dict[str, Any]], dict[str, Any]],
    slots: int,
    seconds: float = 20.0,
    price_per_hour: float | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Forecast:
    """Measure for about so many seconds and foresee the search.

    Args:
        spec: the search
        space: what is searched
        starts: the trials that come first
        full: makes a whole configuration from values of the space
        slots: trials at once
        seconds: of measuring, without the start of the process
        price_per_hour: of everything together
        tell: is told what is being done

    Raises:
        UserError: nothing could be measured.
    """
    began = time.perf_counter()
    rng = np.random.default_rng(spec.seed)
    drawn = [full(space.resolve(space.sample(rng))) for _ in range(DRAWN)]
    tell("starting a worker")
    with contextlib.closing(CostMeter(spec)) as meter:
        measured = _measure(meter, spec, space, starts, drawn, seconds, tell)
        libraries = meter.libraries()
    wall, wall_error = _predicted(space, spec, measured, drawn, lambda cost: cost.wall)
    cpu, cpu_error = _predicted(space, spec, measured, drawn, lambda cost: cost.cpu)
    own = [priced.measured for priced in measured[: len(starts)]]
    compared = [i for i, start in enumerate(starts) if is_reference(start.origin)]
    plays = _Plays(spec, own, compared, np.stack([wall, cpu], axis=2), slots, meter.start_up)
    trials = spec.trials or plays.trials_that_fit()
    steps, walls, cpus, runs = plays.play_often(trials)
    # What is not known of evaluations, and of prices that were predicted and not measured.
    unsure = float(np.mean([_spread(priced.measured) for priced in measured]))
    limit = math.inf if spec.time_limit is None else spec.time_limit
    wall_about = About.of(walls, wall_error + unsure).at_most(limit)
    return Forecast(
        trials=trials,
        runs=About.of(runs, 0.0),
        env_steps=About.of(steps, 0.0),
        most_env_steps=most_env_steps(spec, space, starts),
        trial=About.of(wall[:, -1], 0.0),
        cpu=About.of(cpus, cpu_error + unsure),
        gpu=_times(wall_about, spec.gpus_per_trial * slots),
        wall=wall_about,
        **_bytes(spec, [priced.measured for priced in measured], slots),
        money=None if price_per_hour is None else _times(wall_about, price_per_hour / 3600),
        slots=slots,
        measured=tuple(measured),
        libraries=libraries,
        error=cpu_error + unsure,
        is_cut=float(walls.mean()) > limit,
        seconds=time.perf_counter() - began,
    )


def _bytes(spec: SearchSpec, measured: Sequence[Measurement], slots: int) -> dict[str, int]:
    """Return the fields of a forecast that are in bytes."""
    memory = max(measurement.memory for measurement in measured)
    replay = max(measurement.replay for measurement in measured)
    return {
        "memory": memory * slots,
        "memory_each": memory,
        "checkpoint": max(measurement.checkpoint for measurement in measured),
        "replay": replay if spec.save_replay_buffer else 0,
    }


def _measure(
    meter: CostMeter,
    spec: SearchSpec,
    space: Space,
    starts: Sequence[StartConfig],
    drawn: Sequence[dict[str, Any]],
    seconds: float,
    tell: Callable[[str], None],
) -> list[Priced]:
    """Measure the starts, then what is predicted dear, cheap and between, as far as there is time.

    Raises:
        UserError: the first one failed already.
    """
    ends = time.perf_counter() + seconds
    each = seconds / (len(starts) + AT_LEAST + 2)
    measured: list[Priced] = []
    failed: list[str] = []
    for start in starts:
        tell(f"measuring {start.origin}")
        measured.append(Priced(start.origin, start.config, meter.measure(start.config, each)))
    for i, place in enumerate(PLACES):
        left = ends - time.perf_counter()
        if i >= AT_LEAST and left < each / 2:
            break
        prices, _ = _predicted(space, spec, measured, drawn, lambda cost: cost.cpu)
        done = [priced.config for priced in measured]
        order = [int(n) for n in np.argsort(prices[:, -1]) if drawn[n] not in done]
        config = drawn[order[min(int(place * len(order)), len(order) - 1)]]
        name = f"{place:.0%} of the space is cheaper".replace("%", " %")
        tell(f"measuring one that {name}")
        try:
            measured.append(Priced(name, config, meter.measure(config, each)))
        except UserError as error:
            failed.append(str(error))
    if len(measured) == len(starts):
        raise UserError(f"no configuration of the space could be trained: {failed[0]}.")
    return measured


def _predicted(
    space: Space,
    spec: SearchSpec,
    measured: Iterable[Priced],
    configs: Sequence[dict[str, Any]],
    part: Callable[[MeasuredCost], float],
) -> tuple[NDArray[np.float64], float]:
    """Return the seconds of trials that get to each evaluation, and a full one's typical error.

    The seconds have shape (configs, evaluations).
    """
    model = CostModel(space, spec.budget)
    known = [(priced.config, priced.measured, spec.budget) for priced in measured]
    error = _fit(model, known, part)
    # The cost of a trial that is stopped before its first update.
    known += [(config, cost, cost.warm_up) for config, cost, _ in known if cost.warm_up]
    _fit(model, known, part)
    points = spec.evaluate_at
    seconds = [model.predict(configs, point) * point for point in points]
    return np.maximum.accumulate(np.stack(seconds, axis=1), axis=1), error or 0.0


def _fit(
    model: CostModel,
    known: Sequence[tuple[dict[str, Any], Measurement, int]],
    part: Callable[[MeasuredCost], float],
) -> float | None:
    rates = [part(measured.until(steps)) / steps for _, measured, steps in known]
    steps = [steps for _, _, steps in known]
    return model.fit([config for config, _, _ in known], rates, steps).error


class _Plays:
    """Simulates the search with made-up scores.

    Args:
        spec: the search
        own: of the starts
        compared: the starts that are in the tournament whatever their score
        prices: (wall, cpu) seconds until each evaluation, of n configurations of the space:
            (n, evaluations, 2)
        slots: trials at once
        start_up: of a worker
    """

    def __init__(
        self,
        spec: SearchSpec,
        own: Sequence[Measurement],
        compared: Sequence[int],
        prices: NDArray[np.float64],
        slots: int,
        start_up: MeasuredCost,
    ) -> None:
        self.spec = spec
        costs = [[start.until(point) for point in spec.evaluate_at] for start in own]
        self.own = np.array([[(cost.wall, cost.cpu) for cost in row] for row in costs])
        self.compared = compared
        self.prices = prices
        self.slots = slots
        self.start_up = start_up

    def trials_that_fit(self) -> int:
        """Return the number of trials that a time limit alone allows."""
        assert self.spec.time_limit is not None
        fit = 1
        while fit < MOST_TRIALS:
            _, wall, _, _ = self.play(fit, np.random.default_rng(fit))
            if wall > self.spec.time_limit:
                break
            fit = max(fit + 1, round(fit * 1.1))
        return fit

    def play_often(self, trials: int) -> list[NDArray[np.float64]]:
        """Return env steps, wall and cpu seconds, and re-trainings of `PLAYED` searches."""
        rngs = [np.random.default_rng([self.spec.seed, i]) for i in range(PLAYED)]
        return [
            np.array(column) for column in zip(*(self.play(trials, r) for r in rngs), strict=True)
        ]

    def play(self, trials: int, rng: np.random.Generator) -> tuple[float, float, float, int]:
        """Return env steps, wall and cpu seconds, and re-trainings of one search."""
        spec, n_starts = self.spec, min(len(self.own), trials)
        options = (spec.scheduler, spec.budget, spec.scheduler_options)
        scheduler = NoScheduler() if is_population(spec.scheduler) else make_scheduler(*options)
        plan, resource = spec.seed_plan(rungs_of(spec)), Resource.of(spec)
        drawn = self.prices[rng.integers(len(self.prices), size=trials - n_starts)]
        full = np.concatenate([self.own[:n_starts], drawn])
        quality = rng.normal(size=trials)
        quality[:n_starts] += START_LEAD
        points = np.array(spec.evaluate_at)
        n_seeds = np.full(trials, plan.count)
        last = np.full(trials, len(points) - 1)  # index of the evaluation where a trial ends
        scores = np.full(trials, -np.inf)
        for trial in range(trials):
            for i, point in enumerate(spec.evaluate_at):
                error = NOISE / plan.count**0.5
                score = float(quality[trial] + error * rng.normal())
                known = error if plan.count > 1 else 0.0
                at = resource.after(full[trial, i, 0]) if resource.seconds else point
                if scheduler.decide(trial, at, score, known) == "stop" and point < spec.budget:
                    last[trial] = i
                    break
            else:
                scores[trial] = score
                if plan.races and scheduler.is_among_best(trial):
                    n_seeds[trial] = plan.most
        costs = full[np.arange(trials), last] * n_seeds[:, None]
        finalists = self._finalists(scores)
        tests = np.repeat(full[finalists, -1], spec.test_seeds, axis=0)
        wall = self.start_up.wall + RAY_SECONDS
        wall += _makespan(costs[:, 0], self.slots) + _makespan(tests[:, 0], self.slots)
        cpu = float(costs[:, 1].sum() + tests[:, 1].sum())
        steps = float((points[last] * n_seeds).sum()) + len(tests) * spec.budget
        return steps, wall, cpu, len(tests)

    def _finalists(self, scores: NDArray[np.float64]) -> list[int]:
        if not self.spec.tournament:
            return []
        best = [int(t) for t in np.argsort(-scores)[: self.spec.finalists] if scores[t] > -np.inf]
        return sorted({*(trial for trial in self.compared if trial < len(scores)), *best})


def _makespan(seconds: Sequence[float] | NDArray[np.float64], slots: int) -> float:
    """Return the wall seconds of jobs that are started in this order, so many at once."""
    ends = [0.0] * slots
    for job in seconds:
        heapq.heapreplace(ends, ends[0] + float(job) + JOB_SECONDS)
    return max(ends)


def _spread(measured: Measurement) -> float:
    """Return the part of a trial's price that is unsure because of its evaluations."""
    unsure = (measured.longest.cpu - measured.evaluations.cpu) / 2
    return unsure / max(measured.likely.cpu, 1e-9)


def _times(about: About, factor: float) -> About:
    return About(about.value * factor, about.low * factor, about.high * factor)


def local_slots(spec: SearchSpec) -> int:
    """Return the number of trials of the search that run at once on this machine."""
    import torch
    from rltune.cluster.address import is_elsewhere
    from rltune.cluster.resources import Resources, fitting

    resources = Resources.of(spec)
    if is_elsewhere(spec.address):
        return spec.concurrency or 1  # the cluster is not asked
    return fitting(resources, os.cpu_count() or 1, torch.cuda.device_count())
