"""The protocol `Scheduler`, what it reports, and the scheduler that stops nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Reports = Mapping[int, Mapping[int, float]]  # trial -> {env_steps: value}


@dataclass(frozen=True)
class Rung:
    """A line of the rung table.

    Attributes:
        budget: of the rung, in env_steps
        entered: trials that reached it with a value
        stopped: trials that were stopped there
        cutoff: value that a trial needs to go on; None while no one is stopped there
        seconds: after which trials are compared; None where env_steps count
    """

    budget: int
    entered: int
    stopped: int
    cutoff: float | None
    seconds: float | None = None


@dataclass(frozen=True)
class Place:
    """How a trial stands at a rung, among those that have reached it so far.

    Attributes:
        rung: its budget, in env_steps
        value: with which the trial entered it
        rank: of the value, 1 is the best; None where there is no order
        entered: trials that reached the rung with a value
        cutoff: value that a trial needs to go on; None while no one is stopped there
        seconds: after which trials are compared; None where env_steps count
    """

    rung: int
    value: float
    rank: int | None
    entered: int
    cutoff: float | None
    seconds: float | None = None


@dataclass(frozen=True)
class Stretch:
    """A part of a trial that is trained by itself.

    Attributes:
        since: env_steps from which it goes on, with what is in the trial's checkpoint then
        until: env_steps at which it pauses, or the full budget
        config: that it is trained with
    """

    since: int
    until: int
    config: dict[str, Any]


class Scheduler(Protocol):
    """What the driver asks about a running trial.

    A trial runs in one go, or in stretches: where one ends, the trial waits, and when all of the
    search wait or have ended, they go on with the next one.
    """

    def decide(
        self,
        trial: int,
        env_steps: int,
        value: float | None,
        standard_error: float = 0.0,
        training: float | None = None,
    ) -> str:
        """Return "continue" or "stop".

        ``standard_error`` says how far the value may be off by the luck of its seeds; ``training``
        is the mean return of the latest training episodes, which decides between equal values.
        """

    def stretch(self, trial: int) -> Stretch | None:
        """Return what of a trial is to be trained now; None: all of it."""
        return None

    def next_stretches(self) -> None:
        """All trials wait or have ended: decide on what those that wait go on with."""
        return

    def reason(self, trial: int) -> str:
        """Return why the trial was stopped; empty when it was not."""

    def restore(
        self, reports: Reports, stopped: Iterable[int] = (), training: Reports | None = None
    ) -> None:
        """Start over from what the study knows; ``training`` as in `decide`, where it is known."""

    def table(self) -> list[Rung]:
        """Return the rungs, smallest budget first."""

    def places(self, trial: int) -> list[Place]:
        """Return how a trial stands at the rungs that it has reached, smallest budget first."""
        return []


class NoScheduler(Scheduler):
    """Lets every trial run its full budget."""

    def decide(
        self,
        trial: int,
        env_steps: int,
        value: float | None,
        standard_error: float = 0.0,
        training: float | None = None,
    ) -> str:
        """Return "continue"."""
        return "continue"

    def reason(self, trial: int) -> str:
        """Return an empty text: no one is stopped."""
        return ""

    def restore(
        self, reports: Reports, stopped: Iterable[int] = (), training: Reports | None = None
    ) -> None:
        """Nothing to restore."""

    def table(self) -> list[Rung]:
        """There are no rungs."""
        return []
