"""The update of SAC for Box actions: what the losses in `rltune.agents.algorithms.sac` define."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.kernels.off_policy import ActorKernel, CriticsKernel, columns
from rltune.agents.networks.actor_critic import LOG_STD_RANGE
from rltune.agents.networks.actors import EPSILON, HALF_LOG_2PI
from torch import Tensor

Array = NDArray[Any]


class Sample(NamedTuple):
    """Actions drawn from squashed normal distributions; the last axis of every array is rows."""

    action: Array  # (size, rows)
    log_prob: Array
    spread: Array  # what noise added to the mean
    slope: Array  # of the squashing
    inside: Array  # whether the log std is in its range

    @classmethod
    def of(cls, outputs: Array, noise: Array) -> Sample:
        """Return the actions of an actor's outputs (2 * size, rows) and noise (size, rows)."""
        size = len(noise)
        mean, raw = outputs[:size], outputs[size:]
        least, most = LOG_STD_RANGE
        log_std = np.minimum(np.maximum(raw, least), most)
        spread = np.exp(log_std) * noise
        # Where actions are all but saturated, the last bit counts: NumPy's tanh differs in it.
        action = torch.from_numpy(mean + spread).tanh_().numpy()
        slope = 1 - action * action
        densities = -0.5 * noise * noise - log_std - np.log(slope + EPSILON)
        log_prob = np.add.reduce(densities, axis=0) - HALF_LOG_2PI * size
        return cls(action, log_prob, spread, slope, raw == log_std)

    def backward(self, action: Array, log_prob: float) -> Array:
        """Return the loss's gradient with respect to the outputs: (2 * size, rows).

        Args:
            action: the same with respect to the actions, but for what comes through
                ``log_prob``: (size, rows)
            log_prob: the same with respect to each log-density
        """
        squashing = 2 * log_prob * self.action / (self.slope + EPSILON)
        mean = (action + squashing) * self.slope
        log_std = (mean * self.spread - log_prob) * self.inside
        return np.concatenate([mean, log_std])


class SACKernel:
    """Acts, and computes the gradients of the losses of critics and actor.

    Args:
        actor: computes with the actor
        critics: computes with the critics and those that follow them
        config: a `SACConfig`
    """

    def __init__(self, actor: ActorKernel, critics: CriticsKernel, config: Any) -> None:
        self.actor, self.critics, self.config = actor, critics, config

    @np.errstate(all="ignore")  # what is not finite is found in the metrics
    def act(self, obs: Tensor, noise: Tensor | None) -> Tensor:
        """Return actions (n, size) in [-1, 1] for ``obs`` (n, ...).

        Args:
            obs: what is seen
            noise: of the distribution; None: the most likely actions
        """
        outputs = self.actor.forward(columns(obs))
        if noise is None:
            return torch.from_numpy(np.tanh(outputs[: len(outputs) // 2]).T)
        return torch.from_numpy(Sample.of(outputs, columns(noise)).action.T)

    @np.errstate(all="ignore")
    def critics_gradient(self, batch: Any, ent_coef: float) -> tuple[Array, dict[str, float]]:
        """Return the gradient of the critics' loss, and metrics.

        Args:
            batch: a `SACBatch`
            ent_coef: the temperature
        """
        next_obs = columns(batch.next_obs)
        after = Sample.of(self.actor.forward(next_obs), columns(batch.next_noise))
        next_value = self.critics.target_value(np.concatenate([next_obs, after.action]))
        soft_value = next_value - ent_coef * after.log_prob
        reward = self.config.reward_scale * batch.reward.numpy()
        target = reward + batch.discount.numpy() * soft_value
        x = np.concatenate([columns(batch.obs), columns(batch.action)])
        gradient, loss, value = self.critics.fit(x, target, 0.5)
        return gradient, {"critic_loss": loss, "q_value": value}

    @np.errstate(all="ignore")
    def actor_gradient(self, batch: Any, ent_coef: float) -> tuple[Array, dict[str, float]]:
        """Return the same for the actor's loss; the arguments are those of `critics_gradient`."""
        obs = columns(batch.obs)
        n = obs.shape[1]
        now = Sample.of(self.actor.forward(obs), columns(batch.noise))
        x = np.concatenate([obs, now.action])
        first, second = (self.critics.value(i, x) for i in (0, 1))
        is_first = first <= second
        loss = np.add.reduce(ent_coef * now.log_prob - np.minimum(first, second)) / n
        # Only the critic whose value is the smaller one has a part in a row's gradient.
        to_action = np.empty_like(now.action)
        for i, rows in enumerate((is_first, ~is_first)):
            chosen = np.flatnonzero(rows)
            to_action[:, chosen] = self.critics.action_gradient(
                i, n, len(obs), torch.from_numpy(chosen)
            )
        gradient = self.actor.backward(obs, now.backward(to_action / -n, ent_coef / n))
        entropy = -np.add.reduce(now.log_prob) / n
        return gradient, {"actor_loss": float(loss), "entropy": float(entropy)}
