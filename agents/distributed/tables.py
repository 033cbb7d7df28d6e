"""Tables of a replay server: replayed transitions, and queues."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.distributed.fragments import STEP, Fragment
from rltune.agents.memory.batch import Batch

Array = NDArray[Any]
T = TypeVar("T")


class Table(Protocol):
    """What a replay server keeps of the fragments that actors insert."""

    def insert(self, fragment: Fragment) -> None:
        """Take in a fragment."""


class QueueTable(Generic[T]):
    """First in, first out: each item is given once.

    Args:
        item: what is kept of a fragment
    """

    def __init__(self, item: Callable[[Fragment], T]) -> None:
        self._item = item
        self._items: deque[T] = deque()

    def __len__(self) -> int:
        return len(self._items)

    def insert(self, fragment: Fragment) -> None:
        """Append what is kept of a fragment."""
        self._items.append(self._item(fragment))

    def take(self, n: int) -> list[T]:
        """Return the ``n`` oldest items, and forget them; fewer where there are fewer."""
        return [self._items.popleft() for _ in range(min(n, len(self._items)))]


class ReplayTable:
    """Transitions that are kept and sampled again: a replay memory for each actor.

    A draw chooses a memory in proportion to its transitions, or to the sum of their priorities,
    and a transition in it. So each transition, or each priority, counts as in a single memory.

    Args:
        make_memory: makes an empty memory for an actor's environments
        n_actors: how many there are; the number of each is below that
        seed: of the draws
    """

    def __init__(self, make_memory: Callable[[], Any], n_actors: int, seed: int) -> None:
        self._make_memory, self.n_actors = make_memory, n_actors
        self.generator = torch.Generator().manual_seed(seed)
        self.shards: dict[int, Any] = {}

    def __len__(self) -> int:
        """Return the number of transitions."""
        return sum(len(shard) for shard in self.shards.values())

    @property
    def nbytes(self) -> int:
        """The bytes of all memories' arrays, filled or not."""
        return sum(shard.nbytes for shard in self.shards.values())

    def insert(self, fragment: Fragment) -> None:
        """Append the steps of a fragment to the memory of its actor."""
        shard = self.shards.get(fragment.actor)
        if shard is None:
            shard = self.shards[fragment.actor] = self._make_memory()
        if fragment.begins:
            shard.interrupt()
        next_obs = fragment.next_obs()
        for row in range(fragment.rows):
            step = {name: fragment.steps[name][row] for name in STEP}
            shard.add(obs=fragment.obs[row], next_obs=next_obs[row], **step)

    def can(self, method: str, *args: int) -> bool:
        """Whether a sampling method has something to draw from."""
        if method == "sample":
            return len(self) > 0
        _, _, length, burn_in = args
        return any(shard.steps >= burn_in + length for shard in self.shards.values())

    def sample(self, n: int, batch_size: int, beta: float | None = None) -> list[Batch]:
        """Return ``n`` minibatches, whose parts are arrays.

        Args:
            n: how many
            batch_size: transitions in each
            beta: as in `PrioritisedMemory.sample`; None: the memories have no priorities
        """
        return [self._batch(batch_size, beta) for _ in range(n)]

    def sample_sequences(self, n: int, count: int, length: int, burn_in: int) -> list[Batch]:
        """Return ``n`` minibatches of ``count`` sequences; see `ReplayMemory.sample_sequences`."""
        total = burn_in + length
        starts = {
            key: (shard.steps - total + 1) * shard.n_envs
            for key, shard in self.shards.items()
            if shard.steps >= total
        }
        return [
            _joined(
                [
                    self.shards[key].sample_sequences(drawn, length, burn_in, self.generator)
                    for key, drawn in self._shares(starts, count)
                ]
            )
            for _ in range(n)
        ]

    def _batch(self, batch_size: int, beta: float | None) -> Batch:
        masses = {key: shard.mass for key, shard in self.shards.items()}
        parts, priorities = [], []
        for key, drawn in self._shares(masses, batch_size):
            shard = self.shards[key]
            if beta is None:
                parts.append(shard.sample(drawn, self.generator))
                continue
            part = shard.sample(drawn, self.generator, beta)
            priorities.append(shard.tree.leaves[part.slot.numpy()])
            parts.append(part._replace(slot=part.slot * self.n_actors + key))
        batch = _joined(parts)
        if beta is None:
            return batch
        chance = np.concatenate(priorities) / sum(masses.values())
        weight = (chance * len(self)) ** -beta
        return batch._replace(weight=(weight / np.max(weight)).astype(np.float32))

    def _shares(self, masses: Mapping[int, float], n: int) -> list[tuple[int, int]]:
        """Return how many of ``n`` draws each memory gets, those alone that get some."""
        total = sum(masses.values())
        drawn = torch.rand(n, generator=self.generator, dtype=torch.float64).numpy() * total
        ends = np.cumsum(list(masses.values()))
        counts = np.bincount(
            np.minimum(np.searchsorted(ends, drawn, side="right"), len(ends) - 1),
            minlength=len(ends),
        )
        return [(key, int(n)) for key, n in zip(masses, counts, strict=True) if n]

    def set_errors(self, slot: Array, errors: Array) -> None:
        """Take over errors, see `PrioritisedMemory.set_errors`."""
        slots, actor = np.divmod(slot, self.n_actors)
        for key, shard in self.shards.items():
            if (own := actor == key).any():
                shard.set_errors(torch.from_numpy(slots[own]), torch.from_numpy(errors[own]))

    def state_dict(self) -> dict[str, Any]:
        """Return the content of all memories."""
        shards = {key: shard.state_dict() for key, shard in self.shards.items()}
        return {"shards": shards, "generator": self.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` gave; the actors begin new episodes."""
        self.shards = {}
        for key, content in state["shards"].items():
            shard = self.shards[int(key)] = self._make_memory()
            shard.load_state_dict(content)
            shard.interrupt()
        self.generator.set_state(state["generator"])


def _joined(parts: list[Batch]) -> Batch:
    """Return minibatches as one, its parts as arrays."""
    columns = zip(*parts, strict=True)
    return Batch(
        *(
            None if column[0] is None else np.concatenate([np.asarray(part) for part in column])
            for column in columns
        )  # type: ignore[arg-type]
    )
