"""The search as a state machine: what runs next, and what every result means.

It speaks to the study, the scheduler, the history, wandb and the screen, and knows nothing of Ray:
Ray Tune (`launch.py`) asks it for jobs and hands it their results. First come the trials of the
search, then the re-trainings of the finalists on test seeds (`tournament.py`).
"""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import yaml
from rltune.answer import label
from rltune.asha import Leg
from rltune.lineage import news_of
from rltune.study import TIME_LIMIT
from rltune.tournament import Tournament, job_name, pick_finalists
from rltune.trials_table import write_trials

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltune.asha import Scheduler
    from rltune.history import HistoryWriter
    from rltune.launch import Failure
    from rltune.rundir import RunDir
    from rltune.search_view import SearchView
    from rltune.spec import SearchSpec
    from rltune.study import Asked, SearchStudy, TrialRecord
    from rltune.tracking import Tracker
    from rltune.trainable import Change, Result, Task

# Until trials have shown their speed, this part of the time limit is kept for the tournament.
TOURNAMENT_SHARE = 0.4
# However slow the trials are, the search itself gets the rest.
MAX_TOURNAMENT_SHARE = 0.6
# Time to write the answer and to close everything: seconds, and a part of the time limit.
CLOSING_TIME = 3.0
CLOSING_SHARE = 0.01
# The table of trials is written at most this often (seconds), and in at most this part of the time.
TRIALS_TABLE_EVERY = 2.0
TRIALS_TABLE_SHARE = 0.02
SCORES = "best/scores.yaml"


@dataclass
class Flight:
    """A job in flight."""

    task: Task
    origin: str
    started: float = field(default_factory=time.time)
    retries: int = 0
    seconds: float = 0.0
    env_steps: int = 0
    iteration: int = 0
    values: list[float] = field(default_factory=list)
    objective: float | None = None
    objective_mean: float | None = None
    traceback: str = ""

    @property
    def is_test(self) -> bool:
        """Whether this is a re-training of the tournament."""
        return self.task["role"] == "test"

    @property
    def name(self) -> str:
        """What people read."""
        number = self.task["number"]
        return f"trial {number} on seed {self.task['seed']}" if self.is_test else f"trial {number}"


