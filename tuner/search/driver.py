"""The driver of a search: it chooses the jobs, and hands their results to be judged.

Ray Tune (`execution/tune.py`) asks the driver for jobs and hands it their results; the driver knows
nothing of Ray. First come the trials of the search, then the re-trainings of the finalists on test
seeds. What a result means is decided in `judging.py` and `retesting.py`, when the search ends in
`ending.py`.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import StorageError
from rltune.objectives.seeds import TrialSeeds
from rltune.planning.prices import Prices
from rltune.search.ending import Ending
from rltune.search.jobs import Running, RunningJob, RunningTrial
from rltune.search.judging import Judge
from rltune.search.liveness import Liveness
from rltune.search.retesting import Retesting
from rltune.search.tasks import CUTOFFS, Tasks, kept_cutoffs
from rltune.study.reasons import by_callback
from rltune.study.reasons import reason as by_hand

if TYPE_CHECKING:
    from collections.abc import Callable

    from rltune.execution.messages import JobFailure, Result, Task
    from rltune.runs.stop_requests import StopRequests
    from rltune.search.parts import SearchParts


class Driver:
    """Hands out the jobs of a search and takes their results; see `tune.JobSource`.

    Args:
        parts: of the search
        requests: stops that a person asks for
        between_writes: is called often, while nothing is being written
    """

    def __init__(
        self,
        parts: SearchParts,
        requests: StopRequests | None = None,
        between_writes: Callable[[], None] = lambda: None,
    ) -> None:
        self.parts = parts
        self.requests = requests
        self.between_writes = between_writes
        trials = parts.study.trials()
        self.running = Running(parts.plan.first)
        self.tasks = Tasks(parts.spec, parts.run, parts.plan)
        self.prices = Prices(parts.study.space, parts.spec.budget, parts.plan.stops[0])
        self.prices.restore(trials)
        self.ending = Ending(parts, self.running, sum(t.state != "WAITING" for t in trials))
        self.liveness = Liveness(self.running, parts.view)
        self.retesting = Retesting(parts, self.prices, self.running, self.ending)
        self.judge = Judge(parts, self.running, self.ending, self.retesting)
        parts.progress.restore(Counter(t.state for t in trials))
        self.judge.restore(trials)
        self.retesting.foresee()
        parts.view.set_rungs(parts.scheduler.table())
        parts.recorder.show_incumbent()

    # What to run

    def next_job(self) -> Task | None:
        """Return the next job, or None when there is nothing to start right now."""
        if len(self.running.jobs) >= self.parts.progress.slots:
            return None
        job = self._next()
        while job is not None and not self._may_begin(job):
            job = self._next()
        if job is None:
            return None
        self.running.start(job)
        trial = None if job.is_test else self.running.trials[job.number]
        done = 0 if trial is None else trial.seeds.run(job.seed).env_steps
        self.parts.recorder.job_started(job, done, self.prices.seconds(job.task["config"]))
        return job.task

    def use_the_time(self) -> None:
        """Do what can wait, unless a worker waits for a job."""
        jobs, slots, study = self.running.jobs, self.parts.progress.slots, self.parts.study
        if len(jobs) < slots and not self.exhausted():
            return
        self.parts.recorder.tidy()
        if self.retesting.is_outdated:
            self.retesting.foresee()
        # With one worker every proposal knows all results; those of several miss some anyway.
        if not 1 < slots <= len(jobs) or study.is_ahead or not self.ending.more_trials():
            return
        if all(job.silence is not None for job in jobs.values()):  # every worker has begun
            study.ask_ahead()

    def _next(self) -> RunningJob | None:
        job = self._next_of_search()
        if job is None and self.ending.tournament_may_run():
            job = self._next_test()
        return job

    def _may_begin(self, job: RunningJob) -> bool:
        """Tell the callbacks of a trial; return False where one ends it before it begins."""
        if job.is_test:
            return True
        trial = self.running.trials[job.number]
        if not self.parts.events.trial_begins(trial):
            return True
        self._end_by_callback(trial)
        return False

    def _end_by_callback(self, trial: RunningTrial) -> None:
        steps = max((run.env_steps for run in trial.seeds.runs.values()), default=0)
        self.judge.end(trial, "PRUNED", by_callback(steps))

    def _next_of_search(self) -> RunningJob | None:
        training = self._next_training()
        if training is None:
            return None
        trial, seed = training
        name = self.running.job_name(trial.number, seed)
        segment = self.parts.scheduler.segment(trial.number)
        deadline = self.ending.search_deadline()
        return RunningJob(self.tasks.of_trial(name, trial, seed, segment, deadline), trial.origin)

    def _next_training(self) -> tuple[RunningTrial, int] | None:
        """Return the next training of the search: trials that run come before new ones."""
        if self.ending.search_time_is_up():
            return None
        plan, active = self.parts.plan, False
        for trial in self.running.trials.values():
            if plan.most == 1 and self.running.is_training(trial.number, plan.first):
                active = True  # and all that there is to train
                continue
            if self.judge.waits(trial):
                continue
            active = True
            for seed in trial.seeds.to_train():
                if not self.running.is_training(trial.number, seed):
                    return trial, seed
        if not self.ending.more_trials():
            if self.running.trials and not active:
                self.parts.scheduler.next_segments()
                return self._next_training()
            return None
        asked = self.parts.study.ask(self._is_affordable, self._about_new)
        self.ending.trial_asked(found=asked is not None)
        if asked is None:
            return None
        seeds, cutoffs = TrialSeeds(self.parts.plan), kept_cutoffs(asked.attrs)
        trial = RunningTrial(asked.number, asked.config, asked.origin, seeds, cutoffs=cutoffs)
        self.running.trials[trial.number] = trial
        return trial, trial.seeds.to_train()[0]

    def _is_affordable(self, config: dict[str, Any]) -> bool:
        """Whether there is time to bring a trial to its first rung."""
        return self.prices.affordable(config, self.ending.search_deadline() - time.time())

    def _about_new(self, number: int) -> dict[str, Any]:
        """Return what the study keeps of a new trial: a resumed one is evaluated as before."""
        cutoffs = self.tasks.cutoffs(number, self.parts.scheduler)
        return {CUTOFFS: cutoffs} if cutoffs else {}

    def _next_test(self) -> RunningJob | None:
        found = self.retesting.next_test()
        if found is None:
            return None
        finalist, seed = found
        name = self.running.job_name(finalist.trial, seed)
        task = self.tasks.of_test(name, finalist, seed, self.ending.deadline)
        return RunningJob(task, "+".join(finalist.origins))

    def exhausted(self) -> bool:
        """Whether no further job will ever come."""
        if self.ending.search_goes_on():
            return False
        if not self.parts.spec.tournament or self.ending.time_is_up():
            return True
        return not self.ending.is_searching() and self.retesting.next_test() is None

    def should_stop(self) -> bool:
        """Whether everything has to stop now.

        Raises:
            StorageError: the run directory was deleted.
        """
        if not self.parts.run.is_there:
            raise StorageError(f"{self.parts.run.path} is gone.")
        self.between_writes()
        self.obey()
        return self.ending.is_now()

    # What came of it

    def on_start(self, job: str) -> None:
        """Note that a worker has begun, or begun again, with the job."""
        self.liveness.started(job)

    def hanging(self) -> list[str]:
        """Return the jobs whose workers have not reported for much too long, each once."""
        return self.liveness.hanging()

    def on_silence(self, job: str, method: str) -> None:
        """Show that an environment does not answer, or (empty) that it has."""
        self.liveness.show_silence(job, method)

    def on_result(self, job: str, result: Result) -> bool:
        """Write the result down, and return whether the job ends with it."""
        running = self.running.jobs.get(job)
        if running is None:  # it ended while this result was on its way
            self.running.worker_knows(job)
            return True
        self.liveness.reported(running)
        row = self.parts.recorder.write(running, result)
        stop = False
        if not running.is_test:
            if row is not None:
                stop = self.parts.events.reported(self.running.trials[running.number], row)
            config = running.task["config"]
            self.prices.observe(running.number, config, running.seconds, running.env_steps)
            self.ending.warn_of_too_short_a_limit()
        self.parts.recorder.show(running, result.objective)
        judge = self.retesting.judge if running.is_test else self.judge.judge
        ends = judge(running, result)
        if stop and (trial := self.running.trials.get(running.number)):
            self._end_by_callback(trial)
            ends = True
        if ends:
            self.running.worker_knows(job)
        return ends

    def on_retry(self, job: str, failure: JobFailure) -> None:
        """Note a failure that is tried again from the checkpoint."""
        if running := self.running.jobs.get(job):
            if not running.is_test:
                self.running.trials[running.number].retries += 1
            running.traceback = failure.traceback
            reason = self.liveness.explain(job, failure.reason)
            self.parts.view.message(f"{running.name}: {reason}; trying again")

    def on_failure(self, job: str, failure: JobFailure) -> None:
        """Record a job that failed after its last retry; the search goes on."""
        if failure.metric_is_missing:
            self.ending.end_if_metric_is_missing("--metric", failure.reason.removeprefix("error: "))
        reason = self.liveness.explain(job, failure.reason)
        if running := self.running.jobs.get(job):
            running.traceback = failure.traceback
            if running.is_test:
                self.retesting.record(running, math.nan, reason)
            else:
                self.judge.end(self.running.trials[running.number], "FAIL", reason)
                if reason.startswith("error: "):  # no worker that died: that may be chance
                    self.ending.end_if_hopeless(failure)
        self.running.worker_knows(job)

    def on_slots(self, slots: int) -> None:
        """Run more jobs at once, or fewer: nodes have joined or left."""
        progress, view = self.parts.progress, self.parts.view
        view.message(f"the cluster has changed: {slots} at once, {progress.slots} before")
        progress.slots = slots

    # Its end

    @property
    def stop_requested(self) -> bool:
        """Whether everything was stopped, to be resumed later."""
        return self.ending.stop_requested

    def request_stop(self) -> None:
        """Stop everything soon, such that `rltune resume` goes on without a gap."""
        self.ending.request_stop()

    def obey(self) -> None:
        """Carry out the stops that a person has asked for; Tune calls often (`should_stop`)."""
        if self.requests is None:
            return
        for number in self.requests.pending():
            if number is None:
                self.request_stop()
            elif trial := self.running.trials.get(number):
                steps = max((run.env_steps for run in trial.seeds.runs.values()), default=0)
                # Workers that train it still learn of it with their next result.
                self.judge.end(trial, "PRUNED", by_hand(steps))
            else:
                text = f"trial {number} is not under way and was not stopped by hand"
                self.parts.view.message(text)
            self.requests.done(number)

    def finish(self) -> None:
        """End the trials for which there was no time, unless they are to be resumed."""
        if not self.stop_requested:
            self.judge.end_unfinished()
        self.parts.recorder.write_trials_table(force=True)
