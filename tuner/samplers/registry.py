"""The registry of samplers: by the name that `--sampler` takes, imported when they are used.

Beside ours there are those of plug-ins, and any class of Optuna's kind as ``module:Class``.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rltune.agents.plugins import PluginGroup

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
PLUGINS = PluginGroup("samplers", "sampler", SAMPLERS)


def sampler_class(name: str) -> type[Sampler]:
    """Return the class of a sampler: ours, a plug-in's, or ``module:Class``.

    Raises:
        UserError: there is none of this name, or it can't be imported, or it is no sampler.
    """
    if name not in SAMPLERS:
        from rltune.samplers.foreign import as_sampler

        return as_sampler(name, PLUGINS.load(name))
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
