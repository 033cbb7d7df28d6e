"""Recurrent networks: an LSTM behind the encoder, and its states.

The state before a step is a part of the algorithm's inputs (`rltune.agents.spaces`), so memories
keep it, and successors bring their own. A network that is given sequences (batch, length, size)
unrolls them from the state of their first row; one that is given rows does one step for each.
"""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from rltune.agents.spaces import InputParts
from torch import Tensor, nn

Array = NDArray[Any]


class LSTM(nn.Module):
    """Long short-term memory (Hochreiter and Schmidhuber 1997, doi:10.1162/neco.1997.9.8.1735).

    It is written out because many agents at once (vmap) can't go through torch's own.

    Args:
        parts: of the network's inputs, the states among them
        n_in: numbers that it reads in a step
        which: of the states is its own
    """

    forget: Tensor

    def __init__(self, parts: InputParts, n_in: int, which: int) -> None:
        super().__init__()
        self.parts = parts
        self.which = which
        self.size = size = parts.lstm_sizes[which]
        self.input = nn.Linear(n_in, 4 * size)
        self.recurrent = nn.Linear(size, 4 * size, bias=False)
        # What is known shall stay at first (Jozefowicz et al. 2015).
        forget = torch.cat([torch.ones(size), torch.zeros(3 * size)])
        self.register_buffer("forget", forget, persistent=False)

    def forward(self, features: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs of all rows (rows, size) and the last states (batch, 2 * size).

        Args:
            features: of all rows in their order: (rows, n_in)
            inputs: (batch, length, ...) or, for one step, (batch, ...)
        """
        if inputs.ndim == 2:
            inputs = inputs.unsqueeze(1)
        stored = self.parts.state(inputs, self.which)
        begins = self.parts.begins(inputs).unbind(1)
        projected = (self.input(features) + self.forget).view(*inputs.shape[:2], -1).unbind(1)
        hidden, cell = stored[:, 0].chunk(2, -1)
        outputs = []
        for t, projection in enumerate(projected):
            if t:  # where an episode begins within the sequence, the state is the stored one
                own_hidden, own_cell = stored[:, t].chunk(2, -1)
                hidden = torch.where(begins[t], own_hidden, hidden)
                cell = torch.where(begins[t], own_cell, cell)
            gates = projection + self.recurrent(hidden)
            keep, write, show = gates[:, : 3 * self.size].sigmoid().chunk(3, -1)
            cell = keep * cell + write * gates[:, 3 * self.size :].tanh()
            hidden = show * cell.tanh()
            outputs.append(hidden)
        return torch.stack(outputs, 1).flatten(0, 1), torch.cat([hidden, cell], -1)


class Reader(nn.Module):
    """The beginning of a network: an encoder, and behind it an LSTM or none."""

    parts: InputParts
    encoder: nn.Module
    core: LSTM | None

    def read(self, inputs: Tensor) -> Tensor:
        """Return features: (batch, size), or (batch * length, size) of sequences."""
        features: Tensor = self.encoder(self.parts.observation(inputs))
        return features if self.core is None else self.core(features, inputs)[0]

    def next_state(self, inputs: Tensor) -> Tensor:
        """Return the LSTM's state behind the last step: (batch, 2 * size)."""
        assert self.core is not None
        state: Tensor = self.core(self.encoder(self.parts.observation(inputs)), inputs)[1]
        return state

    @torch.no_grad()
    def warm_up(self, inputs: Tensor, burn_in: int) -> Tensor:
        """Return sequences without their first steps, which the LSTM went through.

        Stored states are those of older networks. Some steps later the difference has faded
        (Kapturowski et al. 2019, https://openreview.net/forum?id=r1lyTjAqYX).
        """
        if burn_in == 0:
            return inputs
        assert self.core is not None
        state = self.next_state(inputs[:, :burn_in])
        rest = inputs[:, burn_in:].clone()
        stored = self.parts.state(rest[:, 0], self.core.which)
        stored.copy_(torch.where(self.parts.begins(rest[:, 0]), stored, state))
        return rest


def make_core(parts: InputParts, n_in: int, which: int = 0) -> LSTM | None:
    """Return an LSTM, not yet initialised, or None where the inputs have no room for its state."""
    return LSTM(parts, n_in, which) if parts.lstm_sizes else None
