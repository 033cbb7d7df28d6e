"""The processes of a trial, which decide on the CPUs and GPUs that it must have."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from rltune.agents.errors import UserError
from rltune.cluster.address import is_elsewhere

if TYPE_CHECKING:
    from rltune.runs.search_spec import SearchSpec
    from rltune.space.space import Space
    from rltune.study.records import StartConfig

LEARNERS, ACTORS = "n_learners", "num_actors"  # say how many processes a training has
DEFAULTS = {LEARNERS: 1, ACTORS: 0}
SAMPLES = 64  # configurations that show how large a derived value may be


def _largest(name: str, space: Space, starts: Sequence[StartConfig]) -> int:
    """Return the largest value of a hyperparameter that a trial may have."""
    default = DEFAULTS[name]
    found = [start.config.get(name, default) for start in starts]
    dimension = space.dimensions.get(name)
    if dimension is not None:
        found += dimension.choices if dimension.kind == "choice" else [dimension.high]
    elif name in space.derived:
        generator = np.random.default_rng(0)
        drawn = (space.resolve(space.sample(generator)) for _ in range(SAMPLES))
        found += [config[name] for config in drawn]
    return int(max(found, default=default))


def with_room_for_processes(
    spec: SearchSpec, space: Space, starts: Sequence[StartConfig]
) -> tuple[SearchSpec, list[str]]:
    """Return the search with CPUs for each process of a trial, and notes where that is new.

    The largest trial decides. A learner has a CPU of its own, and where GPUs are asked for, a GPU;
    an actor has ``cpus_per_actor``.

    Args:
        spec: the search
        space: what is searched
        starts: the configurations that come first

    Raises:
        UserError: this machine has fewer CPUs.
    """
    learners, actors = (_largest(name, space, starts) for name in (LEARNERS, ACTORS))
    if learners == 1 and actors == 0:
        return spec, []
    counts = {LEARNERS: learners, ACTORS: actors}
    said = " and ".join(f"{n} {count}" for n, count in counts.items() if count > DEFAULTS[n])
    own = max(spec.cpus_per_trial, learners)
    needed = math.ceil(own + actors * spec.cpus_per_actor - 1e-9)  # whole, as Ray wants it
    cpus = os.cpu_count() or 1
    if needed > cpus and not is_elsewhere(spec.address):
        less = ", give --cpus-per-actor 0.5 or less" if actors else ""
        raise UserError(
            f"a trial of {said} needs {needed} CPUs, but there are {cpus} here; lower it{less}, or "
            "name a cluster: --address"
        )
    gpus = max(spec.gpus_per_trial, learners) if spec.gpus_per_trial and learners > 1 else None
    found = replace(
        spec,
        cpus_per_trial=needed,
        gpus_per_trial=spec.gpus_per_trial if gpus is None else gpus,
        actors_per_trial=actors,
    )
    if (found.cpus_per_trial, found.gpus_per_trial) == (spec.cpus_per_trial, spec.gpus_per_trial):
        return found, []
    has = f"{needed:g} CPUs" + (f" and {found.gpus_per_trial:g} GPUs" if gpus else "")
    return found, [f"each trial has {has}: {said}"]
