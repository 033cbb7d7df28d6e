"""Policies: what the outputs of an actor mean, and the gradients of log-probability and entropy.

They compute what `rltune.agents.networks.distributions` defines. An action is (size, rows).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.kernels.activations import Cells
from rltune.agents.kernels.slots import Slot
from rltune.agents.networks.distributions import LOG_2PI

Array = NDArray[Any]


class Noise:
    """A buffer for the noise of a policy: a tensor made anew with each step costs much."""

    def __init__(self) -> None:
        self._cells = Cells.of(0, 0)

    def like(self, outputs: Array) -> Cells:
        """Return cells (rows, outputs) to fill, for outputs (outputs, rows)."""
        shape = outputs.shape[::-1]
        if self._cells.array.shape != shape:
            self._cells = Cells.of(*shape)
        return self._cells


class Choice:
    """One of several choices; the outputs are logits."""

    dtype = np.int64

    def __init__(self) -> None:
        self._noise = Noise()
        self._row = np.arange(0)

    def mode(self, outputs: Array) -> Array:
        """Return the most likely actions: (1, rows)."""
        chosen: Array = np.argmax(outputs, 0)[None]
        return chosen

    def sample(self, outputs: Array, generator: torch.Generator) -> Array:
        """Return actions (1, rows), drawn with Gumbel noise."""
        noise = self._noise.like(outputs)
        noise.tensor.exponential_(generator=generator)
        np.log(noise.array, out=noise.array)
        chosen: Array = np.argmax(outputs - noise.array.T, 0)[None]
        return chosen

    def evaluate(self, outputs: Array, action: Array) -> tuple[Array, Array]:
        """Return log-probabilities and entropies, each (rows,), and keep what `backward` needs."""
        rows = outputs.shape[1]
        shifted = outputs - np.maximum.reduce(outputs, axis=0)
        powers = np.exp(shifted)
        total = np.add.reduce(powers, axis=0)
        self._log_probs = shifted - np.log(total)
        self._probs = powers / total
        self._entropy = -np.add.reduce(self._probs * self._log_probs, axis=0)
        if len(self._row) != rows:
            self._row = np.arange(rows)
        self._chosen = action[0] * rows + self._row
        return self._log_probs.ravel()[self._chosen], self._entropy

    def backward(self, log_prob: Array, entropy: float, out: Array) -> None:
        """Set the gradient of the outputs (choices, rows).

        Args:
            log_prob: the loss's gradient with respect to each log-probability: (rows,)
            entropy: the same with respect to each entropy
            out: where it goes
        """
        np.multiply(self._probs, -log_prob, out=out)
        out.ravel()[self._chosen] += log_prob
        if entropy:
            out -= entropy * self._probs * (self._log_probs + self._entropy)

    def kl(self, outputs: Array, others: Array) -> Array:
        """Return the divergence of the policy of ``outputs`` from that of ``others``: (rows,)."""
        log_probs, other = _log_softmax(outputs), _log_softmax(others)
        divergence: Array = np.add.reduce(np.exp(log_probs) * (log_probs - other), axis=0)
        return divergence

    def curvature(self, tangent: Array) -> Array:
        """Return the divergence's second derivative times a change of the outputs.

        It is that at the outputs that `evaluate` had: Fisher's information.
        """
        mean = np.add.reduce(self._probs * tangent, axis=0)
        product: Array = self._probs * (tangent - mean)
        return product


def _log_softmax(outputs: Array) -> Array:
    shifted = outputs - np.maximum.reduce(outputs, axis=0)
    log_probs: Array = shifted - np.log(np.add.reduce(np.exp(shifted), axis=0))
    return log_probs


class Normal:
    """Independent normal distributions; the outputs are the means, the stds are free parameters.

    Args:
        log_std: where the parameter lies
        flat: the parameters
        gradient: their gradients
    """

    dtype = np.float32

    def __init__(self, log_std: Slot, flat: Array, gradient: Array) -> None:
        self._log_std = log_std.of(flat)[0][:, None]
        self._gradient = log_std.of(gradient)[0]
        self._constant = 0.5 * LOG_2PI * len(self._log_std)
        self._noise = Noise()

    def mode(self, outputs: Array) -> Array:
        """Return the means: (size, rows)."""
        return outputs

    def sample(self, outputs: Array, generator: torch.Generator) -> Array:
        """Return actions (size, rows), drawn with standard normal noise."""
        noise = self._noise.like(outputs)
        noise.tensor.normal_(generator=generator)
        drawn: Array = outputs + np.exp(self._log_std) * noise.array.T
        return drawn

    def evaluate(self, outputs: Array, action: Array) -> tuple[Array, Array]:
        """Return log-densities and entropies, each (rows,), and keep what `backward` needs."""
        self._precision = np.exp(-self._log_std)
        self._distance = (action - outputs) * self._precision
        self._square = self._distance * self._distance
        volume = self._log_std.sum() + np.float32(self._constant)
        log_prob = -0.5 * np.add.reduce(self._square, axis=0) - volume
        entropy = volume + np.float32(0.5 * len(self._log_std))
        return log_prob, np.broadcast_to(entropy, log_prob.shape)

    def backward(self, log_prob: Array, entropy: float, out: Array) -> None:
        """Set the gradients of the means (size, rows) and of the log stds; see `Choice`."""
        np.multiply(self._distance, self._precision, out=out)
        out *= log_prob
        np.dot(self._square - 1, log_prob, out=self._gradient)
        if entropy:
            self._gradient += entropy * len(log_prob)

    def kl(self, outputs: Array, others: Array) -> Array:
        """Return the divergence of the policy of ``outputs`` from the one that `keep` kept."""
        log_ratio = self._log_std - self._kept
        distance = (outputs - others) * np.exp(-self._kept)
        divergence = 0.5 * (np.exp(2 * log_ratio) + distance * distance - 1) - log_ratio
        summed: Array = np.add.reduce(divergence, axis=0)
        return summed

    def keep(self) -> None:
        """Note the stds of the policy that acted."""
        self._kept = self._log_std.copy()

    def curvature(self, tangent: Array) -> Array:
        """Return the divergence's second derivative times a change of the means; see `Choice`."""
        product: Array = self._precision * self._precision * tangent
        return product


Policy = Choice | Normal
