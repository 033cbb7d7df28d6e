"""The specification of a training, and the command that repeats it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from rltune.common.redaction import masked
from rltune.space.surroundings import split


def retrain_command(
    agent: str,
    env: str,
    budget: int,
    config: Mapping[str, Any],
    defaults: Mapping[str, Any],
    seed: int,
    schedule: str = "[]",
    *,
    env_kwargs: Mapping[str, Any],
    controls: Mapping[str, Any],
    evaluation: Mapping[str, Any],
    weights: str | None = None,
) -> str:
    """Return the one line that trains ``config`` again, bit for bit.

    Names only the values that differ from the agent's ``defaults``; ``schedule`` says how they
    change on the way, as a file's name or in YAML, ``weights`` is what it starts from,
    ``evaluation`` how it is evaluated (`SearchSpec.evaluation`). No secret among ``env_kwargs`` is
    in it.
    """
    parts = split(config, env_kwargs, budget)
    words = ["rltune", "train", agent, "--env", env, "-n", str(parts.env_steps)]
    for name, value in parts.config.items():
        if name not in defaults or _flag_value(value) != _flag_value(defaults[name]):
            words += [f"--{name.replace('_', '-')}", _flag_value(value)]
    if parts.env_kwargs:
        words += ["--env-kwargs", json.dumps(masked(parts.env_kwargs))]
    usual = {"eval_freq": None, "eval_episodes": 10, "eval_mode": "greedy"}
    told = {name: value for name, value in evaluation.items() if value != usual[name]}
    for name, value in {**controls, **told}.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    if weights:
        words += ["--weights", weights]
    if schedule != "[]":
        words += ["--schedule", schedule]
    words += ["--seed", str(seed)]
    return shlex.join(words)


def _flag_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return ",".join(_flag_value(one) for one in value)
    return "none" if value is None else str(value)
