"""Networks of reward signals: what they read of a step."""

from __future__ import annotations

from typing import NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium import spaces as gym_spaces
from rltune.agents.networks.actions import BoxScale, Choices
from rltune.agents.networks.encoders import make_encoder
from rltune.agents.networks.layers import HIDDEN_GAIN, initialise, mlp
from rltune.agents.spaces import InputParts, Spaces
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss, one_hot

WHITENED = 5.0  # whitened numbers are kept within this on both sides


class Steps(NamedTuple):
    """Steps that signals reward or learn from; the first axis of every tensor is rows."""

    obs: Tensor  # as an algorithm's networks get it
    action: Tensor  # (rows, size), as the memory holds it
    next_obs: Tensor  # the true successor
    terminated: Tensor  # bool

    def rows(self, index: Tensor) -> Steps:
        """Return some of the rows."""
        return Steps(*(tensor.index_select(0, index) for tensor in self))


class Whitening(nn.Module):
    """Brings the first ``n`` numbers of each row to mean 0 and variance 1 of all rows learned."""

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n
        self.register_buffer("mean", torch.zeros(n))
        self.register_buffer("var", torch.ones(n))
        self.register_buffer("count", torch.tensor(1e-4))

    @torch.no_grad()
    def learn(self, rows: Tensor) -> None:
        """Take in rows (batch, at least n): Chan et al.'s parallel algorithm."""
        rows = rows[:, : self.n]
        var, mean = torch.var_mean(rows, 0, correction=0)
        n = len(rows)
        total = self.count + n
        delta = mean - self.mean
        spread = self.var * self.count + var * n + delta.square() * self.count * n / total
        self.mean += delta * n / total
        self.var.copy_(spread / total)
        self.count.copy_(total)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the rows with their first numbers whitened and clipped."""
        white = (rows[:, : self.n] - self.mean) / (self.var + 1e-8).sqrt()
        return torch.cat([white.clamp(-WHITENED, WHITENED), rows[:, self.n :]], 1)


class Features(nn.Module):
    """Encodes observations: images by an encoder, vectors whitened, and layers behind them.

    Args:
        spaces: of one environment
        encoder: what reads images, as the agent's ``encoder``
        sizes: of the layers; the last one has no activation
        generator: where the weights come from
        n_beside: numbers that are read beside an observation
    """

    def __init__(
        self,
        spaces: Spaces,
        encoder: str,
        sizes: list[int],
        generator: torch.Generator,
        n_beside: int = 0,
    ) -> None:
        super().__init__()
        self.parts = InputParts(spaces.observation)
        self.whitening = Whitening(self.parts.n_vector) if self.parts.n_vector else None
        self.encoder = make_encoder(spaces, encoder)
        *hidden, size = sizes
        self.layers = mlp([self.encoder.size + n_beside, *hidden], "relu")
        self.head = nn.Linear(hidden[-1] if hidden else self.encoder.size + n_beside, size)
        initialise(self, HIDDEN_GAIN, "orthogonal", generator)

    def learn(self, inputs: Tensor) -> None:
        """Let the whitening take in an algorithm's inputs (batch, ...)."""
        if self.whitening is not None:
            self.whitening.learn(self.parts.observation(inputs).flatten(1))

    def observation(self, inputs: Tensor) -> Tensor:
        """Return what is encoded of an algorithm's inputs, whitened."""
        obs = self.parts.observation(inputs)
        return obs if self.whitening is None else self.whitening(obs.flatten(1))

    def encoded(self, obs: Tensor, beside: Tensor | None = None) -> Tensor:
        """Return features (batch, size) of what `observation` gave, and of numbers beside it."""
        read = self.encoder(obs)
        if beside is not None:
            read = torch.cat([read, beside], 1)
        features: Tensor = self.head(self.layers(read))
        return features

    def forward(self, inputs: Tensor) -> Tensor:
        """Return features (batch, size) of an algorithm's inputs (batch, ...)."""
        return self.encoded(self.observation(inputs))


class ActionCode:
    """Actions as numbers, and the loss of guessing them.

    Attributes:
        size: numbers of a code: the choices one-hot, or a Box's within [-1, 1]
    """

    def __init__(self, space: gymnasium.Space[object], device: torch.device) -> None:
        self.counts: list[int] = []
        self._box: BoxScale | None = None
        if isinstance(space, gym_spaces.Box):
            self.size = int(np.prod(space.shape))
            if np.isfinite(space.low).all() and np.isfinite(space.high).all():
                self._box = BoxScale(space, "reward signals", device)
        else:
            self.counts = Choices(space, "reward signals").counts
            self.size = sum(self.counts)

    def encode(self, action: Tensor) -> Tensor:
        """Return the codes (rows, size) of actions (rows, choices) or (rows, numbers)."""
        if self.counts:
            parts = [one_hot(action[:, i].long(), n) for i, n in enumerate(self.counts)]
            return torch.cat(parts, 1).float()
        action = action.float()
        return action if self._box is None else self._box.to_nets(action).clamp(-1, 1)

    def loss(self, guess: Tensor, action: Tensor) -> Tensor:
        """Return how far a guess (rows, size) is off, 0-d: a cross-entropy, or a squared error."""
        if not self.counts:
            return self.size * mse_loss(guess, self.encode(action))
        parts = torch.split(guess, self.counts, 1)
        losses = [cross_entropy(part, action[:, i].long()) for i, part in enumerate(parts)]
        return torch.stack(losses).sum()
