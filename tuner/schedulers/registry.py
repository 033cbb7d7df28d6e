"""The registry of schedulers: by the name that `--scheduler` takes, imported when they are used.

Beside ours there are those of plug-ins, and the user's own as ``module:Class``.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import UserError
from rltune.agents.plugins import PluginGroup

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
PLUGINS = PluginGroup("schedulers", "scheduler", (*EARLY_STOPPING, *POPULATIONS))


def scheduler_names() -> list[str]:
    """Return the names of all schedulers of ours."""
    return [*EARLY_STOPPING, *POPULATIONS]


def scheduler_class(name: str) -> type[Scheduler]:
    """Return the class of a scheduler: ours, a plug-in's, or ``module:Class``.

    Raises:
        UserError: there is none of this name, or it can't be imported, or it is no scheduler that
            stops trials early.
    """
    if name not in scheduler_names():
        return _checked(name, PLUGINS.load(name))
    module, _, attribute = {**EARLY_STOPPING, **POPULATIONS}[name].partition(":")
    found: type[Scheduler] = getattr(importlib.import_module(module), attribute)
    return found


def _checked(name: str, found: object) -> type[Scheduler]:
    from rltune.schedulers.base import Scheduler

    if not isinstance(found, type) or not issubclass(found, Scheduler):
        raise UserError(f"scheduler {name!r} is not a subclass of rltune.schedulers.base.Scheduler")
    missing = sorted(found.__abstractmethods__) if inspect.isabstract(found) else []
    missing += [] if hasattr(found, "name") else ["name"]
    if missing:
        raise UserError(f"scheduler {name!r} lacks {', '.join(missing)}")
    if any(issubclass(found, scheduler_class(population)) for population in POPULATIONS):
        raise UserError(
            f"scheduler {name!r} trains a population, which {' and '.join(POPULATIONS)} alone can"
        )
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
