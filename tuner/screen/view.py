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
from typing import TYPE_CHECKING, Any

from rltune.common.formats import count, duration, plural, score
from rltune.planning.deadlines import TournamentTime
from rltune.screen.trainings import Pace, Training

if TYPE_CHECKING:
    from rltune.schedulers.base import Place, Rung

LAST = 20  # trainings that are remembered when they have ended
ENDED = {"COMPLETE": "finished", "PRUNED": "stopped", "FAIL": "failed"}


@dataclass
class SearchView:
    """The state of a search, as far as a person watching it wants to know.

    ``budget`` is in env_steps, times are in seconds; ``searched`` names the hyperparameters that
    the screen shows of a configuration (all when None); ``test_runs`` is the number of
    re-trainings that are expected after the search, ``test_seconds`` what one of them takes where
    that is known, ``slots`` how many trainings run at once: for the time that is left.
    """

    name: str
    agent: str
    env: str
    budget: int
    trials: int | None = None
    time_limit: float | None = None
    seeds: int = 1  # of a trial that runs its whole budget
    searched: Collection[str] | None = None
    test_runs: int = 0
    test_seconds: float | None = None
    slots: int = 1
    started: float = field(default_factory=time.time)
    phase: str = "starting"  # then "search", "tournament", "stopping", "done"

    states: Counter[str] = field(default_factory=Counter)  # of the trials that have ended
    running: dict[tuple[int, int], Training] = field(default_factory=dict)
    last: deque[Training] = field(default_factory=lambda: deque(maxlen=LAST))  # that have ended
    incumbent: tuple[int, float, dict[str, Any]] | None = None
    bests: list[tuple[float, float]] = field(default_factory=list)  # Unix seconds, best value
    rungs: Sequence[Rung] = ()
    failures: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=20))
    messages: deque[str] = field(default_factory=lambda: deque(maxlen=20))
    env_steps: int = 0  # of everything since the start of this process
    tests_done: int = 0
    test_scores: dict[int, dict[int, float]] = field(default_factory=dict)  # trial -> seed -> score
    labels: dict[int, str] = field(default_factory=dict)  # trial -> the finalist's name
    listener: Callable[[str], None] | None = None  # is told every event as a line of text

    def __post_init__(self) -> None:
        self.lock = threading.RLock()
        self._pace = Pace()
        self._costs: list[tuple[int, float]] = []  # env_steps and seconds of each training
        self._prices = 0.0  # the sum of their seconds per step: it is asked for all the time
        self._tried = 0  # trials that ended since then

    # What the driver tells

    def restore(self, states: Mapping[str, int], env_steps: int = 0) -> None:
        """Take over the trials that ended before a resume, by state."""
        with self.lock:
            self.states.update({state: n for state, n in states.items() if state in ENDED})
            self.env_steps += env_steps

    def begin(self, phase: str) -> None:
        """Enter a phase: "search", "tournament", "stopping" or "done"."""
        with self.lock:
            if phase != self.phase:
                self.phase = phase

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
        config: Mapping[str, Any] | None = None,
        checkpoint: str = "",
        expected: float | None = None,
    ) -> None:
        """Show a training as running; one that goes on has done ``env_steps`` already.

        See `Training` for what else may be known of it.
        """
        now = time.time()
        with self.lock:
            if self.phase == "starting":
                self.begin("search")
            before = self.running.get((number, seed))
            self.running[number, seed] = Training(
                number=number,
                seed=seed,
                role=role,
                origin=origin,
                budget=self.budget,
                env_steps=env_steps,
                started=now,
                first_steps=env_steps,
                updated=now,
                config=config or {},
                checkpoint=checkpoint,
                expected=expected,
            )
            if before:  # it was paused
                after = self.running[number, seed]
                after.values, after.points = before.values, before.points
                after.places = before.places

    def trial_progress(
        self,
        number: int,
        env_steps: int,
        value: float | None = None,
        *,
        seed: int = 0,
        seconds: float = 0.0,
    ) -> None:
        """Take a training's env_steps and seconds so far, and its latest score, if there is one."""
        now = time.time()
        with self.lock:
            trial = self.running.get((number, seed))
            if trial is None:
                return
            self.env_steps += max(0, env_steps - trial.env_steps)
            trial.env_steps, trial.updated, trial.seconds = env_steps, now, seconds
            trial.silent = ""
            if value is not None:
                trial.values.append(value)
                trial.points.append(env_steps)
            self._pace.add(self.env_steps)

    def trial_silent(self, number: int, method: str, seed: int = 0) -> None:
        """Show that a training waits for this method of its environment; empty: no longer."""
        with self.lock:
            if trial := self.running.get((number, seed)):
                trial.silent = method

    def trial_paused(self, number: int, seed: int = 0) -> None:
        """Show a training as waiting; it counts as under way until it is started again or ends."""
        with self.lock:
            if trial := self.running.get((number, seed)):
                trial.paused = True

    def judged(self, number: int, places: Sequence[Place]) -> bool:
        """Take how a trial stands at its rungs; return whether it has come to a new one."""
        with self.lock:
            legs = [leg for leg in self.running.values() if leg.number == number]
            news = any(place.rung not in leg.places for leg in legs for place in places)
            for leg in legs:
                # What was decided is told by the first place, when it came to the rung.
                leg.places = {place.rung: place for place in places} | leg.places
            return news

    def _take_off(self, number: int, seed: int) -> Training | None:
        trial = self.running.pop((number, seed), None)
        if trial is not None and trial.role == "tune" and trial.rate:
            self._costs.append((trial.env_steps, trial.env_steps / trial.rate))
            self._prices += 1 / trial.rate
        return trial

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
            trial = self._take_off(number, seed)
            off = [trial]
            if trial is None or trial.role == "tune":
                off += [self._take_off(*leg) for leg in list(self.running) if leg[0] == number]
            for ended in off:
                if ended is not None:
                    ended.state, ended.reason = state, reason
                    self.last.append(ended)
            self._tried += trial is None or trial.role == "tune"
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
                self.bests.append((time.time(), value))
                self._tell(f"trial {number} is the best so far with {score(value)}")

    def set_rungs(self, rungs: Iterable[Rung]) -> None:
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
            return self._pace.rate(self.env_steps)

    def speeds(self) -> list[float]:
        """Return the env_steps per second over the last minutes, the latest last."""
        with self.lock:
            return self._pace.speeds()

    def progress(self) -> float | None:
        """Return how much of the phase is done, from 0 to 1; None when nothing tells."""
        with self.lock:
            under_way = self._under_way()
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

    def _under_way(self) -> float:
        """Return how many trials or test trainings the running ones are worth so far."""
        return sum(
            trial.progress / (1 if trial.role == "test" else self.seeds)
            for trial in self.running.values()
        )

    def expected_tests(self, test_seeds: int) -> TournamentTime | None:
        """Return about how long the re-trainings take; None while it is unknown."""
        with self.lock:
            each = self._full_seconds() if self.test_seconds is None else self.test_seconds
            if each is None:
                return None
            return TournamentTime.of(self.test_runs, test_seeds, self.slots, each)

    def _estimate(self) -> float | None:
        """Return the seconds that the rest takes: what runs at its own speed, the rest at a mean.

        Nobody is sure of a full trial, so a trial to come costs what those before it have cost,
        the ones that were stopped early included.
        """
        running = [self.seconds_to_go(trial) for trial in self.running.values()]
        under_way = [seconds for seconds in running if seconds is not None]
        tests = sum(trial.role == "test" for trial in self.running.values())
        to_test = max(0, self.test_runs - self.tests_done - tests)
        to_try = 0
        if self.phase != "tournament":
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

    def seconds_to_go(self, trial: Training) -> float | None:
        """Return how long a training goes on: as far as those that got here before have gone."""
        if not trial.rate:
            return None
        beyond = [steps for steps, _ in self._costs if steps > trial.env_steps]
        is_full = trial.role == "test" or not beyond
        end = trial.budget if is_full else sum(beyond) / len(beyond)
        return max(0.0, end - trial.env_steps) / trial.rate

    def _full_seconds(self) -> float | None:
        """Return what a full training takes at the mean price of a step; None while unknown."""
        if self._costs:
            return self.budget * self._prices / len(self._costs)
        running = [trial for trial in self.running.values() if trial.rate]
        # Those that have got somewhere, if there are any: the first steps may be cheap.
        some = [one for one in running if one.progress > 0.1] or running
        prices = [1 / trial.rate for trial in some if trial.rate]
        return self.budget * sum(prices) / len(prices) if prices else None

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


def _ending(state: str, reason: str, value: float | None, trial: Training | None) -> str:
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
