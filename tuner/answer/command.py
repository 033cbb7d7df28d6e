"""The command that trains a configuration of a search again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rltune.backends.registry import backend_of
from rltune.runs.train_spec import retrain_command

if TYPE_CHECKING:
    from rltune.runs.search_spec import SearchSpec


def command_of(
    spec: SearchSpec,
    weights: str | None,
    config: Mapping[str, Any],
    defaults: dict[str, Any],
    seed: int,
    changes: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return the command of a training with a configuration, of rltune or of code of the user's.

    Args:
        spec: the search
        weights: that trainings begin with, as a command names them
        config: the configuration
        defaults: the agent's own
        seed: of the training
        changes: of the configuration on the way
    """
    of_code = backend_of(spec.agent).command(
        spec.agent, spec.env, config, env_kwargs=spec.env_kwargs, budget=spec.budget, seed=seed
    )
    return of_code or retrain_command(
        spec.agent, spec.env, spec.budget, dict(config), defaults, seed, json.dumps(list(changes)),
        env_kwargs=spec.env_kwargs, controls=spec.controls,
        evaluation=spec.evaluation, weights=weights,
    )  # fmt: skip
