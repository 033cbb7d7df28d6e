"""The registry of schedulers: by the name that `--scheduler` takes, imported when they are used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import unknown

if TYPE_CHECKING:
    from rltune.objectives.goals import FurtherObjectives
    from rltune.runs.search_spec import SearchSpec
    from rltune.schedulers.base import Population, Scheduler

# "module:class", in the order in which they are listed.
EARLY_STOPPING = {
    "asha": "rltune.schedulers.asha:ASHA",
    "hyperband": "rltune.schedulers.hyperband:Hyperband",
    "median": "rltune.schedulers.median:MedianStopping",
    "none": "rltune.schedulers.base:NoScheduler",
}
POPULATIONS = {
    "pbt": "rltune.schedulers.pbt:PBT",
    "pb2": "rltune.schedulers.pb2:PB2",
}


def scheduler_names() -> list[str]:
    """Return the names of all schedulers."""
    return [*EARLY_STOPPING, *POPULATIONS]


def scheduler_class(name: str) -> type[Scheduler]:
    """Return the class of a scheduler; UserError: there is none of that name."""
    if name not in scheduler_names():
        raise unknown("scheduler", name, scheduler_names())
    module, _, attribute = {**EARLY_STOPPING, **POPULATIONS}[name].partition(":")
    found: type[Scheduler] = getattr(importlib.import_module(module), attribute)
    return found


def is_population(name: object) -> bool:
    """Whether a name is that of a scheduler that trains a population."""
    return isinstance(name, str) and name in POPULATIONS


def for_several_objectives() -> list[str]:
    """Return the names of the schedulers that know several objectives."""
    return [name for name in scheduler_names() if scheduler_class(name).several_objectives]


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
    from rltune.schedulers.base import Setup

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
