"""The update of A2C: what `rltune.agents.algorithms.a2c.a2c_loss` defines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rltune.agents.kernels.actor_critic import ActorCriticKernel
from rltune.agents.kernels.rollouts import Transitions
from torch import Tensor

METRICS = ("loss", "policy_loss", "value_loss", "entropy")


class A2CKernel:
    """Takes A2C's gradient step on a rollout.

    Args:
        nets: computes with actor and critic
        config: an `A2CConfig`
    """

    def __init__(self, nets: ActorCriticKernel, config: Any) -> None:
        self.nets, self.config = nets, config

    @np.errstate(all="ignore")  # what is not finite is found in the metrics
    def learn(self, rollout: Sequence[Tensor], learning_rate: float) -> dict[str, float]:
        """Take the step; returns the metrics."""
        batch = Transitions.of(rollout)
        if self.config.normalize_advantage:
            batch = batch.normalised(self.config.advantage_eps)
        shares = self.nets.learner.shares
        if shares.n > 1:
            batch = batch.part(shares.own(len(batch.advantage)))
        metrics = dict(zip(METRICS, self.gradient(batch), strict=True))
        norm = self.nets.learner.descend(self.nets.gradient, learning_rate)
        return {**metrics, "grad_norm": norm}

    def gradient(self, batch: Transitions) -> tuple[float, ...]:
        """Set the gradient of the loss in ``nets.gradient``; returns `METRICS`."""
        ent_coef, vf_coef = self.config.ent_coef, self.config.vf_coef
        n = len(batch.advantage)
        outputs, value = self.nets.forward(batch.obs)
        log_prob, entropies = self.nets.policy.evaluate(outputs, batch.action)
        policy_loss = -float(batch.advantage.dot(log_prob)) / n
        error = value - batch.target
        value_loss = float(error.dot(error)) / n
        entropy = float(np.add.reduce(entropies)) / n
        self.nets.backward(batch.advantage / -n, -ent_coef / n, error * (2 * vf_coef / n))
        loss = policy_loss + vf_coef * value_loss - ent_coef * entropy
        return loss, policy_loss, value_loss, entropy
