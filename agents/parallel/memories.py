"""Memories of several learners: what one process samples or collects, all learn from.

The training process has the memory. Where its update reads it, the others are sent what was read,
and how far the random numbers have got; their own update reads that from a stand-in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from rltune.agents.memory.batch import Batch
from rltune.agents.memory.streams import Rewarding, Stream
from rltune.agents.parallel.channel import Channel, arrays, packed, tensors
from torch import Tensor


class SendingReplay:
    """A replay memory that tells the other learners what it gave.

    Args:
        memory: the replay memory
        channels: to the other learners, in the order of their shares
    """

    def __init__(self, memory: Any, channels: Sequence[Channel]) -> None:
        self.memory, self.channels = memory, channels
        self.steps: int = memory.steps
        self._slot: Tensor | None = None

    def sample(self, batch_size: int, generator: torch.Generator, *more: Any) -> Batch:
        """Return transitions, see `ReplayMemory.sample`."""
        return self._shared(self.memory.sample(batch_size, generator, *more), generator)

    def sample_sequences(
        self, n: int, length: int, burn_in: int, generator: torch.Generator
    ) -> Batch:
        """Return sequences, see `ReplayMemory.sample_sequences`."""
        return self._shared(self.memory.sample_sequences(n, length, burn_in, generator), generator)

    def _shared(self, batch: Batch, generator: torch.Generator) -> Batch:
        self._slot = batch.slot
        message = packed((arrays(batch), arrays(generator.get_state())))
        for channel in self.channels:
            channel.send_bytes(message)
        return batch

    def set_errors(self, slot: Tensor, errors: Tensor) -> None:
        """Take over the errors of the minibatch that was given last, those of all learners."""
        own = errors.detach().cpu()
        parts = [own, *(torch.from_numpy(channel.receive()) for channel in self.channels)]
        assert self._slot is not None
        whole = own if len(own) == len(self._slot) else torch.cat(parts)
        self.memory.set_errors(self._slot, whole)


class ReceivedReplay:
    """What a replay memory elsewhere gives.

    Args:
        channel: from the process that has it
        steps: how many it holds of each environment
    """

    def __init__(self, channel: Channel, steps: int) -> None:
        self.channel, self.steps = channel, steps

    def sample(self, batch_size: int, generator: torch.Generator, *more: Any) -> Batch:
        """Return the transitions that were sampled there."""
        batch, state = self.channel.receive()
        generator.set_state(torch.from_numpy(state))
        received: Batch = tensors(batch, generator.device)
        return received._replace(slot=None if batch.slot is None else torch.from_numpy(batch.slot))

    def sample_sequences(
        self, n: int, length: int, burn_in: int, generator: torch.Generator
    ) -> Batch:
        """Return the sequences that were sampled there."""
        return self.sample(n, generator)

    def set_errors(self, slot: Tensor, errors: Tensor) -> None:
        """Tell the memory how wrong the forecasts for this learner's share were."""
        self.channel.send(errors.detach().cpu().numpy())


class SendingSignals:
    """Reward signals that tell the other learners what they say of a rollout.

    Args:
        signals: the reward signals
        channels: to the other learners
    """

    def __init__(self, signals: Rewarding, channels: Sequence[Channel]) -> None:
        self.signals, self.channels = signals, channels
        self.reads_successors = signals.reads_successors

    def streams(self, **rollout: np.ndarray[Any, Any]) -> list[Stream]:
        """Return the rewards of a rollout, see `Rewarding.streams`."""
        found = self.signals.streams(**rollout)
        for channel in self.channels:
            channel.send(found)
        return found

    def relabelled(self, batch: Batch) -> Batch:
        """Return sampled transitions with all rewards."""
        return self.signals.relabelled(batch)


class ReceivedSignals:
    """What reward signals elsewhere say of a rollout.

    Args:
        channel: from the process that has them
    """

    reads_successors = True

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    def streams(self, **rollout: np.ndarray[Any, Any]) -> list[Stream]:
        """Return the rewards of a rollout, see `Rewarding.streams`."""
        found: list[Stream] = self.channel.receive()
        return found

    def relabelled(self, batch: Batch) -> Batch:
        """Return sampled transitions as they are: they were rewarded where they were sampled."""
        return batch


class Reading:
    """How an update reads a memory, as the training process has it.

    Args:
        memory: of the algorithm
        on_policy: it is a rollout, and no replay memory
        channels: to the other learners
    """

    def __init__(self, memory: Any, on_policy: bool, channels: Sequence[Channel]) -> None:
        self.memory, self.on_policy, self.channels = memory, on_policy, channels

    def announced(self) -> dict[str, Any]:
        """Return what the other learners have to know before the update."""
        if not self.on_policy:
            return {"steps": self.memory.steps}
        return {"rollout": arrays(self.memory.state_dict())}

    def read_by(self, update: Callable[[Any], dict[str, float]]) -> dict[str, float]:
        """Return what an update from the memory returns."""
        if not self.on_policy:
            return update(SendingReplay(self.memory, self.channels))
        signals = self.memory.signals
        if signals is None:
            return update(self.memory)
        self.memory.signals = SendingSignals(signals, self.channels)
        try:
            return update(self.memory)
        finally:
            self.memory.signals = signals


def received(announced: dict[str, Any], memory: Any, channel: Channel) -> Any:
    """Return what another learner's update reads in place of the training's memory.

    Args:
        announced: as `Reading.announced` has it
        memory: an empty one, for rollouts
        channel: from the training process
    """
    if memory is None:
        return ReceivedReplay(channel, announced["steps"])
    memory.hold(tensors(announced["rollout"]))
    return memory