class Driver:
    """Decides; see `launch.Source` for who calls what."""

    def __init__(
        self,
        spec: SearchSpec,
        run: RunDir,
        study: SearchStudy,
        scheduler: Scheduler,
        history: HistoryWriter,
        tracker: Tracker,
        view: SearchView,
        *,
        slots: int,
        started: float,
    ) -> None:
        self.spec = spec
        self.run = run
        self.study = study
        self.scheduler = scheduler
        self.history = history
        self.tracker = tracker
        self.view = view
        self.slots = slots
        self.started = started
        self.stop_requested = False
        self.flights: dict[str, Flight] = {}
        self.paused: dict[int, Flight] = {}  # by trial, until it is in flight again
        self.resumed: list[Asked] = study.unfinished()
        trials = study.trials()
        self.done_before = {t.number: max(t.intermediate, default=0) for t in trials}
        self.asked = sum(t.state != "WAITING" for t in trials)
        self.space_exhausted = False
        self.scores = read_scores(run)
        self.tournament: Tournament | None = None
        self.tournament_is_final = False
        self.table_due = 0.0
        view.restore(Counter(t.state for t in trials))
        self._expect_tests()
        view.set_rungs(scheduler.table())

    # What to run

    def next_job(self) -> Task | None:
        """Return the next job, or None when there is nothing to start right now."""
        if len(self.flights) >= self.slots:
            return None
        asked = self._next_trial()
        if asked is not None:
            task = self._task(asked.number, asked.config, "tune")
            paused = self.paused.pop(asked.number, None)
            flight = replace(paused, task=task) if paused else Flight(task, asked.origin)
        elif not self._tournament_may_run():
            return None
        else:
            job = self._tournament().next_job(self.flights)
            if job is None:
                return None
            finalist, seed = job
            task = self._task(finalist.trial, finalist.config, "test", seed, finalist.changes)
            flight = Flight(task, "+".join(finalist.origins))
        self._launch(flight)
        return flight.task

    def _launch(self, flight: Flight) -> None:
        task = flight.task
        self.flights[task["job"]] = flight
        self.view.trial_started(
            task["number"],
            flight.origin,
            seed=task["seed"],
            role=task["role"],
            env_steps=0 if flight.is_test else self.done_before.get(task["number"], 0),
        )
        self.tracker.trial_started(
            {"trial": task["number"], "origin": flight.origin},
            task["config"],
            task["seed"],
            task["role"],
        )

    def exhausted(self) -> bool:
        """Return whether no further job will ever come."""
        if self._search_goes_on():
            return False
        if not self.spec.tournament or self._out_of_time():
            return True
        return not self._searching() and self._tournament().next_job(self.flights) is None

    def should_stop(self) -> bool:
        """Return whether everything has to stop now."""
        return self.stop_requested or (not self.flights and self._out_of_time())

    def _next_trial(self) -> Asked | None:
        if self._search_time_is_up():
            return None
        if self.paused and not (self.resumed or self._searching() or self._asks_on()):
            self.scheduler.next_legs()
            self.resumed = [one for one in self.study.unfinished() if one.number in self.paused]
        if self.resumed:
            return self.resumed.pop(0)
        if not self._asks_on():
            return None
        asked = self.study.ask()
        if asked is None:
            self.space_exhausted = True
            return None
        self.asked += 1
        return asked

    def _search_goes_on(self) -> bool:
        """Whether more trials of the search are to be started."""
        if self._search_time_is_up():
            return False
        return bool(self.resumed or self.paused) or self._asks_on()

    def _asks_on(self) -> bool:
        """Whether there are trials that were never started."""
        more = self.spec.trials is None or self.asked < self.spec.trials
        return more and not self.space_exhausted

    def _tournament_may_run(self) -> bool:
        return self.spec.tournament and not self._search_goes_on() and not self._out_of_time()

    def _searching(self) -> bool:
        return any(flight.task["role"] == "tune" for flight in self.flights.values())

    def _tournament(self) -> Tournament:
        """Return the tournament as far as it is known.

        While the last trials of the search run, idle workers begin with the certain finalists.
        """
        final = not self._searching()
        if self.tournament is None or final != self.tournament_is_final:
            finalists = pick_finalists(self.study.trials(), self.spec.finalists if final else 0)
            seeds = [self.spec.test_seed(i) for i in range(self.spec.test_seeds)]
            self.tournament = Tournament(finalists, seeds, self.scores)
            self.scores = self.tournament.scores
            self.tournament_is_final = final
            if final:
                labels = {one.trial: label(one.trial, one.origins) for one in finalists}
                self.view.begin_tournament(
                    labels, self.tournament.total, nested_scores(self.scores)
                )
        return self.tournament

    def _task(
        self,
        number: int,
        config: dict[str, Any],
        role: str,
        seed: int | None = None,
        changes: Sequence[Change] = (),
    ) -> Task:
        spec = self.spec
        leg = (self.scheduler.leg(number) if role == "tune" else None) or Leg(
            0, spec.budget, config
        )
        folder = self.run.trial_dir(number)
        if seed is None:
            job, seed, checkpoint = str(number), spec.tune_seed, folder / "checkpoint.pt"
            deadline = self._search_deadline()
        else:
            job, checkpoint = job_name(number, seed), folder / f"test-{seed}.pt"
            deadline = self._deadline()
        return {
            "job": job,
            "number": number,
            "seed": seed,
            "role": role,
            "agent": spec.agent,
            "env": spec.env,
            "env_kwargs": spec.env_kwargs,
            "config": leg.config,
            "changes": list(changes),
            "total_timesteps": spec.budget,
            "points": spec.points,
            "since": leg.since,
            "until": leg.until,
            "evaluate_at": spec.evaluate_at,
            "eval_episodes": spec.eval_episodes,
            "objective": spec.objective,
            "checkpoint": str(checkpoint),
            "deadline": None if math.isinf(deadline) else deadline,
            "import_path": spec.import_path,
            "device": spec.device,
            "controls": spec.controls,
        }

    # What came of it

    def on_start(self, job: str) -> None:
        """Note that a worker has begun, or begun again, with the job."""

    def on_result(self, job: str, result: Result) -> bool:
        """Write the result down, and return whether the job ends with it."""
        flight = self.flights.get(job)
        if flight is None:  # it ended while this result was on its way
            return True
        self._write(flight, result)
        judge = self._judge_test if flight.is_test else self._judge
        self.view.trial_progress(
            flight.task["number"],
            flight.env_steps,
            result.objective,
            seed=flight.task["seed"],
        )
        return judge(flight, result)

    def on_retry(self, job: str, failure: Failure) -> None:
        """Note a failure that is tried again from the checkpoint."""
        if job in self.flights:
            flight = self.flights[job]
            flight.retries += 1
            flight.traceback = failure.traceback
            self.view.message(f"{flight.name}: {failure.reason}; trying again")

    def on_failure(self, job: str, failure: Failure) -> None:
        """Record a job that failed for good; the search goes on."""
        flight = self.flights.get(job)
        if flight is None:
            return
        flight.traceback = failure.traceback
        if flight.is_test:
            self._end_test(flight, math.nan, failure.reason)
        else:
            self._end(flight, "FAIL", failure.reason)

    def _write(self, flight: Flight, result: Result) -> None:
        """Make the result durable before anything is concluded from it."""
        task = flight.task
        key = (task["number"], task["seed"])
        last = self.history.last_iteration(*key)
        written = result.restored and result.iteration <= last
        keep = result.iteration if written else result.iteration - 1
        if last > keep:  # the trial came back from a checkpoint: what follows is written anew
            self.history.rewind(*key, keep)
        about = {
            "trial": task["number"],
            "seed": task["seed"],
            "role": task["role"],
            "iteration": result.iteration,
        }
        # By the time of its arrival, the order of the decisions can be told (`replayed`).
        row = {**result.row, "timestamp": time.time()}
        if not written:
            self.history.append({**about, **row}, [{**about, **e} for e in result.episodes])
            self.tracker.log(task["number"], task["seed"], task["role"], row)
        flight.iteration = result.iteration
        flight.env_steps = row["env_steps"]
        flight.seconds = row["time"]
        flight.objective_mean = result.objective_mean

    def _judge(self, flight: Flight, result: Result) -> bool:
        """Conclude from a result of the search; return whether the trial ends."""
        number = flight.task["number"]
        if result.diverged:
            self._end(flight, "FAIL", f"diverged: {result.diverged}")
            return True
        if result.objective is not None:
            if not math.isfinite(result.objective):
                self._end(flight, "FAIL", f"diverged: the evaluation gave {result.objective}")
                return True
            # The planned point, not the steps really taken: rungs compare like with like.
            point = self.spec.points[result.iteration - 1]
            flight.values.append(result.objective)
            flight.objective = result.objective
            self.study.report(number, point, result.objective)
            verdict = self.scheduler.decide(number, point, result.objective)
            if verdict == "stop" and not result.finished:
                self._end(flight, "PRUNED", self.scheduler.reason(number))
                return True
            if verdict == "pause" and not result.finished:
                self._pause(flight)
                return True
        if result.finished:
            self._end(flight, "COMPLETE", result.stop_reason or "")
            return True
        if result.out_of_time or self._search_time_is_up():
            self._end(flight, "PRUNED", f"{TIME_LIMIT} at {flight.env_steps:,} env_steps")
            return True
        return False

    def _pause(self, flight: Flight) -> None:
        """Take a trial from its worker; it will go on from its checkpoint."""
        number = flight.task["number"]
        self.paused[number] = self.flights.pop(flight.task["job"])
        self.done_before[number] = flight.env_steps
        self.view.trial_paused(number, flight.task["seed"])
        self.view.set_rungs(self.scheduler.table())

    def _judge_test(self, flight: Flight, result: Result) -> bool:
        """Conclude from a result of the tournament; return whether the re-training ends."""
        if result.diverged:
            self._end_test(flight, math.nan, f"diverged: {result.diverged}")
        elif result.finished and result.objective is not None:
            self._end_test(flight, result.objective, "")
        elif result.out_of_time or self._out_of_time():
            self._land(flight, "PRUNED", "time limit; not counted", None)
        else:
            return False
        return True

    def _end(self, flight: Flight, state: str, reason: str) -> None:
        """Tell the study how a trial ended."""
        attrs = {
            "seeds": [flight.task["seed"]],
            "seconds": flight.seconds,
            "budget_reached": flight.env_steps,
            "retries": flight.retries,
            "started": flight.started,
            "finished": time.time(),
            "objective_mean": flight.objective_mean,
            "traceback": flight.traceback or None,
        }
        value = flight.objective if state != "FAIL" else None
        self.study.tell(flight.task["number"], state, value, reason, attrs)
        self._land(flight, state, reason, value)
        incumbent = self.study.incumbent()
        if incumbent is not None and incumbent.value is not None:
            self.view.set_incumbent(incumbent.number, incumbent.value, incumbent.config)
        self.view.set_rungs(self.scheduler.table())
        self._expect_tests()
        self.write_trials_table()

    def _end_test(self, flight: Flight, score: float, reason: str) -> None:
        number, seed = flight.task["number"], flight.task["seed"]
        self._tournament().record(number, seed, score)
        write_scores(self.run, self.scores)
        self._land(flight, "FAIL" if reason else "COMPLETE", reason, score)

    def _land(self, flight: Flight, state: str, reason: str, value: float | None) -> None:
        number, seed = flight.task["number"], flight.task["seed"]
        del self.flights[flight.task["job"]]
        self.view.trial_ended(number, state, reason, value, seed=seed)
        summary = {
            "state": state,
            "reason": reason,
            "objective": value,
            "seconds": flight.seconds,
            "budget_reached": flight.env_steps,
        }
        self.tracker.trial_finished(number, summary, seed, flight.task["role"])

    # Time

    def _deadline(self) -> float:
        """When the whole command has to be done, in seconds since the epoch."""
        limit = self.spec.time_limit
        if limit is None:
            return math.inf
        return self.started + limit * (1 - CLOSING_SHARE) - CLOSING_TIME

    def _out_of_time(self) -> bool:
        return time.time() >= self._deadline()

    def _search_deadline(self) -> float:
        """When the search has to give way to the tournament."""
        deadline = self._deadline()
        if math.isinf(deadline) or not self.spec.tournament:
            return deadline
        assert self.spec.time_limit is not None
        share = TOURNAMENT_SHARE
        if rate := self.view.rate():
            share = self.view.test_runs * self.spec.budget / rate / self.spec.time_limit
        return deadline - min(share, MAX_TOURNAMENT_SHARE) * self.spec.time_limit

    def _expect_tests(self) -> None:
        """Foresee how many re-trainings the tournament will have."""
        if not self.spec.tournament:
            return
        trials = self.study.trials()
        complete = sum(trial.state == "COMPLETE" for trial in trials)
        finalists = len(pick_finalists(trials, self.spec.finalists))
        # The best may turn out to be among the references; until there are some, assume not.
        finalists += max(0, self.spec.finalists - complete)
        self.view.test_runs = finalists * self.spec.test_seeds

    def _search_time_is_up(self) -> bool:
        return time.time() >= self._search_deadline()

    # What is left behind

    def request_stop(self) -> None:
        """Stop everything soon, such that `rltune resume` goes on without a gap."""
        self.stop_requested = True
        self.view.begin("stopping")

    def give_up_the_rest(self) -> None:
        """End the unfinished trials for which there was no time, unless they are to be resumed."""
        if not self.stop_requested:
            for flight in self.paused.values():
                self.flights[flight.task["job"]] = flight
                self._end(flight, "PRUNED", f"{TIME_LIMIT} at {flight.env_steps:,} env_steps")
            for asked in self.resumed:
                self.study.tell(asked.number, "PRUNED", None, f"{TIME_LIMIT} before it could go on")

    def write_trials_table(self, force: bool = False) -> None:
        """Write trials.parquet from the study; now and then unless forced."""
        started = time.monotonic()
        if not force and started < self.table_due:
            return
        write_trials(self.run.trials_path, [trial_row(t) for t in self.study.trials()])
        done = time.monotonic()
        self.table_due = done + max(TRIALS_TABLE_EVERY, (done - started) / TRIALS_TABLE_SHARE)


