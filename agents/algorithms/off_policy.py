"""Off-policy actor-critics: the hyperparameters and losses that DDPG, TD3 and SAC share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from rltune.agents.algorithm import means
from rltune.agents.config import HindsightConfig, hp
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig(HindsightConfig):
    """The hyperparameters of agents that learn an actor and critics from replayed transitions."""

    actor_learning_rate: float | str = hp(
        0.0, low=1e-5, high=1e-2, scale="log", schedule=True, help="the actor's; 0: learning_rate"
    )
    critic_learning_rate: float | str = hp(
        0.0, low=1e-5, high=1e-2, scale="log", schedule=True, help="the critics'; 0: learning_rate"
    )
    reward_scale: float = hp(
        1.0, low=0.01, high=100, scale="log", help="what rewards are multiplied with"
    )
    td_loss: str = hp(
        "squared",
        choices=("squared", "huber"),
        help="of the critics' errors; huber: those beyond 1 count linearly",
    )


def huber(error: Tensor) -> Tensor:
    """Return the square of each error, and beyond 1 its tangent (Huber 1964)."""
    size = error.abs()
    near = size.clamp(max=1.0)
    return near * (2 * size - near)


TD_LOSSES: dict[str, Callable[[Tensor], Tensor]] = {"squared": torch.square, "huber": huber}


def averages(history: list[dict[str, Any]]) -> dict[str, float]:
    """Return the mean of each metric over the minibatches: tensors, or a kernel's numbers."""
    if all(isinstance(value, Tensor) for value in history[0].values()):
        return means(history)
    return {
        name: sum(float(metrics[name]) for metrics in history) / len(history) for name in history[0]
    }
