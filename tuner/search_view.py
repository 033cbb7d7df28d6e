"""What the screen shows of a search: the driver tells it what happens, the screen reads it.

Every method may be called from any thread.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rltune.formats import count, duration, plural, score

RATE_WINDOW = 30.0  # seconds over which the speed is measured
CURVE_POINTS = 200  # latest values kept of a running trial
ENDED = {"COMPLETE": "finished", "PRUNED": "stopped", "FAIL": "failed"}


class RungLike(Protocol):
    """A row of the scheduler's table (`asha.Rung`)."""

    @property
    def budget(self) -> int:
        """Its budget, in env_steps."""

    @property
    def entered(self) -> int:
        """Trials that reached it."""

    @property
    def stopped(self) -> int:
        """Trials that it stopped."""

    @property
    def cutoff(self) -> float | None:
        """The value that lets a trial go on."""


@dataclass
class RunningTrial:
    """A training in flight."""

    number: int
    seed: int
    role: str  # "tune" or "test"
    origin: str
    budget: int
    env_steps: int
    started: float
    first_steps: int
    updated: float
    paused: bool = False
    values: deque[float] = field(default_factory=lambda: deque(maxlen=CURVE_POINTS))

    @property
    def progress(self) -> float:
        """How much of its budget is done, from 0 to 1."""
        return min(1.0, self.env_steps / self.budget)

    @property
    def rate(self) -> float | None:
        """Its env_steps per second, or None while it is unknown."""
        seconds = self.updated - self.started
        return (self.env_steps - self.first_steps) / seconds if seconds > 0.5 else None


