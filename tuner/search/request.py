"""The request of a search: its starts, and configurations written out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from rltune.agents.config import config_dict, hyperparameters, make_config
from rltune.runs.directory import find_run
from rltune.space import surroundings
from rltune.space.space import Space


def starts(space: Space, env: str, config_class: type[Any]) -> list[Any]:
    """Return the trials that come first: the agent's defaults, then what is known to be good.

    The defaults are those of the agent but for what is fixed, and what follows from that alone.
    """
    from rltune.study.records import StartConfig

    around = surroundings.defaults(space, env)
    known = [("default", space.resolve(around))]
    known += [
        (f"start:{i}", space.resolve({**around, **start.values}))
        for i, start in enumerate(space.starts_for(env))
    ]
    return [StartConfig(origin, full_config(config_class, values)) for origin, values in known]


def full_config(config_class: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return every hyperparameter of the agent: ``values`` where given, else its defaults.

    What surrounds the agent is kept where it is given. Derived values that are no hyperparameters
    only served the constraints, and are left out.
    """
    known = hyperparameters(config_class)
    own = config_dict(make_config(config_class, {k: v for k, v in values.items() if k in known}))
    return {**own, **{k: v for k, v in values.items() if surroundings.is_surrounding(k)}}


def _run_paths(runs: Sequence[str | os.PathLike[str]] | str | os.PathLike[str]) -> list[str]:
    """Return the run directories as absolute paths: a resume may be called from elsewhere."""
    several = [runs] if isinstance(runs, (str, os.PathLike)) else runs
    return [str(find_run(run).absolute()) for run in several]
