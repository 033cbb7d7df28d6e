"""Two agents from one state, of one engine each, and how far apart what they learned is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from rltune.agents import Agent
from torch import Tensor


def both(agent: str, env: str, **config: Any) -> tuple[Agent, Agent]:
    """Return an agent that computes with PyTorch, and the same one with kernels."""
    made = [
        Agent(agent, env, config, total_timesteps=10_000, seed=3, engine=engine)
        for engine in ("torch", "numpy")
    ]
    assert [one.engine for one in made] == ["torch", "numpy"]
    return made[0], made[1]


def networks(agent: Agent) -> dict[str, Tensor]:
    """Return a copy of what was learned, by name."""
    state = agent.algorithm.state_dict()
    parts = [part for part in agent.algorithm.NETWORKS if part in state]
    return {f"{p}.{name}": t.clone() for p in parts for name, t in state[p].items()}


def distance(one: Agent, other: Agent) -> float:
    """Return the largest difference between what two agents have learned."""
    mine, theirs = networks(one), networks(other)
    return max(float((mine[name] - theirs[name]).abs().max()) for name in mine)


def unlikeness(gradient: Tensor, autograd: Sequence[Tensor]) -> float:
    """Return the largest difference between gradients, over each parameter's largest number.

    Numbers below 0.005, or a thousandth of the largest of all parameters, are sums of what cancels
    out, such as the entropy's of an even policy, or the last bias's: there, rounding decides, and
    the processor's vectors with it.
    """
    least = max(1e-3 * max(float(g.abs().max()) for g in autograd), 5e-3)
    own = torch.split(gradient, [g.numel() for g in autograd])
    return max(
        float((a - b.reshape(-1)).abs().max() / b.abs().max().clamp(min=least))
        for a, b in zip(own, autograd, strict=True)
    )
