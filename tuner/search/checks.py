"""Checks of a search before it begins: mistakes that would show up only in a worker."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rltune.agents.envs.suite import environments
from rltune.agents.envs.waiting import Watch, on_stderr
from rltune.agents.errors import UserError, unknown
from rltune.search.request import defaults_among, full_config
from rltune.space import surroundings

if TYPE_CHECKING:
    from rltune.runs.search_spec import SearchSpec
    from rltune.space.space import Space
    from rltune.study.records import StartConfig


def check_goals(spec: SearchSpec) -> None:
    """Raise UserError for what does not work with several objectives."""
    from rltune.schedulers.registry import for_several_objectives

    names = [goal.name.removeprefix("-") for goal in spec.goals]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"--against {name}: it is an objective already.")
    if not spec.against:
        return
    if spec.scheduler not in (known := for_several_objectives()):
        raise UserError(
            f"scheduler {spec.scheduler!r} compares one number only; with --against use "
            f"{' or '.join(known)}."
        )
    if "seconds" in spec.scheduler_options:
        raise UserError(
            f"scheduler {spec.scheduler!r}: with --against, rungs count env steps; remove seconds."
        )
    if spec.warm_start:
        raise UserError(
            "--from ranks earlier trials by one objective, so it can't be used with --against."
        )


def check(
    spec: SearchSpec, space: Space, config_class: type[Any], starts: Sequence[StartConfig]
) -> None:
    """Find the mistakes that would otherwise show up only in a worker.

    The agent's defaults and a random configuration of the space are tried.

    Raises:
        UserError: the first mistake.
    """
    import numpy as np
    from rltune.cluster.address import is_elsewhere
    from rltune.samplers.proposer import Proposer
    from rltune.schedulers.registry import rungs_of, scheduler_class
    from rltune.study.records import is_reference
    from rltune.tracking.registry import check_trackers

    check_trackers(spec)
    here = not is_elsewhere(spec.address)
    drawn = space.resolve(space.sample(np.random.default_rng(spec.seed)))
    default = defaults_among(starts).config
    _check_training(spec, [default, full_config(config_class, drawn)], here)
    check_goals(spec)
    others = [goal.direction for goal in spec.goals[1:]]
    options = spec.sampler_options
    Proposer(space, spec.sampler, options, spec.seed, "maximize", other_directions=others)
    spec.seed_plan(rungs_of(spec))
    if here:  # else the cluster says what it has
        _check_machine(spec)
    compared = sum(is_reference(start.origin) for start in starts)
    scheduler_class(spec.scheduler).check(spec, space, config_class, compared)


def _check_training(spec: SearchSpec, configs: Sequence[Mapping[str, Any]], here: bool) -> None:
    """Find what the agent can't do: with its controls, its weights and in its environments.

    Args:
        spec: the search
        configs: configurations to try
        here: the trainings run on this machine, which then has their data
    """
    from rltune.agents.loop.controls import Controls
    from rltune.backends.checkpoints import check_weights
    from rltune.backends.registry import backend_of, check_fit, check_start

    if wrong := [name for name in spec.controls if name not in Controls.__dataclass_fields__]:
        raise unknown("control", wrong[0], Controls.__dataclass_fields__)
    controls = Controls(**spec.controls)
    check_start(spec.agent, spec.eval_mode, spec.weights, spec.engine)
    backend_of(spec.agent, spec.env).check_controls(controls, spec.env_kwargs)
    tried: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []  # in which environment
    for config in configs:
        parts = surroundings.split(config, spec.env_kwargs, spec.budget)
        same = next((some for env_kwargs, some in tried if env_kwargs == parts.env_kwargs), None)
        if same is None:
            tried.append((parts.env_kwargs, same := []))
        same.append(parts.config)
    with Watch(on_stderr):
        for env in environments(spec.env):
            for env_kwargs, some in tried:
                check_fit(spec.agent, env, some, env_kwargs, has_data=here)
                if spec.weights is not None:
                    check_weights(spec.agent, env, some, env_kwargs, spec.weights)


def _check_machine(spec: SearchSpec) -> None:
    """Find what this machine does not have: the device, the CPUs, the GPUs."""
    import torch
    from rltune.cluster.resources import Resources, fitting

    _check_device(spec.device, torch.cuda.is_available())
    fitting(Resources.of(spec), os.cpu_count() or 1, torch.cuda.device_count())


def _check_device(device: str, has_gpu: bool) -> None:
    import torch

    try:
        kind = "cpu" if device == "auto" else torch.device(device).type
    except RuntimeError:
        raise UserError(
            f"--device {device}: there is none of this name; write cpu, cuda, cuda:1 or auto."
        ) from None
    if kind == "cuda" and not has_gpu:
        raise UserError(
            f"--device {device}: PyTorch finds no GPU on this machine; leave it out, or write cpu."
        )
