"""The update of DDPG and TD3: what the losses in `rltune.agents.algorithms.ddpg` define."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.kernels.off_policy import ActorKernel, CriticsKernel, columns
from torch import Tensor

Array = NDArray[Any]


class DDPGKernel:
    """Acts, and computes the gradients of the losses of critics and actor.

    Args:
        actor: computes with the actor
        target_actor: the same with the one that follows it
        critics: computes with the critics and those that follow them
        config: a `DDPGConfig`
    """

    def __init__(
        self, actor: ActorKernel, target_actor: ActorKernel, critics: CriticsKernel, config: Any
    ) -> None:
        self.actor, self.target_actor, self.critics = actor, target_actor, critics
        self.config = config

    @np.errstate(all="ignore")  # what is not finite is found in the metrics
    def act(self, obs: Tensor) -> Tensor:
        """Return actions (n, size) in [-1, 1] for ``obs`` (n, ...)."""
        return torch.from_numpy(np.tanh(self.actor.forward(columns(obs))).T)

    @np.errstate(all="ignore")
    def critics_gradient(self, batch: Any) -> tuple[Array, dict[str, float]]:
        """Return the gradient of the critics' loss, and metrics.

        Args:
            batch: a `DDPGBatch`
        """
        next_obs = columns(batch.next_obs)
        next_action = np.tanh(self.target_actor.forward(next_obs))
        if batch.noise is not None:
            largest = self.config.target_noise_clip
            noise = columns(batch.noise) * self.config.target_policy_noise
            next_action = clip(next_action + clip(noise, largest), 1)
        next_value = self.critics.target_value(np.concatenate([next_obs, next_action]))
        reward = self.config.reward_scale * batch.reward.numpy()
        target = reward + batch.discount.numpy() * next_value
        x = np.concatenate([columns(batch.obs), columns(batch.action)])
        gradient, loss, value = self.critics.fit(x, target, 1.0)
        return gradient, {"critic_loss": loss, "q_value": value}

    @np.errstate(all="ignore")
    def actor_gradient(self, batch: Any) -> tuple[Array, dict[str, float]]:
        """Return the same for the actor's loss, which the first critic alone decides."""
        obs = columns(batch.obs)
        first, n = obs.shape
        action = np.tanh(self.actor.forward(obs))
        value = self.critics.value(0, np.concatenate([obs, action]))
        to_action = self.critics.action_gradient(0, n, first)
        gradient = self.actor.backward(obs, to_action * (1 - action * action) / -n)
        return gradient, {"actor_loss": float(-np.add.reduce(value) / n)}


def clip(x: Array, largest: float) -> Array:
    """Return the numbers, those outside of ``largest`` in size on that bound."""
    clipped: Array = np.minimum(np.maximum(x, -largest), largest)
    return clipped
