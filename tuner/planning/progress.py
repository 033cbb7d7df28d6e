"""Progress of a running search: what has run, how fast, and how long the rest will take.

The driver tells it of every training that starts, reports or ends. Driver and screen both ask it:
the driver for the time of the tournament (`expected_tests`), the screen for all that it shows.
Every method may be called from any thread.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from rltune.planning.deadlines import TournamentTime

RATE_WINDOW = 30.0  # seconds over which the speed is measured
SPEED_EVERY = 5.0  # seconds that a point of the curve of the speed stands for
SPEED_POINTS = 60
ENDED = ("COMPLETE", "PRUNED", "FAIL")  # the states of trials that have ended


@dataclass
class TrainingProgress:
    """The progress of a trial on one seed.

    Attributes:
        number: of the trial
        seed, role: of the training; the role is "tune" or "test"
        budget: env steps of a whole budget
        env_steps: so far
        started: Unix seconds
        first_steps: env steps at which it was started, more than 0 after a resume
        updated: Unix seconds of its last result
        seconds: of the worker's time, those of before a resume included
    """

    number: int
    seed: int
    role: str
    budget: int
    env_steps: int
    started: float
    first_steps: int
    updated: float
    seconds: float = 0.0

    @property
    def share(self) -> float:
        """The part of its budget that is done, from 0 to 1."""
        return min(1.0, self.env_steps / self.budget)

    @property
    def rate(self) -> float | None:
        """Its env steps per second, or None while it is unknown."""
        if self.seconds > 0 and self.env_steps:
            return self.env_steps / self.seconds
        seconds = self.updated - self.started
        return (self.env_steps - self.first_steps) / seconds if seconds > 0.5 else None


class Pace:
    """The speed of everything, now and over the last minutes."""

    def __init__(self) -> None:
        self._steps: deque[tuple[float, int]] = deque()
        self._marks: deque[tuple[float, int]] = deque(maxlen=SPEED_POINTS + 1)

    def add(self, env_steps: int) -> None:
        """Take the env steps of everything so far."""
        now = time.time()
        self._steps.append((now, env_steps))
        while self._steps[0][0] < now - RATE_WINDOW:
            self._steps.popleft()
        if not self._marks or now - self._marks[-1][0] >= SPEED_EVERY:
            self._marks.append((now, env_steps))

    def rate(self, env_steps: int) -> float | None:
        """Return the env steps per second; None while it is unknown."""
        if len(self._steps) < 2:
            return None
        (then, before), now = self._steps[0], time.time()
        return (env_steps - before) / (now - then) if now - then > 0.5 else None

    def speeds(self) -> list[float]:
        """Return the env steps per second over the last minutes, the latest last."""
        marks = list(self._marks)
        return [
            (steps - before) / (now - then)
            for (then, before), (now, steps) in itertools.pairwise(marks)
        ]


@dataclass
class SearchProgress:
    """The progress of a search: the trainings that have run, and those to come.

    Attributes:
        budget: env steps of a whole budget
        trials: planned; None: as many as the time limit allows
        time_limit: seconds for everything; None: no limit
        seeds: of every trial
        slots: trainings at once
        started: Unix seconds
        test_runs: re-trainings on test seeds that are expected after the search
        test_seconds: of one of them; None: unknown
        tests_done: re-trainings that have ended
        in_tournament: whether the search has given way to the tournament
        states: how many trials have ended in each state
        env_steps: of everything since the start of this process
        running: (trial, seed) -> its training, those that wait included
    """

    budget: int
    trials: int | None = None
    time_limit: float | None = None
    seeds: int = 1
    slots: int = 1
    started: float = field(default_factory=time.time)
    test_runs: int = 0
    test_seconds: float | None = None
    tests_done: int = 0
    in_tournament: bool = False
    states: Counter[str] = field(default_factory=Counter)
    env_steps: int = 0
    running: dict[tuple[int, int], TrainingProgress] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._pace = Pace()
        self._costs: list[tuple[int, float]] = []  # env steps and seconds of each training
        self._prices = 0.0  # the sum of their seconds per step: it is asked for all the time
        self._tried = 0  # trials that ended since then

    # What the driver tells

    def restore(self, states: Mapping[str, int]) -> None:
        """Take over the trials that ended before a resume, by state."""
        with self._lock:
            self.states.update({state: n for state, n in states.items() if state in ENDED})

    def begin_tournament(self, runs: int, done: int = 0) -> None:
        """Begin the tournament: so many re-trainings in all, of which some are done already."""
        with self._lock:
            self.in_tournament, self.test_runs, self.tests_done = True, runs, done

    def training_started(
        self, number: int, seed: int = 0, role: str = "tune", env_steps: int = 0
    ) -> TrainingProgress:
        """Take a training that starts, or goes on from ``env_steps``; return its progress."""
        now = time.time()
        with self._lock:
            training = TrainingProgress(
                number, seed, role, self.budget, env_steps, now, env_steps, now
            )
            self.running[number, seed] = training
            return training

    def training_progress(self, number: int, seed: int, env_steps: int, seconds: float) -> None:
        """Take a training's env steps and seconds so far."""
        with self._lock:
            training = self.running.get((number, seed))
            if training is None:
                return
            self.env_steps += max(0, env_steps - training.env_steps)
            training.env_steps, training.seconds = env_steps, seconds
            training.updated = time.time()
            self._pace.add(self.env_steps)

    def training_ended(self, number: int, seed: int, state: str) -> None:
        """Remove a training that has ended; with one of the search, the trial's others too."""
        with self._lock:
            training = self._remove(number, seed)
            if training is not None and training.role == "test":
                self.tests_done += 1
                return
            for key in [key for key in self.running if key[0] == number]:
                self._remove(*key)
            self._tried += 1
            self.states[state] += 1

    def _remove(self, number: int, seed: int) -> TrainingProgress | None:
        training = self.running.pop((number, seed), None)
        if training is not None and training.role == "tune" and training.rate:
            self._costs.append((training.env_steps, training.env_steps / training.rate))
            self._prices += 1 / training.rate
        return training

    # What driver and screen ask

    @property
    def ended(self) -> int:
        """Trials that have finished, been stopped or failed."""
        return sum(self.states.values())

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.time() - self.started

    def rate(self) -> float | None:
        """Return the env steps per second of everything, or None while it is unknown."""
        with self._lock:
            return self._pace.rate(self.env_steps)

    def speeds(self) -> list[float]:
        """Return the env steps per second over the last minutes, the latest last."""
        with self._lock:
            return self._pace.speeds()

    def share(self) -> float | None:
        """Return the share of the search or the tournament that is done; None while unknown."""
        with self._lock:
            if self.in_tournament and self.test_runs:
                tests = [t.share for t in self.running.values() if t.role == "test"]
                return min(1.0, (self.tests_done + sum(tests)) / self.test_runs)
            parts = []
            if self.trials:
                trained: defaultdict[int, float] = defaultdict(float)  # trial -> whole trainings
                for training in self.running.values():
                    trained[training.number] += training.share
                # One that races is trained on further seeds, and is one trial all the same.
                under_way = sum(min(1.0, n / self.seeds) for n in trained.values())
                parts.append((self.ended + under_way) / self.trials)
            if self.time_limit:
                parts.append(self.elapsed / self.time_limit)
            return min(1.0, max(parts)) if parts else None

    def seconds_left(self) -> float | None:
        """Return about how long the rest takes, tournament included; None while it is unknown."""
        with self._lock:
            limit = None if self.time_limit is None else max(0.0, self.time_limit - self.elapsed)
            estimate = self._estimate()
            if estimate is None or limit is None:
                # With a limit on the time alone, the search uses all of it.
                return limit if estimate is None else estimate
            return min(estimate, limit)

    def expected_tests(self, test_seeds: int) -> TournamentTime | None:
        """Return about how long the re-trainings take; None while it is unknown."""
        with self._lock:
            each = self._full_seconds() if self.test_seconds is None else self.test_seconds
            if each is None:
                return None
            return TournamentTime.of(self.test_runs, test_seeds, self.slots, each)

    def seconds_to_go(self, training: TrainingProgress) -> float | None:
        """Return the seconds that a training goes on: as far as others went that got here."""
        with self._lock:
            if not training.rate:
                return None
            beyond = [steps for steps, _ in self._costs if steps > training.env_steps]
            is_full = training.role == "test" or not beyond
            end = training.budget if is_full else sum(beyond) / len(beyond)
            return max(0.0, end - training.env_steps) / training.rate

    def _estimate(self) -> float | None:
        """Return the seconds that the rest takes: what runs at its own speed, the rest at a mean.

        No trial is sure to run its whole budget, so a trial to come costs what those before it have
        cost, the ones that were stopped early included.
        """
        running = [self.seconds_to_go(training) for training in self.running.values()]
        under_way = [seconds for seconds in running if seconds is not None]
        tests = sum(training.role == "test" for training in self.running.values())
        to_test = max(0, self.test_runs - self.tests_done - tests)
        to_try = 0
        if not self.in_tournament:
            if self.trials is None:
                return None
            trying = len({t.number for t in self.running.values() if t.role == "tune"})
            to_try = max(0, self.trials - self.ended - trying) + len(running) - len(under_way)
        full = self._full_seconds()
        if full is None:
            return None
        spent = sum(seconds for _, seconds in self._costs)
        trial = spent / self._tried if self._tried else full * self.seeds
        test = full if self.test_seconds is None else self.test_seconds
        work = sum(under_way) + to_try * trial + to_test * test
        return max([work / self.slots, *under_way])

    def _full_seconds(self) -> float | None:
        """Return the seconds of a whole budget at the mean price of a step; None while unknown."""
        if self._costs:
            return self.budget * self._prices / len(self._costs)
        running = [training for training in self.running.values() if training.rate]
        # Those that have got somewhere, if there are any: the first steps may be cheap.
        some = [training for training in running if training.share > 0.1] or running
        prices = [1 / training.rate for training in some if training.rate]
        return self.budget * sum(prices) / len(prices) if prices else None
