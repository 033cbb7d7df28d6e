"""The registry of schedulers: name -> class, and the factory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import unknown
from rltune.schedulers.asha import ASHA
from rltune.schedulers.base import NoScheduler, Scheduler, Setup
from rltune.schedulers.hyperband import Hyperband
from rltune.schedulers.median import MedianStopping
from rltune.schedulers.pb2 import PB2
from rltune.schedulers.pbt import PBT

if TYPE_CHECKING:
    from rltune.objectives.goals import FurtherObjectives
    from rltune.runs.search_spec import SearchSpec
    from rltune.schedulers.base import Population

SCHEDULERS: dict[str, type[Scheduler]] = {
    kind.name: kind for kind in (ASHA, Hyperband, MedianStopping, PBT, PB2, NoScheduler)
}


def scheduler_class(name: str) -> type[Scheduler]:
    """Return the class of a scheduler; UserError: there is none of that name."""
    if name not in SCHEDULERS:
        raise unknown("scheduler", name, SCHEDULERS)
    return SCHEDULERS[name]


def is_population(name: object) -> bool:
    """Whether a name is that of a scheduler that trains a population."""
    return isinstance(name, str) and name in SCHEDULERS and SCHEDULERS[name].is_population


def for_several_objectives() -> list[str]:
    """Return the names of the schedulers that know several objectives."""
    return [name for name, kind in SCHEDULERS.items() if kind.several_objectives]


def make_scheduler(
    name: str,
    budget: int,
    options: Mapping[str, Any] | None = None,
    direction: str = "maximize",
    *,
    others: FurtherObjectives | None = None,
    population: Population | None = None,
) -> Scheduler:
    """Return the scheduler of that name.

    Args:
        name: as in ``--scheduler NAME``
        budget: env steps of a whole budget
        options: of the scheduler; absent ones have their defaults
        direction: "maximize" or "minimize"
        others: the further objectives of a search with several
        population: the running search, without which no population can be made

    Raises:
        UserError: an unknown name or option, or an option out of its range.
    """
    kind = scheduler_class(name)
    return kind.create(
        Setup(
            budget=budget,
            options=kind.checked(options or {}),
            direction=direction,
            others=others,
            population=population,
        )
    )


def rungs_of(spec: SearchSpec) -> list[int]:
    """Return the env steps at which the scheduler of a search compares trials, the budget last.

    Raises:
        UserError: there is no such scheduler or option.
    """
    return scheduler_class(spec.scheduler).rungs_of(spec)
