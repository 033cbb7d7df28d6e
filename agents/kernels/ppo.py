"""The update of PPO: what `rltune.agents.algorithms.ppo.ppo_loss` defines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from rltune.agents.kernels.actor_critic import ActorCriticKernel
from rltune.agents.kernels.rollouts import Transitions
from torch import Tensor

METRICS = ("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")


KL = METRICS.index("approx_kl")


class Limits(NamedTuple):
    """The hyperparameters in the loss."""

    clip_range: float
    clip_range_vf: float | None  # None: the value function is not limited
    ent_coef: float
    vf_coef: float


class PPOKernel:
    """Takes PPO's gradient steps on a rollout.

    Args:
        nets: computes with actor and critic
        config: a `PPOConfig`
        generator: of the minibatches
    """

    def __init__(self, nets: ActorCriticKernel, config: Any, generator: torch.Generator) -> None:
        self.nets, self.config, self.generator = nets, config, generator

    @np.errstate(all="ignore")  # what is not finite is found in the metrics
    def learn(
        self, rollout: Sequence[Tensor], hp: Limits, learning_rate: float
    ) -> dict[str, float]:
        """Take all gradient steps; returns the metrics' means, the last step's included."""
        shares = self.nets.learner.shares
        history: list[tuple[float, ...]] = []
        norms: list[float] = []
        for batch in self._minibatches(Transitions.of(rollout)):
            if shares.n > 1:
                batch = batch.part(shares.own(len(batch.advantage)))
            metrics = self.gradient(batch, hp)
            history.append(metrics)
            if 0 < self.config.target_kl < shares.mean(metrics[KL]) / 1.5:
                break
            norms.append(self.nets.learner.descend(self.nets.gradient, learning_rate))
        means = np.average(history, 0, shares.weights).tolist()
        return {
            **dict(zip(METRICS, means, strict=True)),
            "grad_norm": sum(norms) / len(norms) if norms else 0.0,
            "updates": float(len(history)),
        }

    def _minibatches(self, rollout: Transitions) -> Iterator[Transitions]:
        """Yield the minibatches of all epochs, shuffled anew for each."""
        config = self.config
        n = len(rollout.advantage)
        size = config.batch_size
        if config.n_minibatches > 0:
            size = max(1, n // config.n_minibatches)
        if size >= n:
            whole = self._prepared(rollout.taken(np.arange(n)))
            yield from [whole] * config.n_epochs
            return
        for _ in range(config.n_epochs):
            order = torch.randperm(n, generator=self.generator).numpy()
            shuffled = rollout.taken(order)
            for first in range(0, n, size):
                yield self._prepared(shuffled.part(slice(first, first + size)))

    def _prepared(self, batch: Transitions) -> Transitions:
        config = self.config
        return batch.normalised(config.advantage_eps) if config.normalize_advantage else batch

    def gradient(self, batch: Transitions, hp: Limits) -> tuple[float, ...]:
        """Set the gradient of the loss in ``nets.gradient``; returns `METRICS`."""
        n = len(batch.advantage)
        sums = np.empty((3, n), np.float32)
        outputs, value = self.nets.forward(batch.obs)
        log_prob, entropies = self.nets.policy.evaluate(outputs, batch.action)

        log_ratio = log_prob - batch.log_prob
        ratio = np.exp(log_ratio)
        clip_range = np.float32(hp.clip_range)
        clipped = np.minimum(np.maximum(ratio, 1 - clip_range), 1 + clip_range)
        gain = batch.advantage * ratio
        limited = batch.advantage * clipped
        np.minimum(gain, limited, out=sums[0])
        # Where the limit counts, the ratio is out of its range and the gradient is 0.
        to_log_prob = gain * (gain <= limited)
        to_log_prob /= -n

        new = value
        if hp.clip_range_vf is not None:
            far = np.float32(hp.clip_range_vf)
            moved = value - batch.value
            new = batch.value + np.minimum(np.maximum(moved, -far), far)
        error = new - batch.target
        value_loss = float(error.dot(error)) / n
        to_value = error * (2 * hp.vf_coef / n)
        if hp.clip_range_vf is not None:
            to_value *= np.abs(moved) <= far

        self.nets.backward(to_log_prob, -hp.ent_coef / n, to_value)
        sums[1] = entropies
        np.subtract(ratio, log_ratio, out=sums[2])
        gained, entropy, kl_and_one = np.add.reduce(sums, axis=1).tolist()
        policy_loss, entropy = -gained / n, entropy / n
        loss = policy_loss + hp.vf_coef * value_loss - hp.ent_coef * entropy
        clip_fraction = int(np.count_nonzero(ratio != clipped)) / n
        return loss, policy_loss, value_loss, entropy, kl_and_one / n - 1, clip_fraction