@dataclass
class SearchView:
    """The state of a search, as far as a person watching it wants to know.

    ``budget`` is in env_steps, times are in seconds; ``searched`` names the hyperparameters that
    the screen shows of a configuration (all when None); ``test_runs`` is the number of
    re-trainings that are expected after the search, for the time that is left.
    """

    name: str
    agent: str
    env: str
    budget: int
    trials: int | None = None
    time_limit: float | None = None
    searched: Collection[str] | None = None
    test_runs: int = 0
    started: float = field(default_factory=time.time)
    phase: str = "starting"  # then "search", "tournament", "stopping", "done"

    states: Counter[str] = field(default_factory=Counter)  # of the trials that have ended
    running: dict[tuple[int, int], RunningTrial] = field(default_factory=dict)
    incumbent: tuple[int, float, dict[str, Any]] | None = None
    rungs: Sequence[RungLike] = ()
    failures: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=20))
    messages: deque[str] = field(default_factory=lambda: deque(maxlen=20))
    env_steps: int = 0  # of everything since the start of this process
    tests_done: int = 0
    test_scores: dict[int, dict[int, float]] = field(default_factory=dict)  # trial -> seed -> score
    labels: dict[int, str] = field(default_factory=dict)  # trial -> the finalist's name
    listener: Callable[[str], None] | None = None  # is told every event as a line of text

    def __post_init__(self) -> None:
        self.lock = threading.RLock()
        self._steps: deque[tuple[float, int]] = deque()
        self._ended_before = 0  # trials that an earlier process has seen end
        self._phase_started = self.started

    # What the driver tells

    def restore(self, states: Mapping[str, int], env_steps: int = 0) -> None:
        """Take over the trials that ended before a resume, by state."""
        with self.lock:
            self.states.update({state: n for state, n in states.items() if state in ENDED})
            self._ended_before = self.ended
            self.env_steps += env_steps

    def begin(self, phase: str) -> None:
        """Enter a phase: "search", "tournament", "stopping" or "done"."""
        with self.lock:
            if phase != self.phase:
                self.phase, self._phase_started = phase, time.time()

    def begin_tournament(
        self,
        labels: Mapping[int, str],
        runs: int,
        scores: Mapping[int, Mapping[int, float]] | None = None,
    ) -> None:
        """Begin to train the finalists (trial -> name) again: so many ``runs`` in all.

        ``scores`` holds what is known already of trial -> seed -> score.
        """
        with self.lock:
            if self.phase == "tournament":
                return
            self.begin("tournament")
            self.labels, self.test_runs = dict(labels), runs
            for trial, known in (scores or {}).items():
                self.test_scores[trial] = dict(known)
            self.tests_done = sum(map(len, self.test_scores.values()))
            self._tell(
                f"testing {plural(len(labels), 'finalist')} on seeds the search never saw: "
                f"{plural(runs, 'training')}"
            )

    def trial_started(
        self,
        number: int,
        origin: str = "sampler",
        *,
        seed: int = 0,
        role: str = "tune",
        env_steps: int = 0,
    ) -> None:
        """Show a training as running; one that goes on has done ``env_steps`` already."""
        now = time.time()
        with self.lock:
            if self.phase == "starting":
                self.begin("search")
            before = self.running.get((number, seed))
            self.running[number, seed] = RunningTrial(
                number=number,
                seed=seed,
                role=role,
                origin=origin,
                budget=self.budget,
                env_steps=env_steps,
                started=now,
                first_steps=env_steps,
                updated=now,
            )
            if before:  # it was paused
                self.running[number, seed].values = before.values

    def trial_progress(
        self, number: int, env_steps: int, value: float | None = None, *, seed: int = 0
    ) -> None:
        """Take a training's env_steps so far, and its latest score where there is one."""
        now = time.time()
        with self.lock:
            trial = self.running.get((number, seed))
            if trial is None:
                return
            self.env_steps += max(0, env_steps - trial.env_steps)
            trial.env_steps, trial.updated = env_steps, now
            if value is not None:
                trial.values.append(value)
            self._steps.append((now, self.env_steps))
            while self._steps[0][0] < now - RATE_WINDOW:
                self._steps.popleft()

    def trial_paused(self, number: int, seed: int = 0) -> None:
        """Show a training as waiting; it counts as under way until it is started again or ends."""
        with self.lock:
            if trial := self.running.get((number, seed)):
                trial.paused = True

    def trial_ended(
        self,
        number: int,
        state: str,
        reason: str = "",
        value: float | None = None,
        *,
        seed: int = 0,
    ) -> None:
        """Take a training off; ``state`` is COMPLETE, PRUNED or FAIL."""
        with self.lock:
            trial = self.running.pop((number, seed), None)
            if trial is not None and trial.role == "test":
                self.tests_done += 1
                scores = self.test_scores.setdefault(number, {})
                scores[seed] = -math.inf if value is None or math.isnan(value) else value
                what = f"test of {self.labels.get(number, f'trial {number}')} on seed {seed}"
            else:
                self.states[state] += 1
                what = f"trial {number}"
            if state == "FAIL":
                self.failures.append((number, reason))
            self._tell(f"{what} {_ending(state, reason, value, trial)}")

    def set_incumbent(self, number: int, value: float, config: Mapping[str, Any]) -> None:
        """Take the best configuration among the trials that ran their whole budget."""
        with self.lock:
            news = self.incumbent is None or self.incumbent[:2] != (number, value)
            self.incumbent = (number, value, dict(config))
            if news:
                self._tell(f"trial {number} is the best so far with {score(value)}")

    def set_rungs(self, rungs: Iterable[RungLike]) -> None:
        """Take the scheduler's table, smallest budget first."""
        with self.lock:
            self.rungs = tuple(rungs)

    def message(self, text: str) -> None:
        """Show a sentence."""
        with self.lock:
            self.messages.append(text)
            self._tell(text)

    # What the screen asks

    @property
    def ended(self) -> int:
        """Trials that have finished, been stopped or failed."""
        return sum(self.states.values())

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.time() - self.started

    def rate(self) -> float | None:
        """Return the env_steps per second of everything, or None while it is unknown."""
        with self.lock:
            if len(self._steps) < 2:
                return None
            (then, before), now = self._steps[0], time.time()
            return (self.env_steps - before) / (now - then) if now - then > 0.5 else None

    def progress(self) -> float | None:
        """Return how much of the phase is done, from 0 to 1; None when nothing tells."""
        with self.lock:
            under_way = sum(trial.progress for trial in self.running.values())
            if self.phase == "tournament" and self.test_runs:
                return min(1.0, (self.tests_done + under_way) / self.test_runs)
            parts = []
            if self.trials:
                parts.append((self.ended + under_way) / self.trials)
            if self.time_limit:
                parts.append(self.elapsed / self.time_limit)
            return min(1.0, max(parts)) if parts else None

    def seconds_left(self) -> float | None:
        """Return about how long the rest takes, tournament included; None while it is unknown."""
        with self.lock:
            limit = None if self.time_limit is None else max(0.0, self.time_limit - self.elapsed)
            estimate = self._estimate()
            if estimate is None or limit is None:
                # With a limit on the time alone, the search uses all of it.
                return limit if estimate is None else estimate
            return min(estimate, limit)

    def _estimate(self) -> float | None:
        under_way = sum(trial.progress for trial in self.running.values())
        rate = self.rate()
        tests = max(0.0, self.test_runs - self.tests_done)
        if self.phase == "tournament":
            return (tests - under_way) * self.budget / rate if rate else None
        done_here = self.ended - self._ended_before + under_way
        if self.trials is None or done_here < 0.5 or (tests and not rate):
            return None
        per_trial = (time.time() - self._phase_started) / done_here
        search = max(0.0, self.trials - self.ended - under_way) * per_trial
        return search + (tests * self.budget / rate if rate else 0.0)

    def heartbeat(self) -> str:
        """Return the state of the search in a line."""
        with self.lock:
            if self.phase == "tournament":
                parts = [f"{self.tests_done} of {self.test_runs} test trainings"]
            else:
                planned = f"{self.ended} of {self.trials}" if self.trials else f"{self.ended}"
                parts = [f"{planned} trials done"]
            parts.append(f"{sum(not one.paused for one in self.running.values())} running")
            if self.incumbent:
                parts.append(f"best {score(self.incumbent[1])} (trial {self.incumbent[0]})")
            if rate := self.rate():
                parts.append(f"{count(rate)} env-steps/s")
            if (left := self.seconds_left()) is not None:
                parts.append(f"about {duration(left)} left")
            return ", ".join(parts)

    def _tell(self, line: str) -> None:
        if self.listener is not None:
            self.listener(line)


def _ending(state: str, reason: str, value: float | None, trial: RunningTrial | None) -> str:
    text = ENDED.get(state, state.lower())
    if reason.startswith(text):  # "stopped at rung 5,556: 12 < 98"
        text, reason = reason, ""
    elif value is not None:
        text += f" with {score(value)}"
    if reason:
        text += f", {reason}"
    if trial is not None:
        spent = duration(time.time() - trial.started)
        text += f" ({count(trial.env_steps)} env-steps, {spent})"
    return text
