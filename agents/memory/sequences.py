"""Sequences: minibatches of consecutive transitions for recurrent networks."""

from __future__ import annotations

from typing import Protocol

import torch
from rltune.agents.errors import UserError
from rltune.agents.memory.batch import Batch
from rltune.agents.memory.replay import ReplayMemory
from rltune.agents.spaces import Spaces


class _Replayed(Protocol):
    """The part of a configuration that decides on the sequences that are replayed."""

    @property
    def batch_size(self) -> int: ...
    @property
    def sequence_length(self) -> int: ...
    @property
    def burn_in(self) -> int: ...
    @property
    def buffer_size(self) -> int: ...


def check_replayed(config: _Replayed, spaces: Spaces) -> None:
    """Raise `UserError` where sequences of such a configuration can't be replayed."""
    steps, length = config.buffer_size // spaces.n_envs, config.burn_in + config.sequence_length
    if steps < length:
        raise UserError(
            f"buffer_size {config.buffer_size:,} keeps {steps} steps of each environment, but "
            f"burn_in and sequence_length take {length}; raise buffer_size"
        )


def sample_sequences(memory: ReplayMemory, config: _Replayed, generator: torch.Generator) -> Batch:
    """Return sequences with ``batch_size`` steps to learn from in all, but one at least."""
    n = max(1, config.batch_size // config.sequence_length)
    return memory.sample_sequences(n, config.sequence_length, config.burn_in, generator)