ATTRS = (
    "objective_mean",
    "budget_reached",
    "seeds",
    "seconds",
    "started",
    "finished",
    "retries",
    "traceback",
)


def trial_row(record: TrialRecord) -> dict[str, Any]:
    """Return the trial's row of trials.parquet."""
    return {
        "trial": record.number,
        "state": record.state,
        "reason": record.reason,
        "origin": record.origin,
        "hash": record.hash,
        **{f"config.{name}": value for name, value in record.config.items()},
        "objective": record.value,
        "rung": max(record.intermediate, default=None),
        "role": "tune",
        **{name: record.attrs.get(name) for name in ATTRS},
        **({"schedule": news_of(record)} if "schedule" in record.attrs else {}),
    }


def write_scores(run: RunDir, scores: dict[tuple[int, int], float]) -> None:
    """Write the tournament's scores so far: trial -> seed -> score."""
    run.write_yaml(SCORES, nested_scores(scores))


def nested_scores(scores: dict[tuple[int, int], float]) -> dict[int, dict[int, float]]:
    """Return trial -> seed -> score."""
    nested: dict[int, dict[int, float]] = {}
    for (trial, seed), score in sorted(scores.items()):
        nested.setdefault(trial, {})[seed] = score
    return nested


def read_scores(run: RunDir) -> dict[tuple[int, int], float]:
    """Read what `write_scores` wrote; empty when it wrote nothing yet."""
    path = run.path / SCORES
    nested = yaml.safe_load(path.read_text()) if path.exists() else {}
    return {(trial, seed): score for trial, row in nested.items() for seed, score in row.items()}
