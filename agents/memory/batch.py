"""Minibatches of replayed transitions."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Batch(NamedTuple):
    """Sampled transitions; the first axis of every tensor is the batch."""

    obs: Tensor
    action: Tensor
    reward: Tensor  # of the n steps, discounted; with a value for each signal (streams, batch)
    next_obs: Tensor  # after the n steps
    discount: Tensor  # what the value of next_obs counts: gamma ** n, 0 after a termination
    weight: Tensor | None = None  # importance weights, where the draw was not uniform
    slot: Tensor | None = None  # where a prioritised memory keeps the transitions

    def rows(self, rows: slice) -> Batch:
        """Return some of the rows."""
        return Batch(*(None if part is None else part[rows] for part in self))  # type: ignore[arg-type]
