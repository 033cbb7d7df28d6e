"""Rollouts as arrays: transitions whose last axis is rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]


class Transitions(NamedTuple):
    """The rows of a rollout; the last axis of every array is rows."""

    obs: Array  # (d, rows)
    action: Array  # (size, rows)
    log_prob: Array
    value: Array
    advantage: Array
    target: Array

    @classmethod
    def of(cls, rollout: Sequence[Tensor]) -> Transitions:
        """Return the rows of a rollout whose tensors have rows as their first axis."""
        obs, action, *rest = (tensor.numpy() for tensor in rollout)
        return cls(obs.reshape(len(obs), -1).T, action.T, *rest)

    def taken(self, index: Array) -> Transitions:
        """Return some of the rows."""
        return Transitions(*(part.take(index, axis=-1) for part in self))

    def part(self, rows: slice) -> Transitions:
        """Return a view of consecutive rows."""
        return Transitions(*(part[..., rows] for part in self))

    def normalised(self, eps: float) -> Transitions:
        """Return the rows with advantages of mean 0 and standard deviation 1, but for ``eps``."""
        n = len(self.advantage)
        if n < 2:
            return self
        centred = self.advantage - np.add.reduce(self.advantage) / np.float32(n)
        std = np.sqrt(centred.dot(centred) / np.float32(n - 1))
        return self._replace(advantage=centred / (std + np.float32(eps)))
