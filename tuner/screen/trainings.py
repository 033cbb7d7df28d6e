"""A training as the screen knows it, and how fast everything goes."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rltune.schedulers.base import Place

CURVE_POINTS = 200  # latest values kept of a training
RATE_WINDOW = 30.0  # seconds over which the speed is measured
SPEED_EVERY = 5.0  # seconds that a point of the curve of the speed stands for
SPEED_POINTS = 60


@dataclass
class Training:
    """A trial on one seed: in flight, or one of the last that have ended.

    Attributes:
        number: of the trial
        seed, role: of the training; the role is "tune" or "test"
        origin: of the trial
        budget: env_steps of a full trial
        env_steps: so far
        started: Unix seconds
        first_steps: env_steps at which it was started, more than 0 after a resume
        updated: Unix seconds of its last result
        config: that it is trained with
        checkpoint: the file, relative to the run
        expected: seconds that a full training with this configuration should take; None: unknown
        seconds: of the worker's time, those of before a resume included
        paused: it waits, for other seeds or for the population
        silent: method of its environment that does not answer, if there is one
        values: latest scores, and ``points`` their env_steps
        places: rung -> how it stood there when it came
        state, reason: how it ended; empty while it runs
    """

    number: int
    seed: int
    role: str
    origin: str
    budget: int
    env_steps: int
    started: float
    first_steps: int
    updated: float
    config: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: str = ""
    expected: float | None = None
    seconds: float = 0.0
    paused: bool = False
    silent: str = ""
    values: deque[float] = field(default_factory=lambda: deque(maxlen=CURVE_POINTS))
    points: deque[int] = field(default_factory=lambda: deque(maxlen=CURVE_POINTS))
    places: dict[int, Place] = field(default_factory=dict)
    state: str = ""
    reason: str = ""

    @property
    def key(self) -> tuple[int, int]:
        """Trial and seed."""
        return self.number, self.seed

    @property
    def progress(self) -> float:
        """How much of its budget is done, from 0 to 1."""
        return min(1.0, self.env_steps / self.budget)

    @property
    def rate(self) -> float | None:
        """Its env_steps per second, or None while it is unknown."""
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
        """Take the env_steps of everything so far."""
        now = time.time()
        self._steps.append((now, env_steps))
        while self._steps[0][0] < now - RATE_WINDOW:
            self._steps.popleft()
        if not self._marks or now - self._marks[-1][0] >= SPEED_EVERY:
            self._marks.append((now, env_steps))

    def rate(self, env_steps: int) -> float | None:
        """Return the env_steps per second; None while it is unknown."""
        if len(self._steps) < 2:
            return None
        (then, before), now = self._steps[0], time.time()
        return (env_steps - before) / (now - then) if now - then > 0.5 else None

    def speeds(self) -> list[float]:
        """Return the env_steps per second over the last minutes, the latest last."""
        marks = list(self._marks)
        return [
            (steps - before) / (now - then)
            for (then, before), (now, steps) in itertools.pairwise(marks)
        ]
