"""The update of DQN: what `rltune.agents.algorithms.dqn.dqn_loss` defines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.kernels.q_network import QKernel
from rltune.agents.learner import Learner, Target
from rltune.agents.memory.batch import Batch
from torch import Tensor

Array = NDArray[Any]
CHUNK = 256  # rows that the target values together: their numbers stay in the cache


class Minibatch(NamedTuple):
    """Transitions to learn from; the last axis of every array is rows."""

    obs: Array  # (d, rows)
    action: Array
    target: Array
    weight: Array | None = None  # None: all the same
    slot: Tensor | None = None  # where a prioritised memory keeps them


METRICS = ("loss", "q_value", "grad_norm")


class DQNKernel:
    """Acts greedily and takes DQN's gradient steps.

    Args:
        nets: computes with a network's parameters
        learner: optimises them
        target: the network that values what follows
        config: a `DQNConfig`
    """

    def __init__(self, nets: QKernel, learner: Learner, target: Target[Any], config: Any) -> None:
        self.nets, self.learner, self.config = nets, learner, config
        self.gradient = np.empty_like(learner.flat.numpy())
        self._online = nets.layers(learner.flat.numpy())
        self._target = nets.layers(target.flat.numpy())
        self._gradients = nets.layers(self.gradient)
        self._delta = np.float32(config.huber_delta if config.td_loss == "huber" else math.inf)

    @np.errstate(all="ignore")
    def best(self, obs: Array) -> Array:
        """Return the best actions (n,) for ``obs`` (n, ...)."""
        values = self.nets.forward(self._online, obs.reshape(len(obs), -1).T)
        best: Array = np.argmax(values, 0)
        return best

    @np.errstate(all="ignore")  # what is not finite is found in the metrics
    def learn(
        self, samples: Iterable[Batch], memory: Any, learning_rate: float
    ) -> dict[str, float]:
        """Take all gradient steps; returns the metrics' means.

        Args:
            samples: the transitions of one minibatch or several
            memory: where they come from; one with priorities is told the errors
            learning_rate: the step size
        """
        history: list[tuple[float, ...]] = []
        for batch in self._minibatches(samples):
            loss, q_value, errors = self.set_gradient(batch)
            if batch.slot is not None:
                memory.set_errors(batch.slot, torch.from_numpy(errors))
            grad_norm = self.learner.descend(self.gradient, learning_rate)
            history.append((loss, q_value, grad_norm))
        return dict(zip(METRICS, np.array(history).mean(0).tolist(), strict=True))

    def _minibatches(self, samples: Iterable[Batch]) -> Iterator[Minibatch]:
        size = self.config.batch_size
        for drawn in samples:
            n = len(drawn.reward)
            obs, next_obs = (part.numpy().reshape(n, -1).T for part in (drawn.obs, drawn.next_obs))
            reward = self.config.reward_scale * drawn.reward.numpy()
            action, discount = drawn.action.numpy(), drawn.discount.numpy()
            weight = None if drawn.weight is None else drawn.weight.numpy()
            following = self._following(next_obs)
            for i in range(0, n, size):
                rows = slice(i, i + size)
                values = following[:, rows]
                if self.config.double:
                    best = np.argmax(self.nets.forward(self._online, next_obs[:, rows]), 0)
                    value = values[best, np.arange(len(best))]
                else:
                    value = np.maximum.reduce(values, axis=0)
                target = reward[rows] + discount[rows] * value
                own = None if weight is None else weight[rows]
                yield Minibatch(obs[:, rows], action[rows], target, own, drawn.slot)

    def _following(self, next_obs: Array) -> Array:
        """Return what the target network says about ``next_obs`` (d, rows): (actions, rows)."""
        n = next_obs.shape[1]
        values = np.empty((self.nets.n_actions, n), np.float32)
        for first in range(0, n, CHUNK):
            part = slice(first, first + CHUNK)
            values[:, part] = self.nets.forward(self._target, next_obs[:, part])
        return values

    def set_gradient(self, batch: Minibatch) -> tuple[float, float, Array]:
        """Set ``gradient``, the loss's; returns the loss, the mean value and the errors (rows,)."""
        n = len(batch.target)
        values = self.nets.forward(self._online, batch.obs)
        chosen = batch.action * n + np.arange(n)
        value = values.reshape(-1)[chosen]
        errors = batch.target - value
        size = np.abs(errors)
        near = np.minimum(size, self._delta)
        losses = near * (size - 0.5 * near)
        to_value = np.copysign(near, -errors)
        if batch.weight is not None:
            losses *= batch.weight
            to_value *= batch.weight
        to_value /= np.float32(n)
        self.nets.backward(self._online, self._gradients, chosen, to_value)
        return float(np.add.reduce(losses) / n), float(np.add.reduce(value) / n), errors
