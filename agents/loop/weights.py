"""Warm starts: a new training that begins with the networks of a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rltune.agents.algorithm import Algorithm
from rltune.agents.errors import UserError
from rltune.agents.loop import checkpoint
from rltune.agents.loop.normalization import ObservationNormalizer


def load_weights(
    path: str | Path,
    algorithm_spec: str,
    env: str,
    algorithm: Algorithm[Any],
    observations: ObservationNormalizer | None,
) -> None:
    """Take over the networks of a checkpoint, and how it normalises observations.

    Args:
        path: the checkpoint
        algorithm_spec: the name of the agent that takes them over
        env: the environment that it is to be trained on
        algorithm: gets the networks
        observations: gets the statistics; None: observations are not normalised

    Raises:
        UserError: no checkpoint; or its networks, or what they are shown, don't fit.
    """
    state = checkpoint.read(path)
    if parts := checkpoint.members(state, path):  # of several environments: the one here
        state = next((part for part in parts if part.get("env") == env), {})
        if not state:
            raise UserError(f"weights {path} are of no agent on {env!r}")
    what = f"weights {path} ({state.get('agent')} on {state.get('env')}) don't fit {env!r}"
    if not isinstance(state.get("algorithm"), dict):
        raise UserError(f"checkpoint {path} holds no networks of rltune's own agents")
    shown = state.get("observations")
    if (shown is None) != (observations is None):
        flag = "--normalize-observations " + ("false" if shown is None else "true")
        has = "does not normalise" if shown is None else "normalises"
        raise UserError(f"{what}: its agent {has} observations; give {flag}")
    try:
        algorithm.load_weights(state["algorithm"])
    except UserError as error:
        raise UserError(f"{what}: {error}") from None
    with checkpoint.fitting(path, algorithm_spec, env):
        if observations is not None and shown is not None:
            observations.load_state_dict(shown)
