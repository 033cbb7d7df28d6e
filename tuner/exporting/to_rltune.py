"""Exports for rltune: a command, YAML and JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import yaml
from rltune.agents.config import config_dict, make_config
from rltune.backends.registry import backend_of, config_class, is_own
from rltune.exporting.exportable import commented
from rltune.runs.train_spec import TrainSpec, retrain_command
from rltune.space.recipes import KEYS

if TYPE_CHECKING:
    from rltune.exporting.exportable import Exportable

STDIN = "/dev/stdin"  # takes a schedule along in the command, without a file


def as_command(found: Exportable) -> str:
    """Return the command that trains it again, bit for bit on a CPU."""
    spec = found.spec
    of_code = backend_of(spec.agent).command(
        spec.agent,
        spec.env,
        spec.config,
        env_kwargs=spec.env_kwargs,
        budget=spec.total_timesteps,
        seed=spec.seed,
    )
    if of_code is not None:
        return commented(found.header) + of_code + "\n"
    known = not is_own(spec.agent)
    defaults = config_dict(make_config(config_class(spec.agent), {})) if known else {}
    command = retrain_command(
        spec.agent,
        spec.env,
        spec.total_timesteps,
        spec.config,
        defaults,
        spec.seed,
        STDIN if spec.schedule else "[]",
        env_kwargs=spec.env_kwargs,
        controls=spec.controls,
        evaluation={
            "eval_freq": spec.eval_freq,
            "eval_episodes": spec.eval_episodes,
            "eval_mode": spec.eval_mode,
            "engine": spec.engine,
        },
        weights=spec.weights,
    )
    if spec.schedule:
        changes = "".join(f"- {json.dumps(change)}\n" for change in spec.schedule)
        command += f" <<'SCHEDULE'\n{changes}SCHEDULE"
    return commented(found.header) + command + "\n"


def as_yaml(found: Exportable) -> str:
    """Return the YAML that `rltune train --config` and the `start` of a search space read."""
    text: str = yaml.safe_dump(_words(found.spec), sort_keys=False, allow_unicode=True, width=100)
    return commented(found.header) + text


def as_json(found: Exportable) -> str:
    """Return the same for programs."""
    return json.dumps({"about": found.header, **_words(found.spec)}, indent=2) + "\n"


def _words(spec: TrainSpec) -> dict[str, Any]:
    values = {**dataclasses.asdict(spec), "budget": spec.total_timesteps}
    return {name: values[name] for name in KEYS if values[name] or name in ("seed", "config")}
