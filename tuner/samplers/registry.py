"""The registry of samplers: by the name that `--sampler` takes, imported when they are used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import unknown

if TYPE_CHECKING:
    from rltune.samplers.base import Sampler

DEFAULT = "tpe"
# "module:class", in the order in which they are listed.
SAMPLERS = {
    "tpe": "rltune.samplers.tpe:TPE",
    "gp": "rltune.samplers.gp:GP",
    "cost-aware": "rltune.samplers.cost_aware:CostAware",
    "cmaes": "rltune.samplers.cma_es:CMAES",
    "nsgaii": "rltune.samplers.nsga:NSGAII",
    "nsgaiii": "rltune.samplers.nsga:NSGAIII",
    "qmc": "rltune.samplers.qmc:QMC",
    "random": "rltune.samplers.random_search:Random",
    "grid": "rltune.samplers.grid:Grid",
}


def sampler_class(name: str) -> type[Sampler]:
    """Return the sampler's class; UserError: there is none of this name."""
    if name not in SAMPLERS:
        raise unknown("sampler", name, SAMPLERS)
    module, _, attribute = SAMPLERS[name].partition(":")
    found: type[Sampler] = getattr(importlib.import_module(module), attribute)
    return found


def for_several() -> list[str]:
    """Return the names of the samplers that know several objectives."""
    return [name for name in SAMPLERS if sampler_class(name).for_several]


def learns(name: object) -> bool:
    """Whether the sampler of a search learns from its trials; one that is not known is said to."""
    return not (isinstance(name, str) and name in SAMPLERS) or sampler_class(name).learns


def check_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of all options of a sampler, defaults filled in.

    Raises:
        UserError: unknown sampler or option, or a value of the wrong type or out of range.
    """
    return sampler_class(name).checked_options(options)
