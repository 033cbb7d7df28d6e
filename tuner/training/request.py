"""The request of a training, from flags or from Python: `rltune.train`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rltune.agents.config import (
    canonical_name,
    coerce,
    config_dict,
    hyperparameters,
    make_config,
)
from rltune.agents.errors import UserError, unknown
from rltune.agents.reward_signals import spelled_out
from rltune.backends.checkpoints import place_of
from rltune.backends.registry import backend_of, config_class
from rltune.common.callbacks import Given
from rltune.common.options import options_of
from rltune.common.signatures import takes_options
from rltune.planning.evaluations import affordable, longest_episode
from rltune.runs.directory import STORAGE
from rltune.runs.train_options import CONTROLS, TrainOptions
from rltune.runs.train_spec import EVALUATIONS, TrainSpec
from rltune.space.dimensions import checked_value
from rltune.space.recipes import as_recipe
from rltune.space.surroundings import is_surrounding, split
from rltune.space.yaml_lines import read_yaml
from rltune.training.presets import preset as known_good
from rltune.training.train import TrainResult
from rltune.training.train import train as train_spec

TIMESTEPS = 100_000
# `controls` are options one by one here.
OPTIONS = {k: v for k, v in options_of(TrainOptions).items() if k != "controls"} | CONTROLS


@takes_options(OPTIONS, rest="hyperparameters")
def train(
    agent: str | type,
    env: str | type | None = None,
    *,
    total_timesteps: float | None = None,
    config: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    preset: str | None = None,
    zoo: str | os.PathLike[str] | None = None,
    schedule: Sequence[Mapping[str, Any]] | str | os.PathLike[str] | None = None,
    name: str | None = None,
    storage_path: str | os.PathLike[str] = STORAGE,
    plain: bool = False,
    callbacks: Given = (),
    **options: Any,
) -> TrainResult:
    """Train one agent, as ``rltune train`` does.

    The keywords are named like its flags: the options below, and the agent's hyperparameters.

    Args:
        agent: name ("ppo"), "module:Class", or a class that can be imported
        env: gymnasium id, "module:Class", or a class that can be imported; None: that of a file
        total_timesteps: length of the training, in env steps; None: 1e5, or that of a file
        config: hyperparameters, or a YAML file of them, or what ``rltune export --to yaml`` wrote
        preset: the name of known-good hyperparameters for the environment
        zoo: a file of rl-zoo3's with settings for the environment, of sb3: agents
        schedule: changes of hyperparameters on the way: a list of {env_steps, config}, or a file
        name: name of the run directory below ``storage_path``
        storage_path: a folder; or s3://..., gs://...: then the run is in ./runs, and copied there
        plain: lines instead of a progress bar
        callbacks: that are told what happens: objects or classes, or "module:Class"; see
            `rltune.Callback`

    Raises:
        UserError: anything is wrong with what was asked for; nothing has been written then.
    """
    from rltune.backends.names import spec_of

    agent, env = spec_of(agent), None if env is None else spec_of(env)
    kind = config_class(agent)
    known = hyperparameters(kind)
    values: dict[str, Any] = {}
    options = spelled_out(options, "train()")
    for option in [option for option in options if option not in OPTIONS]:
        try:
            own = canonical_name(kind, option, "train()")
        except UserError:
            raise unknown("keyword", option, [*OPTIONS, *known], "train()") from None
        values[own] = coerce(known[own], options.pop(option), "train()")
    if options.get("weights") is not None:
        options["weights"] = place_of(options["weights"])
    if total_timesteps is not None:
        options["total_timesteps"] = int(total_timesteps)
    spec = training_spec(
        agent,
        env,
        config=config,
        preset=preset,
        zoo=zoo,
        schedule=schedule,
        chosen=values,
        **options,
    )
    storage = os.fspath(storage_path)
    return train_spec(spec, name=name, storage_path=storage, plain=plain, callbacks=callbacks)


def training_spec(
    agent: str,
    env: str | None = None,
    *,
    config: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    preset: str | None = None,
    zoo: str | os.PathLike[str] | None = None,
    schedule: Sequence[Mapping[str, Any]] | str | os.PathLike[str] | None = None,
    chosen: Mapping[str, Any],
    **given: Any,
) -> TrainSpec:
    """Return the specification of a training.

    Args:
        agent, env, config, preset, zoo, schedule: as in `train`
        chosen: hyperparameters, under our own names; they win over ``config``, ``preset`` and
            ``zoo``
        given: options of the training by name; they win over an exported file

    Raises:
        UserError: the request is incomplete, or something in it is wrong.
    """
    if preset is not None and config is not None:
        raise UserError("--preset and --config both give all hyperparameters; keep one of them")
    if zoo is not None and (preset is not None or config is not None):
        other = "--config" if preset is None else "--preset"
        raise UserError(f"--zoo and {other} both give all hyperparameters; keep one of them")
    file = read_training(config, agent)
    env = env or file.pop("env", None)
    if env is None:
        raise UserError("which environment? Give --env, or --config with an exported file.")
    if preset is not None:
        values = known_good(agent, env, preset, chosen)
    elif zoo is not None:
        settings = backend_of(agent).zoo_settings(agent, env, os.fspath(zoo))
        values = {**settings.config, **chosen}
        if settings.env_steps:
            file["budget"] = settings.env_steps
    else:
        values = {**file["config"], **chosen}
    controls = {name: given.pop(name) for name in CONTROLS if name in given}
    from_file: dict[str, Any] = {name: file[name] for name in ("seed", "weights") if name in file}
    changes = read_schedule(schedule, agent) or file.get("schedule", [])
    env_kwargs = given.get("env_kwargs", file.get("env_kwargs", {}))
    parts = split(values, env_kwargs, file.get("budget", TIMESTEPS))
    from_file["total_timesteps"] = parts.env_steps
    rest = {**from_file, **given, "env_kwargs": parts.env_kwargs}
    if not rest.keys() & {"eval_freq", "eval_episodes"}:
        rest.update(_evaluations(rest["total_timesteps"], env, rest.get("env_kwargs")))
    return TrainSpec(
        agent=agent,
        env=env,
        config=parts.config,
        schedule=changes,
        controls={**file.get("controls", {}), **controls},
        **rest,
    )


def _evaluations(env_steps: int, env: str, env_kwargs: Mapping[str, Any] | None) -> dict[str, int]:
    """Return the options of the evaluation where none is given: none if the usual ones will do."""
    usual = EVALUATIONS, TrainSpec.eval_episodes
    times, episodes = affordable(env_steps, longest_episode(env, env_kwargs), *usual)
    if (times, episodes) == usual:
        return {}
    return {"eval_freq": max(1, -(-env_steps // times)), "eval_episodes": episodes}


def read_training(
    source: Mapping[str, Any] | str | os.PathLike[str] | None, agent: str
) -> dict[str, Any]:
    """Return the parts of a training in a YAML file or its data, ``config`` under our own names.

    The file is a mapping of hyperparameters, or the output of `rltune export --to yaml`: then
    there may be env, env_kwargs, budget, seed, schedule and controls beside the configuration.

    Raises:
        UserError: there is no such file, it is of another agent, or a value in it is wrong.
    """
    if source is None:
        return {"config": {}}
    data, file = _data(source, "config")
    if not isinstance(data, Mapping):
        raise UserError(f"{file}: not a mapping of hyperparameters to values")
    if "space" in data:
        raise UserError(
            f"{file} is a search space, which `rltune run --space` takes; a training takes one "
            "configuration, such as best/config.yaml of a search"
        )
    given = as_recipe(data, file) or {"config": data}
    if given.get("agent", agent).lower() != agent.lower():
        raise UserError(f"{file} is of the agent {given['agent']!r}, not of {agent!r}")
    if "schedule" in given:
        given["schedule"] = checked_schedule(given["schedule"], file, agent)
    around = {name: value for name, value in given["config"].items() if is_surrounding(name)}
    own = {name: value for name, value in given["config"].items() if name not in around}
    made = config_dict(make_config(config_class(agent), own, file))
    return {**given, "config": {**made, **around}}


def read_schedule(
    source: Sequence[Mapping[str, Any]] | str | os.PathLike[str] | None, agent: str
) -> list[dict[str, Any]]:
    """Return the changes of the hyperparameters in a YAML file, or its data, under our own names.

    Raises:
        UserError: the file is no list of changes, or one of them can't be made.
    """
    if source is None:
        return []
    return checked_schedule(*_data(source, "schedule"), agent)


def _data(source: Any, name: str) -> tuple[Any, str]:
    """Return the data of a YAML file and its name in errors; ``source`` may be the data itself."""
    if isinstance(source, (str, os.PathLike)):
        return read_yaml(Path(source))[0], os.fspath(source)
    return source, name


def checked_schedule(data: Any, file: str, agent: str) -> list[dict[str, Any]]:
    """Return the changes in the data of a file; see `read_schedule`."""
    kind = config_class(agent)
    known = hyperparameters(kind)
    changes: list[dict[str, Any]] = []
    for change in data if isinstance(data, list) else [data]:
        if not (
            isinstance(change, dict)
            and isinstance(change.get("env_steps"), int)
            and isinstance(change.get("config"), dict)
        ):
            raise UserError(f"{file}: not a list of {{env_steps: N, config: {{name: value}}}}")
        own = {canonical_name(kind, name, file): value for name, value in change["config"].items()}
        for name in own:
            if not known[name].mutable and change["env_steps"] > 0:
                raise UserError(f"{file}: {name} can't change in a training that has begun")
        values = {name: checked_value(known[name], value) for name, value in own.items()}
        changes.append({"env_steps": change["env_steps"], "config": values})
    return sorted(changes, key=lambda change: change["env_steps"])
