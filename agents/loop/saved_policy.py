"""Saved policies: an agent's weights and what rebuilds it to act, without what training needs.

A file is a dictionary of tensors and plain Python that ``torch.load(weights_only=True)`` reads.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from rltune.agents.config import config_dict
from rltune.agents.engines import AUTO, TORCH
from rltune.agents.errors import UserError
from rltune.agents.loop import checkpoint
from rltune.agents.loop.agent import Agent
from torch import Tensor

VERSION = 1
# The networks among an algorithm's ``nets`` that acting does without.
NOT_ACTING = ("critic", "critics", "target_actor", "target_critics")


def write(path: Path, agent: Agent, about: Mapping[str, Any]) -> None:
    """Write an agent's policy.

    Args:
        path: the file
        agent: the agent
        about: plain values for those who read it

    Raises:
        OSError: the folder can't be written to, or the disk is full.
        UserError: the algorithm keeps no networks under the name that ours have.
    """
    state = agent.algorithm.state_dict()
    if not isinstance(state.get("nets"), Mapping):
        raise UserError(f"{agent.algorithm_spec} has no networks called 'nets' to be saved")
    observations = agent.observations
    content = {
        "format": checkpoint.POLICY_FORMAT,
        "version": VERSION,
        "about": dict(about),
        "agent": agent.algorithm_spec,
        "env": agent.env,
        "env_kwargs": agent.env_kwargs,
        "config": config_dict(agent.config),
        "seed": agent.seed,
        "env_steps": agent.env_steps,
        "engine": agent.engine,
        "nets": _acting(state["nets"]),
        "observations": observations and observations.state_dict(),
    }
    buffer = io.BytesIO()  # PyTorch would hide the system's errors behind its own
    torch.save(content, buffer)
    path.write_bytes(buffer.getvalue())


def is_policy(state: object) -> bool:
    """Tell whether that is the content of a saved policy."""
    return isinstance(state, Mapping) and state.get("format") == checkpoint.POLICY_FORMAT


def rebuild(
    state: dict[str, Any], path: Path, *, device: str = "auto", env: str | None = None
) -> Agent:
    """Return the agent of a saved policy, to act with.

    Args:
        state: the content of the file, as `checkpoint.plain` gives it
        path: the file, for errors
        device: as in the constructor of agents
        env: refuse an agent of another environment

    Raises:
        UserError: it is damaged, of a newer version, or of another environment.
    """
    _check(state, path)
    if env not in (None, state["env"]):
        raise UserError(f"{path} is of env {state['env']!r}, not of {env!r}")
    with checkpoint.fitting(path, state["agent"], state["env"]):
        agent = Agent(
            state["agent"],
            state["env"],
            state["config"],
            total_timesteps=max(1, state["env_steps"]),
            seed=state["seed"],
            device=device,
            env_kwargs=state["env_kwargs"],
            acts_only=True,
            engine=TORCH if state["engine"] == TORCH else AUTO,
        )
        if set(state["nets"]) != set(_acting(agent.algorithm.state_dict()["nets"])):
            raise UserError(f"policy {path} is damaged: its networks have other layers")
        if (state["observations"] is None) != (agent.observations is None):
            raise UserError(f"policy {path} is damaged: it has no statistics of observations")
        agent.act_as(state["nets"], state["observations"], state["env_steps"])
    return agent


def _acting(nets: Mapping[str, Any]) -> dict[str, Any]:
    """Return the weights that acting needs."""
    return {
        name: weights.detach().cpu().clone() if isinstance(weights, Tensor) else weights
        for name, weights in nets.items()
        if name.split(".")[0] not in NOT_ACTING
    }


def _check(state: dict[str, Any], path: Path) -> None:
    kinds = {
        "version": int,
        "agent": str,
        "env": str,
        "env_kwargs": dict,
        "config": dict,
        "nets": dict,
        "engine": str,
    }
    for name, kind in kinds.items():
        if not isinstance(state.get(name), kind):
            raise UserError(f"policy {path} is damaged: {name} can't be what it says")
    if state["version"] > VERSION:
        raise UserError(
            f"policy {path} is of format {state['version']}, newer than this rltune reads "
            f"({VERSION}); upgrade rltune"
        )
    for name in ("seed", "env_steps"):
        checkpoint.whole(state, name, path)
    if not isinstance(state.get("observations"), dict | None):
        raise UserError(f"policy {path} is damaged: observations can't be what it says")
