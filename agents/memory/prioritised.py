"""Prioritised experience replay (Schaul et al. 2016, arXiv:1511.05952)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.memory.batch import Batch
from rltune.agents.memory.replay import ReplayMemory
from rltune.agents.spaces import Spaces
from torch import Tensor

if TYPE_CHECKING:
    from rltune.agents.algorithm import VectorStep
    from typing_extensions import Unpack

Array = NDArray[Any]
# Added to every error, so that each transition is drawn sooner or later.
SMALLEST = 1e-6


class SumTree:
    """Numbers that can be changed and drawn in proportion to their size, many at once.

    Every node is the exact sum of its two children, so the tree depends on its leaves alone and not
    on their history.

    Args:
        size: how many numbers there are; all are 0 at first
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.levels = max(1, (size - 1).bit_length())
        self.first = 2**self.levels  # where the leaves begin; the root is node 1
        self.nodes: NDArray[np.float64] = np.zeros(2 * self.first)

    @property
    def total(self) -> float:
        """The sum of all."""
        return float(self.nodes[1])

    @property
    def leaves(self) -> NDArray[np.float64]:
        """The numbers themselves; only `set` may change them."""
        leaves: NDArray[np.float64] = self.nodes[self.first : self.first + self.size]
        return leaves

    def set(self, index: Array, values: Array) -> None:
        """Change some of the numbers; of an index that occurs twice, the last value counts."""
        node = index + self.first
        self.nodes[node] = values
        for _ in range(self.levels):
            node = node // 2
            left = 2 * node
            self.nodes[node] = self.nodes[left] + self.nodes[left + 1]

    def find(self, height: Array) -> Array:
        """Return the index at which the running sum passes each ``height`` in [0, total)."""
        node: NDArray[np.int64] = np.ones(len(height), np.int64)
        height = height.copy()
        for _ in range(self.levels):
            node *= 2
            left = self.nodes[node]
            # The second condition only matters where rounding carried a height beyond the sum.
            right = (height >= left) & (self.nodes[node + 1] > 0)
            height -= np.where(right, left, 0.0)
            node += right
        node -= self.first
        return node


class PrioritisedMemory(ReplayMemory):
    """Transitions are drawn in proportion to ``priority ** alpha``.

    The priority is the size of the last error, and that of a new transition the largest so far. A
    transition's slot is its row times the number of environments, plus its environment.

    Args:
        alpha: 0 draws uniformly
        others: as in `ReplayMemory`
    """

    def __init__(
        self,
        capacity: int,
        spaces: Spaces,
        action_shape: tuple[int, ...],
        action_dtype: type[np.generic],
        *,
        gamma: float,
        n_step: int = 1,
        n_frames: int | None = None,
        alpha: float,
    ) -> None:
        super().__init__(
            capacity,
            spaces,
            action_shape,
            action_dtype,
            gamma=gamma,
            n_step=n_step,
            n_frames=n_frames,
        )
        self.alpha = alpha
        self.largest = 1.0
        self.tree = SumTree(self.n_rows * self.n_envs)
        self._fresh: list[int] = []  # rows that the tree does not know yet

    def add(self, **step: Unpack[VectorStep]) -> None:
        """Append one step of all environments, at the largest priority so far."""
        self._fresh.append(self.position)
        super().add(**step)

    @property
    def mass(self) -> float:
        """The sum of all priorities."""
        self._refresh()
        return self.tree.total

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays, filled or not."""
        return super().nbytes + self.tree.nodes.nbytes

    def _refresh(self) -> None:
        """Let the tree know of the steps since the last draw, all at once."""
        if not self._fresh:
            return
        fresh = np.array(self._fresh[-self.capacity :])
        # As many have left the memory; those that were never in it have no weight anyway.
        gone = (fresh - self.capacity) % self.n_rows
        stale = np.array(self._fresh[: -self.capacity], np.int64)
        self._set_rows(np.concatenate([gone, stale]), np.zeros(self.n_envs))
        self._set_rows(fresh, self.valid[fresh] * self.largest**self.alpha)
        self._fresh = []

    def _set_rows(self, rows: Array, values: Array) -> None:
        index = rows[:, None] * self.n_envs + np.arange(self.n_envs)
        self.tree.set(index.reshape(-1), np.broadcast_to(values, index.shape).reshape(-1))

    def sample(self, batch_size: int, generator: torch.Generator, beta: float = 1.0) -> Batch:
        """Return transitions drawn by priority, one from each of ``batch_size`` equal shares.

        Args:
            batch_size: how many
            generator: of the draws, on whose device the result is
            beta: how far the weights, at most 1, make up for the draw not being uniform
        """
        self._refresh()
        total = self.tree.total
        noise = torch.rand(
            batch_size, generator=generator, device=generator.device, dtype=torch.float64
        )
        height = (np.arange(batch_size) + noise.cpu().numpy()) * (total / batch_size)
        index = self.tree.find(height)
        weight = (self.tree.leaves[index] / total * len(self)) ** -beta
        weight /= np.max(weight)
        row, env = np.divmod(index, self.n_envs)
        batch = self._rewarded(self._sampled((self.position - row) % self.n_rows, env, generator))
        return batch._replace(
            weight=torch.from_numpy(weight.astype(np.float32)).to(generator.device),
            slot=torch.from_numpy(index),
        )

    def set_errors(self, slot: Tensor, errors: Tensor) -> None:
        """Take over how wrong the forecasts for `Batch.slot` were: ``errors`` of any sign."""
        priority = errors.detach().abs().cpu().numpy().astype(np.float64) + SMALLEST
        self.largest = max(self.largest, float(np.max(priority)))
        self.tree.set(slot.numpy(), priority**self.alpha)

    def state_dict(self) -> dict[str, Any]:
        """Return the content with its priorities."""
        self._refresh()
        rows = self._row(np.arange(self.held, -1, -1))
        leaves = self.tree.leaves.reshape(self.n_rows, self.n_envs)[rows]
        return {
            **super().state_dict(),
            "priorities": torch.from_numpy(leaves),
            "largest": self.largest,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        super().load_state_dict(state)
        self.largest = state["largest"]
        self._fresh = []
        self.tree = SumTree(self.tree.size)
        rows = self._row(np.arange(self.held, -1, -1))
        self._set_rows(rows, state["priorities"].numpy())
