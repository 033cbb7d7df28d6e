"""Schedulers: the base class, what it reports, and the scheduler that stops no trial."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rltune.schedulers.options import SchedulerOption, check_options

if TYPE_CHECKING:
    from rltune.objectives.goals import FurtherObjectives
    from rltune.runs.search_spec import SearchSpec
    from rltune.space.space import Space
    from rltune.study.study import SearchStudy

Reports = Mapping[int, Mapping[int, float]]  # trial -> {env_steps: value}


@dataclass(frozen=True)
class Rung:
    """A line of the rung table.

    Attributes:
        budget: of the rung, in env steps
        entered: trials that reached it with a value
        stopped: trials that were stopped there
        cutoff: value that a trial needs to go on; None while no trial is stopped there
        seconds: after which trials are compared; None where env steps count
    """

    budget: int
    entered: int
    stopped: int
    cutoff: float | None
    seconds: float | None = None


@dataclass(frozen=True)
class Place:
    """A trial's place at a rung, among those that have reached it so far.

    Attributes:
        rung: its budget, in env steps
        value: with which the trial entered it
        rank: of the value, 1 is the best; None where there is no order
        entered: trials that reached the rung with a value
        cutoff: value that a trial needs to go on; None while no trial is stopped there
        seconds: after which trials are compared; None where env steps count
    """

    rung: int
    value: float
    rank: int | None
    entered: int
    cutoff: float | None
    seconds: float | None = None


@dataclass(frozen=True)
class Segment:
    """A part of a trial that is trained by itself.

    Attributes:
        since: env steps from which it goes on, with what is in the trial's checkpoint then
        until: env steps at which it pauses, or the whole budget
        config: that it is trained with
    """

    since: int
    until: int
    config: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Population:
    """The running search that a population is trained in.

    Attributes:
        spec: the search's
        space: what is searched
        config_class: of the agent's configurations
        study: with the members, one a trial
        checkpoint: trial -> the file of its checkpoint
    """

    spec: SearchSpec
    space: Space
    config_class: type[Any]
    study: SearchStudy
    checkpoint: Callable[[int], Path]


@dataclass(frozen=True, kw_only=True)
class Setup:
    """All that a scheduler is made from.

    Attributes:
        budget: env steps of a whole budget
        options: the value of each option that the scheduler declares
        direction: "maximize" or "minimize"
        others: the further objectives; None, or without goals, where there is one objective
        population: the running search; None for replays and forecasts, which train nothing
    """

    budget: int
    options: Mapping[str, Any]
    direction: str = "maximize"
    others: FurtherObjectives | None = None
    population: Population | None = None

    @property
    def has_several_objectives(self) -> bool:
        """Whether there are further objectives."""
        return self.others is not None and bool(self.others.goals)


class Scheduler(ABC):
    """Decides whether a running trial goes on. Pure Python, no Ray.

    A new one is a subclass in a file of its own, and a line in `registry.py`: among those that stop
    trials early, or among those that train a population. In a population trials run in segments,
    all side by side, each on one seed; their number is that of the population.

    A trial runs in one go, or in segments: where one ends, the trial waits, and when all of the
    search wait or have ended, they go on with the next one.

    Attributes:
        name: as in ``--scheduler NAME``
        options: those of ``--scheduler-options``
        several_objectives: whether it can compare trials by several objectives
    """

    name: ClassVar[str]
    options: ClassVar[Mapping[str, SchedulerOption]] = {}
    several_objectives: ClassVar[bool] = False

    # ------------------------------------------------------------------------- before the search

    @classmethod
    def create(cls, setup: Setup) -> Scheduler:
        """Return the scheduler of a search.

        Raises:
            UserError: it can't be made so.
        """
        return cls()

    @classmethod
    def checked(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of all options, defaults filled in.

        Raises:
            UserError: an unknown option, or one out of its range.
        """
        return check_options(cls.name, cls.options, options)

    @classmethod
    def rungs_of(cls, spec: SearchSpec) -> list[int]:
        """Return the env steps at which trials of a search are compared, the budget last.

        Raises:
            UserError: a wrong option.
        """
        setup = Setup(budget=spec.budget, options=cls.checked(spec.scheduler_options))
        return [rung.budget for rung in cls.create(setup).table()]

    @classmethod
    def check(cls, spec: SearchSpec, space: Space, config_class: type[Any], n_starts: int) -> None:
        """Find the mistakes in a search that would show up only after a while.

        Args:
            spec: the search's
            space: what is searched
            config_class: of the agent's configurations
            n_starts: trials that are points of comparison

        Raises:
            UserError: there is a mistake.
        """
        return

    # ------------------------------------------------------------------------- while it runs

    @abstractmethod
    def decide(
        self,
        trial: int,
        env_steps: int,
        value: float | None,
        standard_error: float = 0.0,
        training: float | None = None,
    ) -> str:
        """Return "continue" or "stop".

        Args:
            trial: its number
            env_steps: that it has had, or what stands for them (`resource.py`)
            value: its objective there; None: it has none
            standard_error: how far the value may be off by the luck of its seeds
            training: the mean return of the latest training episodes, which decides between equal
                values
        """

    def cutoff(self, trial: int, env_steps: int) -> float | None:
        """Return the value with which a trial would go on, judged at `env_steps` now.

        None: it would go on with any, or there is no such value.
        """
        return None

    def is_among_best(self, trial: int) -> bool:
        """Whether a trial that ran its whole budget is among the best part of those that did."""
        return False

    def segment(self, trial: int) -> Segment | None:
        """Return the part of a trial that is to be trained now; None: all of it."""
        return None

    def next_segments(self) -> None:
        """Decide on what the trials that wait go on with: all wait or have ended."""
        return

    def reason(self, trial: int) -> str:
        """Return the reason why the trial was stopped; empty when it was not."""
        return ""

    def restore(
        self, reports: Reports, stopped: Iterable[int] = (), training: Reports | None = None
    ) -> None:
        """Start over from what the study knows, forgetting all else.

        Args:
            reports: trial -> {env_steps: value}
            stopped: trials that were stopped
            training: trial -> {env_steps: mean return of training episodes}, where it is known
        """
        return

    def table(self) -> list[Rung]:
        """Return the rungs, smallest budget first."""
        return []

    def places(self, trial: int) -> list[Place]:
        """Return the places of a trial at the rungs that it has reached, smallest budget first."""
        return []


class NoScheduler(Scheduler):
    """Lets every trial run its whole budget."""

    name = "none"
    several_objectives = True

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
