"""The search as a state machine: what runs next, and what every result means.

It speaks to the study, the scheduler, the history, wandb and the screen, and knows nothing of Ray:
Ray Tune (`tune.py`) asks it for jobs and hands it their results. First come the trials of the
search, then the re-trainings of the finalists on test seeds (`tournament.py`).
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rltune.agents.config import config_hash
from rltune.agents.envs.waiting import PATIENCE, silence
from rltune.agents.errors import MissingMetricError, StorageError, UserError
from rltune.agents.user_code import place_in_own_code
from rltune.answer.model import label, tuning_quality
from rltune.answer.tournament import (
    LEAST_SEEDS,
    Tournament,
    job_name,
    nested_scores,
    pick_finalists,
    read_scores,
    write_scores,
)
from rltune.backends.checkpoints import WEIGHTS
from rltune.backends.registry import cut_off
from rltune.common.formats import duration
from rltune.objectives.goals import Others
from rltune.objectives.seeds import Entrant, Leg, SeedNoise, SeedPlan, judged
from rltune.planning.deadlines import TOURNAMENT_MARGIN, Deadlines
from rltune.planning.prices import Prices
from rltune.runs.trials_table import TrialsTable
from rltune.schedulers.resource import Resource
from rltune.space.surroundings import split
from rltune.study.reasons import TIME_LIMIT
from rltune.study.reasons import reason as by_hand
from rltune.study.records import is_reference

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rltune.answer.model import Finalist
    from rltune.execution.messages import Change, Failure, Result, Task
    from rltune.planning.deadlines import TournamentTime
    from rltune.runs.directory import RunDir
    from rltune.runs.history import HistoryWriter
    from rltune.runs.search_spec import SearchSpec
    from rltune.runs.stop_requests import StopRequests
    from rltune.schedulers.base import Scheduler
    from rltune.screen.view import SearchView
    from rltune.search.stop_rules import Health, Stop
    from rltune.study.records import TrialRecord
    from rltune.study.study import SearchStudy
    from rltune.tracking import Tracker


# A worker that has not reported for so long hangs: seconds, and times the longest that one has
# taken so far. Trials of one space differ 25-fold in price.
HANGS_AFTER = 600.0
HANGS_FACTOR = 30.0
# So many trials with the same exception, before anything came of any: it is no chance.
HOPELESS = 2
LOOK_EVERY = 10.0  # seconds; more between two looks is time in which this process slept, too


@dataclass
class Flight:
    """A job in flight.

    ``silence`` is the seconds since its worker has begun or reported; None before it begins.
    """

    task: Task
    origin: str
    silence: float | None = None
    seconds: float = 0.0
    env_steps: int = 0
    traceback: str = ""

    @property
    def is_test(self) -> bool:
        """Whether this is a re-training of the tournament."""
        return self.task["role"] == "test"

    @property
    def name(self) -> str:
        """What people read."""
        number, seed = self.task["number"], self.task["seed"]
        return f"trial {number} on seed {seed}" if self.is_test or seed else f"trial {number}"


@dataclass
class Underway:
    """A trial of the search that has not ended."""

    number: int
    config: dict[str, Any]
    origin: str
    entrant: Entrant
    started: float = field(default_factory=time.time)
    retries: int = 0
    traceback: str = ""
    value: float | None = None
    others: tuple[float, ...] = ()


class Driver:
    """Decides; see `tune.Source` for who calls what."""

    def __init__(
        self,
        spec: SearchSpec,
        run: RunDir,
        study: SearchStudy,
        scheduler: Scheduler,
        plan: SeedPlan,
        history: HistoryWriter,
        tracker: Tracker,
        view: SearchView,
        *,
        others: Others | None = None,
        clock: Resource | None = None,
        health: Health | None = None,
        requests: StopRequests | None = None,
        slots: int,
        started: float,
        between_writes: Callable[[], None] = lambda: None,
    ) -> None:
        self.between_writes = between_writes
        self.spec = spec
        self.run = run
        self.study = study
        self.scheduler = scheduler
        self.plan = plan
        self.noise = SeedNoise()
        self.history = history
        self.tracker = tracker
        self.view = view
        self.others = others or Others()
        self.clock = clock or Resource(spec.budget)
        self.health = health
        self.requests = requests
        self.slots = slots
        self.deadlines = Deadlines(started, spec.time_limit, spec.tournament)
        self.stop_requested = False
        self.warned = False  # that the time is too short
        self.warned_of_cuts = False  # of evaluations' episodes
        self.flights: dict[str, Flight] = {}
        self.leaving: dict[str, Flight] = {}  # ended, but their workers don't know it yet
        self.hung: dict[str, str] = {}  # job -> why its worker was killed
        self.silent: set[str] = set()  # methods of the environment that have not answered for long
        self.longest_silence = 0.0  # seconds that a result has taken
        self.looked = time.monotonic()  # for workers that hang
        trials = study.trials()
        self.underway: dict[int, Underway] = {}
        self.asked = sum(t.state != "WAITING" for t in trials)
        self.space_exhausted = False
        self.prices = Prices(study.space, spec.budget, plan.stops[0])
        self.prices.restore(trials)
        self.scores = read_scores(run)
        self.tournament: Tournament | None = None
        self.tournament_is_final = False
        self.table = TrialsTable(run.trials_path, self.others.goals)
        view.restore(Counter(t.state for t in trials))
        view.slots = slots
        for record in trials:
            entrant = self._restored(record)
            self.noise.learn(record.number, entrant)
            if record.state == "RUNNING":
                trial = Underway(record.number, record.config, record.origin, entrant)
                self.underway[trial.number] = trial
        for trial in list(self.underway.values()):
            self._settle(trial)
        self._expect_tests()
        view.set_rungs(scheduler.table())
        self._show_incumbent()

    # What to run

    def next_job(self) -> Task | None:
        """Return the next job, or None when there is nothing to start right now."""
        if len(self.flights) >= self.slots:
            return None
        leg = self._next_leg()
        if leg is not None:
            trial, seed = leg
            task = self._task(trial.number, trial.config, "tune", seed)
            flight = Flight(task, trial.origin)
        elif not self._tournament_may_run():
            return None
        else:
            job = self._next_test()
            if job is None:
                return None
            finalist, seed = job
            task = self._task(finalist.trial, finalist.config, "test", seed, finalist.changes)
            flight = Flight(task, "+".join(finalist.origins))
        self._launch(flight)
        return flight.task

    def _launch(self, flight: Flight) -> None:
        task = flight.task
        number, seed, role = task["number"], task["seed"], task["role"]
        self.flights[task["job"]] = flight
        trial = self.underway.get(number)
        done = trial.entrant.leg(seed).env_steps if trial is not None and role == "tune" else 0
        config = task["config"]
        self.view.trial_started(
            number,
            flight.origin,
            seed=seed,
            role=role,
            env_steps=done,
            config=config,
            checkpoint=os.path.relpath(task["checkpoint"], self.run.path),
            expected=self.prices.seconds(config),
        )
        about = {"trial": number, "origin": flight.origin, "hash": config_hash(config)}
        self.tracker.trial_started(about, config, seed, role)

    def exhausted(self) -> bool:
        """Return whether no further job will ever come."""
        if self._search_goes_on():
            return False
        if not self.spec.tournament or self.deadlines.is_over():
            return True
        return not self._searching() and self._next_test() is None

    def should_stop(self) -> bool:
        """Return whether everything has to stop now.

        Raises:
            StorageError: somebody has deleted the run directory.
        """
        if not self.run.is_there:
            raise StorageError(f"{self.run.path} is gone.")
        self.between_writes()
        self.obey()
        idle = not self.flights and self.deadlines.is_over()
        return self.stop_requested or idle or self.deadlines.is_exceeded()

    def _next_leg(self) -> tuple[Underway, int] | None:
        """Return the next training of the search: trials under way come before new ones."""
        if self._search_time_is_up():
            return None
        active = [trial for trial in self.underway.values() if not self._rests(trial)]
        for trial in active:
            for seed in trial.entrant.to_train():
                if self._job(trial.number, seed) not in self.flights:
                    return trial, seed
        if not self._more_trials():
            if self.underway and not active:
                self.scheduler.next_segments()
                return self._next_leg()
            return None
        asked = self.study.ask(self._is_affordable)
        if asked is None:
            self.space_exhausted = True
            return None
        self.asked += 1
        trial = Underway(asked.number, asked.config, asked.origin, Entrant(self.plan))
        self.underway[trial.number] = trial
        return trial, trial.entrant.to_train()[0]

    def _more_trials(self) -> bool:
        return not self.space_exhausted and (
            self.spec.trials is None or self.asked < self.spec.trials
        )

    def _search_goes_on(self) -> bool:
        """Whether more trainings of the search are to be started, now or later."""
        if self._search_time_is_up():
            return False
        return self._more_trials() or any(map(self._may_grow, self.underway.values()))

    def _may_grow(self, trial: Underway) -> bool:
        """Whether further legs may have to be started: not all of its seeds are being trained."""
        seeds = self.plan.seeds_at(self.plan.stops[-1])
        return any(self._job(trial.number, seed) not in self.flights for seed in seeds)

    def _tournament_may_run(self) -> bool:
        more = self._more_trials() and not self._search_time_is_up()
        return self.spec.tournament and not more and not self.deadlines.is_over()

    def _searching(self) -> bool:
        waiting = self.underway and not self._search_time_is_up()
        return bool(waiting) or any(not flight.is_test for flight in self.flights.values())

    def _tournament(self) -> Tournament:
        """Return the tournament as far as it is known.

        While the last trials of the search run, idle workers begin with the certain finalists.
        """
        final = not self._searching()
        if self.tournament is None or final != self.tournament_is_final:
            everyone = self._finalists()
            finalists = self._affordable(everyone)
            if final and len(finalists) < len(everyone):
                self._tell_left_out([one for one in everyone if one not in finalists])
            if not final:
                finalists = [one for one in finalists if any(map(is_reference, one.origins))]
            planned = self.spec.test_seeds
            seeds = self.spec.tournament_seeds[: None if final else planned]
            race = not self.others.goals  # who is behind in one objective may lead in another
            self.tournament = Tournament(finalists, seeds, planned, self.scores, race=race)
            self.scores = self.tournament.scores
            self.tournament_is_final = final
            if final:
                labels = {one.trial: label(one.trial, one.origins) for one in finalists}
                self.view.begin_tournament(
                    labels, self.tournament.total, nested_scores(self.scores)
                )
        return self.tournament

    def _finalists(self) -> list[Finalist]:
        return pick_finalists(self.study.trials(), self.spec.finalists, self.study.minimize)

    def _next_test(self) -> tuple[Finalist, int] | None:
        """Return the next re-training for which there is time."""
        if math.isinf(self.deadlines.end):
            return self._tournament().next_job(self.flights)

        def price(one: Finalist) -> float:
            return self.prices.of_retraining(one.trial, one.config) or 0.0

        return self._tournament().next_job(self.flights, price, self.deadlines.end - time.time())

    def _affordable(self, finalists: list[Finalist]) -> list[Finalist]:
        """Return those that the time left is enough for, on as many test seeds each.

        The defaults and the best of the search are always among them. The others are asked in the
        order of their tuning scores, and join where it is enough for them as well. There are
        `LEAST_SEEDS` for each, or fewer if the two alone would take too long.
        """
        prices = {one.trial: self.prices.of_retraining(one.trial, one.config) for one in finalists}
        known = [price for price in prices.values() if price is not None]
        left = (self.deadlines.end - time.time()) * self.slots
        if not known or self.others.goals:  # of several objectives, no one is the best
            return finalists
        mean = sum(known) / len(known)
        done = Counter(trial for trial, _ in self.scores)
        least = min(LEAST_SEEDS, self.spec.test_seeds)
        by_quality = sorted(finalists, key=tuning_quality, reverse=True)
        asked = sorted(by_quality, key=lambda one: "default" not in one.origins)

        def is_enough(some: list[Finalist], seeds: int) -> bool:
            runs = [(prices[one.trial] or mean, max(0, seeds - done[one.trial])) for one in some]
            return TOURNAMENT_MARGIN * sum(price * n for price, n in runs) <= left

        kept = asked[:2]
        each = next((n for n in range(least, 1, -1) if is_enough(kept, n)), 1)
        for one in asked[2:]:
            if is_enough([*kept, one], each):
                kept.append(one)
        return [one for one in finalists if one in kept]

    def _tell_left_out(self, finalists: list[Finalist]) -> None:
        names = ", ".join(label(one.trial, one.origins) for one in finalists)
        self.view.message(f"no time to train all finalists again; left out: {names}")

    def _job(self, number: int, seed: int) -> str:
        return str(number) if seed == self.plan.first else job_name(number, seed)

    def _task(
        self,
        number: int,
        config: dict[str, Any],
        role: str,
        seed: int,
        changes: Sequence[Change] = (),
    ) -> Task:
        spec = self.spec
        tune = role == "tune"
        parts = split(config, spec.env_kwargs, spec.budget)
        segment = self.scheduler.segment(number) if tune else None
        save_at = list(self.plan.stops) if tune and self.plan.most > 1 else []
        since = max(self.underway[number].entrant.leg(seed).values, default=0) if tune else 0
        name = f"{role}-{seed}.pt"
        if tune and seed == self.plan.first:
            name = "checkpoint.pt"
        deadline = self._search_deadline() if tune else self.deadlines.end
        return {
            "job": self._job(number, seed),
            "number": number,
            "seed": seed,
            "role": role,
            "agent": spec.agent,
            "env": spec.env,
            "env_kwargs": parts.env_kwargs,
            "config": segment.config if segment else parts.config,
            "changes": list(changes),
            "total_timesteps": parts.env_steps,
            "points": _until(spec.points, parts.env_steps),
            "since": since,
            "evaluate_at": _until(spec.evaluate_at, parts.env_steps),
            "save_at": [segment.until] if segment else save_at,
            "eval_episodes": spec.eval_episodes,
            "objective": spec.objective,
            "metric": spec.metric,
            "checkpoint": str(self.run.trial_dir(number) / name),
            "deadline": None if math.isinf(deadline) else deadline,
            "import_path": spec.import_path,
            "device": spec.device,
            "controls": spec.controls,
            "eval_mode": spec.eval_mode,
            "weights": str(self.run.path / WEIGHTS) if spec.weights else None,
            "save_replay_buffer": spec.save_replay_buffer,
        }

    # What came of it

    def on_start(self, job: str) -> None:
        """Note that a worker has begun, or begun again, with the job."""
        if flight := self.flights.get(job) or self.leaving.get(job):
            flight.silence = 0.0

    def hanging(self) -> list[str]:
        """Return the jobs whose workers have not reported for much too long, each once."""
        now = time.monotonic()
        passed, self.looked = min(now - self.looked, LOOK_EVERY), now
        patience = max(HANGS_AFTER, HANGS_FACTOR * self.longest_silence)
        found = []
        for job, flight in [*self.flights.items(), *self.leaving.items()]:
            if flight.silence is None:
                continue
            flight.silence += passed
            if flight.silence > patience:
                self.hung[job] = f"hung: nothing came of it for {duration(patience)}"
                flight.silence = None
                found.append(job)
        return found

    def on_silence(self, job: str, method: str) -> None:
        """Show that an environment does not answer, or (empty) that it has."""
        if flight := self.flights.get(job):
            number, seed = flight.task["number"], flight.task["seed"]
            self.view.trial_silent(number, method, seed=seed)
            if method and method not in self.silent:
                self.silent.add(method)  # of one space, all environments may be slow
                self.view.message(f"{flight.name}: {silence(method, PATIENCE)}")

    def on_result(self, job: str, result: Result) -> bool:
        """Write the result down, and return whether the job ends with it."""
        flight = self.flights.get(job)
        if flight is None:  # it ended while this result was on its way
            self.leaving.pop(job, None)
            return True
        self.longest_silence = max(self.longest_silence, flight.silence or 0.0)
        flight.silence = 0.0
        self._write(flight, result)
        judge = self._judge_test if flight.is_test else self._judge
        self.view.trial_progress(
            flight.task["number"],
            flight.env_steps,
            result.objective,
            seed=flight.task["seed"],
            seconds=flight.seconds,
        )
        ends = judge(flight, result)
        if ends:
            self.leaving.pop(job, None)
        return ends

    def on_retry(self, job: str, failure: Failure) -> None:
        """Note a failure that is tried again from the checkpoint."""
        if job in self.flights:
            flight = self.flights[job]
            if not flight.is_test:
                self.underway[flight.task["number"]].retries += 1
            flight.traceback = failure.traceback
            reason = self.hung.pop(job, failure.reason)
            self.view.message(f"{flight.name}: {reason}; trying again")

    def on_failure(self, job: str, failure: Failure) -> None:
        """Record a job that failed for good; the search goes on."""
        if failure.metric_is_missing:
            self._lacks_metric("--metric", failure.reason.removeprefix("error: "))
        reason = self.hung.pop(job, failure.reason)
        if flight := self.flights.get(job):
            flight.traceback = failure.traceback
            if flight.is_test:
                self._end_test(flight, math.nan, reason)
            else:
                self._end(self.underway[flight.task["number"]], "FAIL", reason)
                if reason.startswith("error: "):  # no worker that died: that may be chance
                    self._give_up_on(failure)
        self.leaving.pop(job, None)

    def _give_up_on(self, failure: Failure) -> None:
        """End the search when all of its trials so far have raised the same, without one result."""
        trials = self.study.trials()
        failed = [trial for trial in trials if trial.state == "FAIL"]
        if (
            len(failed) < min(HOPELESS, self.spec.trials or HOPELESS)
            or any(trial.reason != failure.reason for trial in failed)
            or any(trial.intermediate for trial in trials)
            or any(flight.env_steps for flight in self.flights.values())
        ):
            return
        numbers = " and ".join(str(trial.number) for trial in failed)
        said = failure.reason.removeprefix("error: ")
        where = place_in_own_code(failure.traceback)
        self.write_trials_table(force=True)  # it has the traceback
        raise UserError(
            f"nothing works: trial {numbers} ended before any result with {said}"
            f"{where and f' ({where})'}. Once that is mended, start the search anew."
        )

    def on_slots(self, slots: int) -> None:
        """Run more jobs at once, or fewer: nodes have joined or left."""
        self.view.message(f"the cluster has changed: {slots} at once, {self.slots} before")
        self.slots = self.view.slots = slots

    def _lacks_metric(self, flag: str, reason: str) -> None:
        """End the search when nobody has reported the metric so far: the next trial would not."""
        if not any(trial.intermediate for trial in self.study.trials()):
            raise UserError(f"{flag}: {reason}.")

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
        if not self.warned_of_cuts and (text := cut_off(row, self.spec.env)):
            self.warned_of_cuts = True
            self.view.message(text)
        flight.env_steps = row["env_steps"]
        flight.seconds = row["time"]
        if not flight.is_test:
            self.prices.observe(task["number"], task["config"], flight.seconds, flight.env_steps)
            self._warn_of_too_short_a_limit()

    def _judge(self, flight: Flight, result: Result) -> bool:
        """Conclude from a result of the search; return whether the job ends."""
        trial, seed = self.underway[flight.task["number"]], flight.task["seed"]
        leg = trial.entrant.leg(seed)
        leg.env_steps, leg.seconds = flight.env_steps, flight.seconds
        leg.objective_mean = result.objective_mean
        if result.diverged:
            self._end(trial, "FAIL", f"diverged: {result.diverged}")
            return True
        if result.objective is not None:
            if not math.isfinite(result.objective):
                self._end(trial, "FAIL", f"diverged: the evaluation gave {result.objective}")
                return True
            # The planned point, not the steps really taken: rungs compare like with like.
            point = self.spec.points[result.iteration - 1]
            if self.others.goals:
                try:
                    leg.measured[point] = self.others.measure(result.row)
                except (MissingMetricError, ValueError) as error:
                    if isinstance(error, MissingMetricError):
                        self._lacks_metric("--against", str(error))
                    self._end(trial, "FAIL", f"error: {error}")
                    return True
            leg.values[point] = result.objective
            if (training := result.row.get("mean_reward")) is not None:
                leg.training[point] = training
            self.clock.note(trial.number, seed, point, flight.seconds)
            leg.done = result.finished
            if self.plan.most > 1 or self.others.goals:
                self.noise.learn(trial.number, trial.entrant)
                self.study.annotate({trial.number: {"legs": trial.entrant.to_dict()}})
        returns = [episode["episode_return"] for episode in result.episodes]
        key = (trial.number, seed)
        stop = self.health.judge(key, result.row, returns) if self.health else None
        if self._settle(trial, stop, result.stop_reason or ""):
            return True
        cut = result.out_of_time and not self.deadlines.has_more(self._tests())
        if cut or self._search_time_is_up():
            self._end(trial, "PRUNED", f"{TIME_LIMIT} at {leg.env_steps:,} env_steps")
            return True
        if result.out_of_time or trial.entrant.waits(seed) or self._rests(trial):
            del self.flights[flight.task["job"]]
            self.view.trial_paused(trial.number, seed)
            return True
        return False

    def _settle(self, trial: Underway, stop: Stop | None = None, why_finished: str = "") -> bool:
        """Judge the trial at every point that all its legs have reached; return whether it ends.

        The verdict comes before the report: whatever the study holds has been decided.

        Args:
            trial: of the search
            stop: how a stop rule ends it, unless it is finished or the scheduler ends it
            why_finished: the agent's own rule
        """
        entrant = trial.entrant
        while (due := entrant.due()) is not None:
            point, values = due
            trial.value = judged(values, self.spec.over_seeds)
            trial.others = self.others.judge(trial.number, entrant, point)
            entrant.settled = point
            doubt = self.noise.standard_error(point, len(values))
            at = self.clock.at(trial.number, point)
            training = entrant.training_at(point)
            verdict = self.scheduler.decide(trial.number, at, trial.value, doubt, training)
            if self.view.judged(trial.number, self.scheduler.places(trial.number)):
                self.view.set_rungs(self.scheduler.table())
            if entrant.finished:
                self._end(trial, "COMPLETE", why_finished, point)
                return True
            if verdict == "stop":
                self._end(trial, "PRUNED", self.scheduler.reason(trial.number), point)
                return True
            if stop is not None and entrant.due() is None:
                self._end(trial, stop.state, stop.reason, point)
                return True
            self.study.report(trial.number, point, trial.value, trial.others)
        if stop is not None:
            self._end(trial, stop.state, stop.reason)
        return stop is not None

    def _rests(self, trial: Underway) -> bool:
        """Whether the scheduler lets the trial wait for the others."""
        segment = self.scheduler.segment(trial.number)
        return segment is not None and segment.until <= trial.entrant.settled

    def _restored(self, record: TrialRecord) -> Entrant:
        """Return the trial's legs as the study knows them."""
        settled = max(record.intermediate, default=0)
        if legs := record.attrs.get("legs"):
            return Entrant.from_dict(self.plan, legs, settled)
        leg = Leg(values=dict(record.intermediate), env_steps=settled)
        return Entrant(self.plan, {self.plan.first: leg}, settled)

    def _judge_test(self, flight: Flight, result: Result) -> bool:
        """Conclude from a result of the tournament; return whether the re-training ends."""
        if result.diverged:
            self._end_test(flight, math.nan, f"diverged: {result.diverged}")
        elif result.finished and result.objective is not None:
            self._end_test(flight, result.objective, "")
        elif result.out_of_time or self.deadlines.is_over():
            self._land(flight, "PRUNED", "time limit; not counted", None)
        else:
            return False
        return True

    def _end(self, trial: Underway, state: str, reason: str, point: int | None = None) -> None:
        """Tell the study how a trial ended, with its value at the point where it did."""
        if self.health:
            self.health.forget(trial.number)
        flights = [
            flight
            for flight in self.flights.values()
            if flight.task["number"] == trial.number and not flight.is_test
        ]
        in_flight = {flight.task["seed"] for flight in flights}
        legs = {
            seed: leg
            for seed, leg in sorted(trial.entrant.legs.items())
            if leg.env_steps or seed in in_flight
        }
        means = [leg.objective_mean for leg in legs.values() if leg.objective_mean is not None]
        trial.traceback = next((f.traceback for f in flights if f.traceback), trial.traceback)
        attrs = {
            "seeds": list(legs),
            "seed_objectives": [leg.last for leg in legs.values()],
            "seconds": sum(leg.seconds for leg in legs.values()),
            "budget_reached": max((leg.env_steps for leg in legs.values()), default=0),
            "env_steps": sum(leg.env_steps for leg in legs.values()),
            "retries": trial.retries,
            "started": trial.started,
            "finished": time.time(),
            "objective_mean": sum(means) / len(means) if means else None,
            "traceback": trial.traceback or None,
        }
        value = trial.value if state != "FAIL" else None
        self.study.tell(trial.number, state, value, reason, attrs, point, trial.others)
        del self.underway[trial.number]
        for flight in flights:
            self.leaving[flight.task["job"]] = self.flights.pop(flight.task["job"])
        self.view.trial_ended(trial.number, state, reason, value, seed=min(legs, default=0))
        for seed, leg in legs.items():
            summary = _summary(state, reason, value, leg.seconds, leg.env_steps)
            self.tracker.trial_finished(trial.number, summary, seed, "tune")
        self._show_incumbent()
        self.view.set_rungs(self.scheduler.table())
        self._expect_tests()
        self.write_trials_table()

    def _show_incumbent(self) -> None:
        incumbent = self.study.incumbent()
        if incumbent is not None and incumbent.value is not None:
            self.view.set_incumbent(incumbent.number, incumbent.value, incumbent.config)

    def _end_test(self, flight: Flight, score: float, reason: str) -> None:
        number, seed = flight.task["number"], flight.task["seed"]
        self._tournament().record(number, seed, score)
        write_scores(self.run, self.scores)
        self._land(flight, "FAIL" if reason else "COMPLETE", reason, score)

    def _land(self, flight: Flight, state: str, reason: str, value: float | None) -> None:
        """Take a re-training of the tournament down."""
        number, seed = flight.task["number"], flight.task["seed"]
        del self.flights[flight.task["job"]]
        self.view.trial_ended(number, state, reason, value, seed=seed)
        summary = _summary(state, reason, value, flight.seconds, flight.env_steps)
        self.tracker.trial_finished(number, summary, seed, "test")

    # Time

    def _search_deadline(self) -> float:
        return self.deadlines.of_search(self._tests())

    def _tests(self) -> TournamentTime | None:
        return self.view.expected_tests(self.spec.test_seeds)

    def _expect_tests(self) -> None:
        """Foresee how many re-trainings the tournament will have."""
        if not self.spec.tournament:
            return
        trials = self.study.trials()
        complete = sum(trial.state == "COMPLETE" for trial in trials)
        finalists = self._finalists()
        # The best may turn out to be among the references; until there are some, assume not.
        count = len(finalists) + max(0, self.spec.finalists - complete)
        done = sum(trial in {one.trial for one in finalists} for trial, _ in self.scores)
        self.view.test_runs = max(0, count * self.spec.test_seeds - done)
        prices = [self.prices.seconds(finalist.config) for finalist in finalists]
        known = [price for price in prices if price is not None]
        self.view.test_seconds = sum(known) / len(known) if known else None

    def _is_affordable(self, config: dict[str, Any]) -> bool:
        """Whether there is time to bring a trial to its first rung."""
        return self.prices.affordable(config, self._search_deadline() - time.time())

    def _search_time_is_up(self) -> bool:
        return self.deadlines.search_is_over(self._tests())

    def _warn_of_too_short_a_limit(self) -> None:
        """Say once, as soon as it is known, that there will be no tournament."""
        tests = self._tests()
        if tests is not None and not self.warned and self.deadlines.too_short(tests):
            self.warned = True
            self.view.message(self.deadlines.advice(tests, self.spec.budget))

    # What is left behind

    def request_stop(self) -> None:
        """Stop everything soon, such that `rltune resume` goes on without a gap."""
        self.stop_requested = True
        self.view.begin("stopping")

    def obey(self) -> None:
        """Carry out the stops that a person has asked for; Tune calls often (`should_stop`)."""
        if self.requests is None:
            return
        for number in self.requests.pending():
            if number is None:
                self.request_stop()
            elif trial := self.underway.get(number):
                steps = max((leg.env_steps for leg in trial.entrant.legs.values()), default=0)
                # Workers that train it still learn of it with their next result.
                self._end(trial, "PRUNED", by_hand(steps))
            else:
                self.view.message(f"trial {number} is not under way and was not stopped by hand")
            self.requests.done(number)

    def give_up_the_rest(self) -> None:
        """End the unfinished trials for which there was no time, unless they are to be resumed."""
        if not self.stop_requested:
            for trial in list(self.underway.values()):
                steps = trial.entrant.settled
                where = f"at {steps:,} env_steps" if steps else "before it could begin"
                reason = f"{TIME_LIMIT} {where}"
                if any(leg.seconds for leg in trial.entrant.legs.values()):
                    self._end(trial, "PRUNED", reason)
                else:  # it did not go on: what was known stays
                    self.study.tell(trial.number, "PRUNED", None, reason)

    def write_trials_table(self, force: bool = False) -> None:
        """Write trials.parquet from the study; now and then unless forced."""
        self.table.write(self.study.trials, force)


def _until(points: Sequence[int], env_steps: int) -> list[int]:
    """Return the points of a training that ends there."""
    return [*(point for point in points if point < env_steps), env_steps]


def _summary(
    state: str, reason: str, value: float | None, seconds: float, env_steps: int
) -> dict[str, Any]:
    """Return what wandb keeps of a training that has ended."""
    return {
        "state": state,
        "reason": reason,
        "objective": value,
        "seconds": seconds,
        "budget_reached": env_steps,
    }
