"""A training as the screen shows it: its progress, its latest scores, and how it ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rltune.planning.progress import TrainingProgress
    from rltune.schedulers.base import Place

CURVE_POINTS = 200  # latest values kept of a training


@dataclass
class ShownTraining:
    """A trial on one seed: one that runs, or one of the last that have ended.

    Attributes:
        progress: how far it is, and how fast
        origin: of the trial
        config: that it is trained with
        checkpoint: the file, relative to the run
        expected: seconds that the whole budget should take with this configuration; None: unknown
        paused: it waits, for other seeds or for the population
        silent: method of its environment that does not answer, if there is one
        values: latest scores, and ``points`` their env steps
        places: rung -> how it stood there when it came
        state, reason: how it ended; empty while it runs
    """

    progress: TrainingProgress
    origin: str
    config: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: str = ""
    expected: float | None = None
    paused: bool = False
    silent: str = ""
    values: deque[float] = field(default_factory=lambda: deque(maxlen=CURVE_POINTS))
    points: deque[int] = field(default_factory=lambda: deque(maxlen=CURVE_POINTS))
    places: dict[int, Place] = field(default_factory=dict)
    state: str = ""
    reason: str = ""

    @property
    def number(self) -> int:
        """Of the trial."""
        return self.progress.number

    @property
    def seed(self) -> int:
        """Of the training."""
        return self.progress.seed

    @property
    def role(self) -> str:
        """Of the training, "tune" or "test"."""
        return self.progress.role

    @property
    def key(self) -> tuple[int, int]:
        """Trial and seed."""
        return self.number, self.seed
