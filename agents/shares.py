"""Data parallelism: the share of every minibatch that one of several learners computes.

Each learner takes the gradient of the mean loss over its own rows; their mean, weighted by the
rows, is the gradient of the whole minibatch (as in PyTorch's DistributedDataParallel, Li et al.
2020, arXiv:2006.15704, but exact where the shares are unequal).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]
B = TypeVar("B", bound=tuple[Any, ...])
LAST = ("reward", "discount")  # parts of a minibatch whose last axis is rows, for each signal


class Shares:
    """The share of a learner that is alone: everything. It computes nothing beside.

    Attributes:
        n: how many learners there are
        weights: of this learner's rows in each minibatch of the running update; None: 1
    """

    n = 1
    weights: list[float] | None = None

    def own(self, rows: int) -> slice:
        """Return this learner's rows of a minibatch, whose gradient is the next one."""
        return slice(0, rows)

    def block(self, rows: int) -> slice:
        """Return this learner's rows of what all look at together; maybe none."""
        return slice(0, rows)

    def rows(self, batch: B) -> B:
        """Return this learner's rows of a minibatch, whose gradient is the next one.

        Args:
            batch: a named tuple of tensors (or None), the first one of observations; where these
                are sequences, the other tensors may have their steps in rows
        """
        return batch

    def minibatches(self, drawn: Iterable[Any], size: int) -> Iterable[Any]:
        """Return this learner's rows of what was drawn, minibatch by minibatch.

        A learner that is alone gets it as it was drawn: one minibatch of ``size`` or several.
        """
        return drawn

    def add_up(self, gradient: Tensor) -> None:
        """Turn the gradient of this learner's rows into that of the whole minibatch, in place."""

    def mean(self, value: float) -> float:
        """Return a mean over the whole minibatch from that over this learner's rows."""
        return value

    def joined(self, part: Array, first: int, rows: int) -> Array:
        """Return what all learners found together: (rows, ...).

        Args:
            part: what this one found for its `block`
            first: the row at which that begins
            rows: of all
        """
        return part


class DividedShares(Shares):
    """The share of one learner of several: a block of consecutive rows.

    A minibatch with fewer rows than there are learners is computed by each of them.

    Args:
        rank: of this learner, from 0 on
        n: how many there are
        add: adds a tensor up over the learners, in place
    """

    def __init__(self, rank: int, n: int, add: Callable[[Tensor], None]) -> None:
        self.rank, self.n, self.add = rank, n, add
        self.weight = 1 / n  # of this learner's gradient
        self.weights: list[float] = []

    def own(self, rows: int) -> slice:
        """Return this learner's rows of a minibatch, whose gradient is the next one."""
        own = slice(0, rows) if rows < self.n else self.block(rows)
        self.weight = 1 / self.n if rows < self.n else (own.stop - own.start) / rows
        self.weights.append(self.weight)
        return own

    def end_update(self) -> float:
        """Return the mean weight of the update's minibatches; another update begins."""
        weights, self.weights = self.weights, []
        return sum(weights) / len(weights) if weights else 1 / self.n

    def block(self, rows: int) -> slice:
        """Return this learner's rows of what all look at together; maybe none."""
        return slice(rows * self.rank // self.n, rows * (self.rank + 1) // self.n)

    def rows(self, batch: B) -> B:
        """Return this learner's rows of a minibatch, see `Shares.rows`."""
        units = len(batch[0])
        own = self.own(units)

        def cut(name: str, part: Tensor | None) -> Tensor | None:
            if part is None:
                return None
            axis = part.ndim - 1 if name in LAST else 0
            steps = part.shape[axis] // units
            return part.narrow(axis, own.start * steps, (own.stop - own.start) * steps)

        names: tuple[str, ...] = batch._fields  # type: ignore[attr-defined]
        kind: Any = type(batch)
        taken: B = kind(*map(cut, names, batch))
        return taken

    def minibatches(self, drawn: Iterable[Any], size: int) -> Iterable[Any]:
        """Yield this learner's rows of what was drawn, minibatch by minibatch."""
        for batch in drawn:
            for first in range(0, len(batch.obs), size):
                whole = len(batch.obs) <= size
                yield self.rows(batch if whole else batch.rows(slice(first, first + size)))

    def add_up(self, gradient: Tensor) -> None:
        """Turn the gradient of this learner's rows into that of the whole minibatch, in place."""
        gradient *= self.weight
        self.add(gradient)

    def mean(self, value: float) -> float:
        """Return a mean over the whole minibatch from that over this learner's rows."""
        total = torch.tensor([value * self.weight], dtype=torch.float64)
        self.add(total)
        return float(total)

    def joined(self, part: Array, first: int, rows: int) -> Array:
        """Return what all learners found together: (rows, ...)."""
        whole = np.zeros((rows, *part.shape[1:]), part.dtype)
        whole[first : first + len(part)] = part
        self.add(torch.from_numpy(whole))
        return whole
