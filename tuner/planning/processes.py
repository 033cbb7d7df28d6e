"""The processes of a trial, which decide on the CPUs and GPUs that it must have."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from rltune.agents.errors import UserError
from rltune.cluster.address import is_elsewhere

if TYPE_CHECKING:
    from rltune.runs.search_spec import SearchSpec
    from rltune.space.space import Space
    from rltune.study.records import StartConfig

COUNTS = ("n_learners",)  # hyperparameters that say how many processes a training has
SAMPLES = 64  # configurations that show how large a derived value may be


def processes(config: Mapping[str, Any]) -> int:
    """Return the number of processes of a training that compute at the same time."""
    return int(config.get("n_learners", 1))


def most_processes(space: Space, starts: Sequence[StartConfig]) -> int:
    """Return the number of processes of the largest trial that a search may have."""
    largest = {name: _largest(name, space, starts) for name in COUNTS}
    return processes(largest)


def _largest(name: str, space: Space, starts: Sequence[StartConfig]) -> int:
    """Return the largest value of a hyperparameter, of which there is 1 by default."""
    found = [start.config.get(name, 1) for start in starts]
    dimension = space.dimensions.get(name)
    if dimension is not None:
        found += dimension.choices if dimension.kind == "choice" else [dimension.high]
    elif name in space.derived:
        generator = np.random.default_rng(0)
        drawn = (space.resolve(space.sample(generator)) for _ in range(SAMPLES))
        found += [config[name] for config in drawn]
    return int(max(found))


def with_room_for_processes(
    spec: SearchSpec, space: Space, starts: Sequence[StartConfig]
) -> tuple[SearchSpec, list[str]]:
    """Return the search with a CPU for each process of a trial, and notes where that is new.

    Where GPUs are asked for, each learner has one of its own.

    Args:
        spec: the search
        space: what is searched
        starts: the configurations that come first

    Raises:
        UserError: this machine has fewer CPUs.
    """
    most = most_processes(space, starts)
    if most == 1:
        return spec, []
    cpus = os.cpu_count() or 1
    if most > cpus and not is_elsewhere(spec.address):
        raise UserError(
            f"a trial of {_described(space, starts)} needs {most} CPUs, but there are {cpus} here; "
            "lower it, or name a cluster: --address"
        )
    gpus = spec.gpus_per_trial
    if gpus:
        gpus = max(gpus, _largest("n_learners", space, starts))
    found = replace(spec, cpus_per_trial=max(spec.cpus_per_trial, most), gpus_per_trial=gpus)
    if found == spec:
        return spec, []
    has = f"{found.cpus_per_trial:g} CPUs" + (f" and {gpus:g} GPUs" if gpus else "")
    return found, [f"each trial has {has}: {_described(space, starts)}"]


def _described(space: Space, starts: Sequence[StartConfig]) -> str:
    """Return "n_learners 2"."""
    largest = {name: _largest(name, space, starts) for name in COUNTS}
    return " and ".join(f"{name} {value}" for name, value in largest.items() if value > 1)
