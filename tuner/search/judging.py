"""Judging results of the search: which trials go on, pause, are stopped early, or have failed."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import MissingMetricError
from rltune.objectives.seeds import SeedNoise, SeedRun, TrialSeeds, judged
from rltune.search.jobs import RunningTrial
from rltune.search.tasks import kept_cutoffs
from rltune.study.reasons import TIME_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rltune.execution.messages import Result
    from rltune.search.ending import Ending
    from rltune.search.jobs import Running, RunningJob
    from rltune.search.parts import SearchParts
    from rltune.search.retesting import Retesting
    from rltune.search.stop_rules import Stop
    from rltune.study.records import TrialRecord


class Judge:
    """Decides what becomes of the trials of the search.

    Args:
        parts: of the search
        running: its jobs and trials
        ending: the time that is left
        retesting: is told when a trial has ended
    """

    def __init__(
        self, parts: SearchParts, running: Running, ending: Ending, retesting: Retesting
    ) -> None:
        self.parts = parts
        self.running = running
        self.ending = ending
        self.retesting = retesting
        self.noise = SeedNoise()
        self.points = parts.spec.points  # computed, so once

    def restore(self, trials: Iterable[TrialRecord]) -> None:
        """Take over the study's trials, and judge those that were not judged to their end."""
        for record in trials:
            seeds = self._restored(record)
            self.noise.learn(record.number, seeds)
            if record.state == "RUNNING":
                trial = RunningTrial(record.number, record.config, record.origin, seeds)
                trial.cutoffs = kept_cutoffs(record.attrs)
                self.running.trials[trial.number] = trial
        for trial in list(self.running.trials.values()):
            self._settle(trial)

    def _restored(self, record: TrialRecord) -> TrialSeeds:
        """Return the trial's runs as the study knows them."""
        plan, settled = self.parts.plan, max(record.intermediate, default=0)
        if runs := record.attrs.get("legs"):
            seeds = TrialSeeds.from_dict(plan, runs, settled)
        else:
            run = SeedRun(values=dict(record.intermediate), env_steps=settled)
            seeds = TrialSeeds(plan, {plan.first: run}, settled)
        if plan.races and record.state == "RUNNING" and settled == plan.stops[-1]:
            seeds.race()  # else it would have ended with that value
        return seeds

    def judge(self, job: RunningJob, result: Result) -> bool:
        """Conclude from a result of the search; return whether the job ends."""
        trial = self.running.trials[job.number]
        run = trial.seeds.run(job.seed)
        run.env_steps, run.seconds = job.env_steps, job.seconds
        run.objective_mean = result.objective_mean
        if failure := self._take(trial, run, job, result):
            self.end(trial, "FAIL", failure)
            return True
        if self._settle(trial, self._apply_stop_rules(job, result), result.stop_reason or ""):
            return True
        cut = result.out_of_time and not self.ending.may_go_on()
        if cut or self.ending.search_time_is_up():
            self._end_at_time_limit(trial, run.env_steps)
            return True
        if result.out_of_time or trial.seeds.waits(job.seed) or self.waits(trial):
            self.running.end(job)
            self.parts.view.trial_paused(trial.number, job.seed)
            return True
        return False

    def waits(self, trial: RunningTrial) -> bool:
        """Whether the scheduler lets the trial wait for the others."""
        segment = self.parts.scheduler.segment(trial.number)
        return segment is not None and segment.until <= trial.seeds.settled

    def _take(self, trial: RunningTrial, run: SeedRun, job: RunningJob, result: Result) -> str:
        """Take the values of a result; return why the trial fails with it, or an empty text."""
        if result.diverged:
            return f"diverged: {result.diverged}"
        if result.objective is None:
            return ""
        if not math.isfinite(result.objective):
            return f"diverged: the evaluation gave {result.objective}"
        parts = self.parts
        # The planned point, not the steps really taken: rungs compare like with like.
        point = self.points[result.iteration - 1]
        if parts.others.goals:
            try:
                run.measured[point] = parts.others.measure(result.row)
            except (MissingMetricError, ValueError) as error:
                if isinstance(error, MissingMetricError):
                    self.ending.end_if_metric_is_missing("--against", str(error))
                return f"error: {error}"
        run.values[point] = result.objective
        if (training := result.row.get("mean_reward")) is not None:
            run.training[point] = training
        parts.resource.note(trial.number, job.seed, point, job.seconds)
        run.done = result.finished
        self.noise.learn(trial.number, trial.seeds)
        if parts.plan.count > 1 or parts.others.goals or trial.seeds.races:
            self._keep_runs(trial)
        return ""

    def _keep_runs(self, trial: RunningTrial) -> None:
        self.parts.study.annotate({trial.number: {"legs": trial.seeds.to_dict()}})

    def _apply_stop_rules(self, job: RunningJob, result: Result) -> Stop | None:
        health = self.parts.health
        if health is None:
            return None
        returns = [episode["episode_return"] for episode in result.episodes]
        return health.judge((job.number, job.seed), result.row, returns)

    def _settle(self, trial: RunningTrial, stop: Stop | None = None, finish: str = "") -> bool:
        """Judge the trial at every point that all its seeds have reached; return whether it ends.

        The verdict comes before the report: whatever the study holds has been decided.

        Args:
            trial: of the search
            stop: how a stop rule ends it, unless it is finished or the scheduler ends it
            finish: why it is finished before its budget, by the agent's own rule
        """
        scheduler, view = self.parts.scheduler, self.parts.view
        number, seeds = trial.number, trial.seeds
        while (due := seeds.due()) is not None:
            point, values = due
            trial.value = judged(values, self.parts.spec.over_seeds)
            trial.others = self.parts.others.judge(number, seeds, point)
            seeds.settled = point
            doubt = self.noise.standard_error(point, len(values))
            at = self.parts.resource.at(number, point)
            verdict = scheduler.decide(number, at, trial.value, doubt, seeds.training_at(point))
            if view.judged(number, scheduler.places(number)):
                view.set_rungs(scheduler.table())
            if seeds.finished and stop is None and self._may_race(trial):
                self._keep_runs(trial)  # first: a running trial with its last value races
                self.parts.study.report(number, point, trial.value, trial.others)
                seeds.race()
                return False
            if seeds.finished:
                self.end(trial, "COMPLETE", finish, point)
                return True
            if verdict == "stop":
                self.end(trial, "PRUNED", scheduler.reason(number), point)
                return True
            if stop is not None and seeds.due() is None:
                self.end(trial, stop.state, stop.reason, point)
                return True
            self.parts.study.report(number, point, trial.value, trial.others)
        if stop is not None:
            self.end(trial, stop.state, stop.reason)
        return stop is not None

    def _may_race(self, trial: RunningTrial) -> bool:
        """Whether a trial with its whole budget gets further seeds before it counts."""
        if not self.parts.plan.races or trial.seeds.races or self.ending.search_time_is_up():
            return False
        return self.parts.scheduler.is_among_best(trial.number)

    def _end_at_time_limit(self, trial: RunningTrial, steps: int) -> None:
        """End a trial that has no more time; one that races counts with the seeds it has."""
        seeds = trial.seeds
        if not seeds.races:
            where = f"at {steps:,} env_steps" if steps else "before it could begin"
            reason = f"{TIME_LIMIT} {where}"
            if any(run.seconds for run in seeds.runs.values()):
                self.end(trial, "PRUNED", reason)
            else:  # it did not go on: what was known stays
                self.parts.study.tell(trial.number, "PRUNED", None, reason)
                self.parts.events.trial_ended(trial, "PRUNED", None, reason)
            return
        point = self.parts.plan.stops[-1]
        ended = [run.value_at(point) for run in map(seeds.run, seeds.seeds) if run.done]
        values = [value for value in ended if value is not None]
        trial.value = judged(values, self.parts.spec.over_seeds)
        trial.others = self.parts.others.judge(trial.number, seeds, point)
        self.end(trial, "COMPLETE", "", point)

    def end(self, trial: RunningTrial, state: str, reason: str, point: int | None = None) -> None:
        """Tell the study how a trial ended, with its value at the point where it did."""
        parts = self.parts
        if parts.health:
            parts.health.forget(trial.number)
        jobs = [job for job in self.running.search_jobs() if job.number == trial.number]
        trained = {job.seed for job in jobs}
        runs = {
            seed: run
            for seed, run in sorted(trial.seeds.runs.items())
            if run.env_steps or seed in trained
        }
        trial.traceback = next((job.traceback for job in jobs if job.traceback), trial.traceback)
        value = trial.value if state != "FAIL" else None
        attrs = _attributes(trial, runs, state)
        parts.study.tell(trial.number, state, value, reason, attrs, point, trial.others)
        self.running.end_trial(trial.number)
        parts.recorder.trial_ended(trial.number, state, reason, value, runs)
        parts.events.trial_ended(trial, state, value, reason)
        parts.events.incumbent_is(parts.recorder.show_incumbent())
        parts.view.set_rungs(parts.scheduler.table())
        self.retesting.trial_ended()

    def end_unfinished(self) -> None:
        """End the unfinished trials, for which there was no time."""
        for trial in list(self.running.trials.values()):
            self._end_at_time_limit(trial, trial.seeds.settled)


def _attributes(trial: RunningTrial, runs: dict[int, SeedRun], state: str) -> dict[str, Any]:
    """Return the attributes that the study keeps of a trial that has ended."""
    # A seed for which there was no time does not count.
    counted = {seed: run for seed, run in runs.items() if run.done or state != "COMPLETE"}
    means = [run.objective_mean for run in counted.values() if run.objective_mean is not None]
    return {
        "seeds": list(counted),
        "seed_objectives": [run.last for run in counted.values()],
        "seconds": sum(run.seconds for run in runs.values()),
        "budget_reached": max((run.env_steps for run in runs.values()), default=0),
        "env_steps": sum(run.env_steps for run in runs.values()),
        "retries": trial.retries,
        "started": trial.started,
        "finished": time.time(),
        "objective_mean": sum(means) / len(means) if means else None,
        "traceback": trial.traceback or None,
    }
