"""The state of a search that the screen shows: the driver tells it, the screen reads it.

It decides nothing and estimates nothing; how far the search is, `planning/progress.py` knows. Every
method may be called from any thread.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rltune.common.formats import count, duration, plural, score
from rltune.screen.trainings import ShownTraining

if TYPE_CHECKING:
    from rltune.planning.progress import SearchProgress, TrainingProgress
    from rltune.schedulers.base import Place, Rung

LAST = 20  # trainings that are remembered when they have ended
ENDED = {"COMPLETE": "finished", "PRUNED": "stopped early", "FAIL": "failed"}


@dataclass
class SearchView:
    """The state of a search, as far as a person watching it wants to know.

    Attributes:
        name: of the run
        agent, env: as the user calls them
        progress: how far the search is; the driver keeps it up to date
        searched: the hyperparameters that are shown of a configuration; None: all
        phase: "starting", then "search", "tournament", "stopping", "done"
        running: (trial, seed) -> its training, those that wait included
        last: the latest trainings that have ended
        incumbent: number, value and configuration of the best trial
        bests: Unix seconds and value of each incumbent so far
        rungs: the scheduler's table
        failures: number of the trial, and the reason
        messages: sentences that were shown
        test_scores: trial -> seed -> score
        labels: trial -> the finalist's name
        listener: is told every event as a line of text
    """

    name: str
    agent: str
    env: str
    progress: SearchProgress
    searched: Collection[str] | None = None
    phase: str = "starting"
    running: dict[tuple[int, int], ShownTraining] = field(default_factory=dict)
    _seeds: dict[int, list[int]] = field(default_factory=dict)  # of each running trial
    last: deque[ShownTraining] = field(default_factory=lambda: deque(maxlen=LAST))
    incumbent: tuple[int, float, dict[str, Any]] | None = None
    bests: list[tuple[float, float]] = field(default_factory=list)
    rungs: Sequence[Rung] = ()
    failures: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=20))
    messages: deque[str] = field(default_factory=lambda: deque(maxlen=20))
    test_scores: dict[int, dict[int, float]] = field(default_factory=dict)
    labels: dict[int, str] = field(default_factory=dict)
    listener: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        self.lock = threading.RLock()

    # What the driver tells

    def begin(self, phase: str) -> None:
        """Enter a phase: "search", "tournament", "stopping" or "done"."""
        with self.lock:
            if phase != self.phase:
                self.phase = phase

    def begin_tournament(
        self,
        labels: Mapping[int, str],
        left: int,
        scores: Mapping[int, Mapping[int, float]] | None = None,
    ) -> None:
        """Begin to train the finalists (trial -> name) again: so many trainings are ``left``.

        ``scores`` holds the known scores: trial -> seed -> score.
        """
        with self.lock:
            if self.phase == "tournament":
                return
            self.begin("tournament")
            self.labels = dict(labels)
            for trial, known in (scores or {}).items():
                self.test_scores[trial] = dict(known)
            if left:
                self._tell(
                    f"testing {plural(len(labels), 'finalist')} on test seeds: "
                    f"{plural(left, 'training')}"
                )

    def trial_started(
        self,
        progress: TrainingProgress,
        origin: str = "sampler",
        *,
        config: Mapping[str, Any] | None = None,
        checkpoint: str = "",
        expected: float | None = None,
    ) -> None:
        """Show a training as running. See `ShownTraining` for what else may be known of it."""
        with self.lock:
            if self.phase == "starting":
                self.begin("search")
            training = ShownTraining(progress, origin, config or {}, checkpoint, expected)
            before = self.running.get(training.key)
            if before:  # it was paused
                training.values, training.points = before.values, before.points
                training.places = before.places
            else:
                self._seeds.setdefault(training.key[0], []).append(training.key[1])
            self.running[training.key] = training

    def trial_progress(self, number: int, value: float | None = None, *, seed: int = 0) -> None:
        """Take a training's latest score, if its latest result has one."""
        with self.lock:
            training = self.running.get((number, seed))
            if training is None:
                return
            training.silent = ""
            if value is not None:
                training.values.append(value)
                training.points.append(training.progress.env_steps)

    def trial_silent(self, number: int, method: str, seed: int = 0) -> None:
        """Show that a training waits for this method of its environment; empty: no longer."""
        with self.lock:
            if training := self.running.get((number, seed)):
                training.silent = method

    def trial_paused(self, number: int, seed: int = 0) -> None:
        """Show a training as waiting until it is started again or ends."""
        with self.lock:
            if training := self.running.get((number, seed)):
                training.paused = True

    def judged(self, number: int, places: Sequence[Place]) -> bool:
        """Take how a trial stands at its rungs; return whether it has come to a new one."""
        with self.lock:
            mine = [self.running[number, seed] for seed in self._seeds.get(number, ())]
            news = any(place.rung not in training.places for training in mine for place in places)
            for training in mine:
                # What was decided is told by the first place, when it came to the rung.
                training.places = {place.rung: place for place in places} | training.places
            return news

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
            training = self.running.get((number, seed))
            is_test = training is not None and training.role == "test"
            seeds = self._seeds.get(number, [])
            for other in [seed] if is_test else sorted(seeds, key=lambda own: own != seed):
                taken_off = self.running.pop((number, other))
                taken_off.state, taken_off.reason = state, reason
                self.last.append(taken_off)
                seeds.remove(other)
            if not seeds:
                self._seeds.pop(number, None)
            what = f"trial {number}"
            if is_test:
                scores = self.test_scores.setdefault(number, {})
                scores[seed] = -math.inf if value is None or math.isnan(value) else value
                what = f"test of {self.labels.get(number, what)} on seed {seed}"
            if state == "FAIL":
                self.failures.append((number, reason))
            self._tell(f"{what} {_ending(state, reason, value, training)}")

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

    def heartbeat(self) -> str:
        """Return the state of the search in a line."""
        with self.lock:
            progress = self.progress
            if self.phase == "tournament":
                parts = [f"{progress.tests_done} of {progress.test_runs} test trainings"]
            else:
                planned = f" of {progress.trials}" if progress.trials else ""
                parts = [f"{progress.ended}{planned} trials done"]
            running = sum(not training.paused for training in self.running.values())
            parts.append(f"{running} running")
            if self.incumbent:
                parts.append(f"best {score(self.incumbent[1])} (trial {self.incumbent[0]})")
            if rate := progress.rate():
                parts.append(f"{count(rate)} env steps/s")
            if (left := progress.seconds_left()) is not None:
                parts.append(f"about {duration(left)} left")
            return ", ".join(parts)

    def _tell(self, line: str) -> None:
        if self.listener is not None:
            self.listener(line)


def _ending(state: str, reason: str, value: float | None, training: ShownTraining | None) -> str:
    text = ENDED.get(state, state.lower())
    if reason.startswith(text.split()[0]):  # "stopped at rung 5,556: 12 < 98"
        text, reason = reason, ""
    elif value is not None:
        text += f" with {score(value)}"
    if reason:
        text += f", {reason}"
    if training is not None:
        spent = duration(time.time() - training.progress.started)
        text += f" ({count(training.progress.env_steps)} env steps, {spent})"
    return text
