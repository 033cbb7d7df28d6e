"""Distributions over actions, as plain functions of a network's output.

A distribution holds no parameters: the network's head gives ``params`` of shape (batch, n_params),
and the noise to sample with comes from the caller's generator.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from rltune.agents.errors import UserError
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, log_softmax, softplus

LOG_2PI = math.log(2 * math.pi)


class Distribution(ABC):
    """A family of distributions over the actions of one space.

    Attributes:
        n_params: how many numbers a network has to give for one action
        n_noise: how many random numbers one sample needs
        size: how many numbers one action is
        dtype: what the environment wants
    """

    n_params: int
    n_noise: int
    size: int
    dtype: type[np.generic]

    @abstractmethod
    def noise(self, batch: int, generator: torch.Generator) -> Tensor:
        """Draw the randomness for ``batch`` samples: (batch, n_noise)."""

    @abstractmethod
    def sample(self, params: Tensor, noise: Tensor) -> Tensor:
        """Return an action for each row: (batch, size)."""

    @abstractmethod
    def mode(self, params: Tensor) -> Tensor:
        """Return the most likely action for each row: (batch, size)."""

    @abstractmethod
    def evaluate(self, params: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probability and entropy, each (batch,), for actions of shape (batch, size)."""

    @abstractmethod
    def kl(self, params: Tensor, other: Tensor) -> Tensor:
        """Return the Kullback-Leibler divergence KL(params || other) for each row: (batch,)."""

    def imitation(self, params: Tensor, action: Tensor) -> Tensor:
        """Return the loss of imitating actions (batch, size), 0-d: how unlikely they are."""
        return -self.evaluate(params, action)[0].mean()


def _gumbel(batch: int, n: int, generator: torch.Generator) -> Tensor:
    noise = torch.empty(batch, n, device=generator.device)
    return noise.exponential_(generator=generator).log_().neg_()


class Categorical(Distribution):
    """One of ``n`` choices; the parameters are logits."""

    size = 1
    dtype = np.int64

    def __init__(self, n: int) -> None:
        self.n_params = self.n_noise = n

    def noise(self, batch: int, generator: torch.Generator) -> Tensor:
        """Draw Gumbel noise: the largest of logits plus noise is a sample."""
        return _gumbel(batch, self.n_noise, generator)

    def sample(self, params: Tensor, noise: Tensor) -> Tensor:
        """Return an action for each row."""
        return (params + noise).argmax(-1, keepdim=True)

    def mode(self, params: Tensor) -> Tensor:
        """Return the most likely action for each row."""
        return params.argmax(-1, keepdim=True)

    def evaluate(self, params: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probability and entropy."""
        log_probs = log_softmax(params, -1)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        return log_probs.gather(-1, action).squeeze(-1), entropy

    def kl(self, params: Tensor, other: Tensor) -> Tensor:
        """Return the Kullback-Leibler divergence from ``other``."""
        log_probs = log_softmax(params, -1)
        return (log_probs.exp() * (log_probs - log_softmax(other, -1))).sum(-1)


class MultiCategorical(Distribution):
    """Several independent choices, of ``counts[i]`` each; the parameters are their logits."""

    dtype = np.int64

    def __init__(self, counts: list[int]) -> None:
        self.counts = counts
        self.size = len(counts)
        self.parts = [Categorical(n) for n in counts]
        self.n_params = self.n_noise = sum(counts)

    def noise(self, batch: int, generator: torch.Generator) -> Tensor:
        """Draw Gumbel noise for all choices."""
        return _gumbel(batch, self.n_noise, generator)

    def sample(self, params: Tensor, noise: Tensor) -> Tensor:
        """Return an action for each row."""
        return self.mode(params + noise)

    def mode(self, params: Tensor) -> Tensor:
        """Return the most likely action for each row."""
        return torch.stack([part.argmax(-1) for part in torch.split(params, self.counts, -1)], -1)

    def evaluate(self, params: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probability and entropy, summed over the choices."""
        results = [
            part.evaluate(logits, choice)
            for part, logits, choice in zip(
                self.parts,
                torch.split(params, self.counts, -1),
                torch.split(action, 1, -1),
                strict=True,
            )
        ]
        log_probs, entropies = zip(*results, strict=True)
        return torch.stack(log_probs).sum(0), torch.stack(entropies).sum(0)

    def kl(self, params: Tensor, other: Tensor) -> Tensor:
        """Return the Kullback-Leibler divergence from ``other``, summed over the choices."""
        divergences = [
            part.kl(logits, other_logits)
            for part, logits, other_logits in zip(
                self.parts,
                torch.split(params, self.counts, -1),
                torch.split(other, self.counts, -1),
                strict=True,
            )
        ]
        return torch.stack(divergences).sum(0)


class Bernoulli(Distribution):
    """``n`` independent yes-or-no choices; the parameters are the logits of yes."""

    dtype = np.int8

    def __init__(self, n: int) -> None:
        self.n_params = self.n_noise = self.size = n

    def noise(self, batch: int, generator: torch.Generator) -> Tensor:
        """Draw logistic noise: yes where logit plus noise is positive."""
        noise = torch.rand(batch, self.n_noise, generator=generator, device=generator.device)
        return noise.logit_(eps=1e-7)

    def sample(self, params: Tensor, noise: Tensor) -> Tensor:
        """Return an action for each row."""
        return (params + noise > 0).long()

    def mode(self, params: Tensor) -> Tensor:
        """Return the most likely action for each row."""
        return (params > 0).long()

    def evaluate(self, params: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probability and entropy, summed over the choices."""

        def log_prob(target: Tensor) -> Tensor:
            return -binary_cross_entropy_with_logits(params, target, reduction="none").sum(-1)

        # The entropy is the cross-entropy of the distribution with itself.
        return log_prob(action.to(params.dtype)), -log_prob(params.sigmoid())

    def kl(self, params: Tensor, other: Tensor) -> Tensor:
        """Return the Kullback-Leibler divergence from ``other``, summed over the choices."""
        # The log-probability of no is -softplus(logit), that of yes is the logit more.
        divergence = params.sigmoid() * (params - other) - softplus(params) + softplus(other)
        return divergence.sum(-1)


class Gaussian(Distribution):
    """Independent normal distributions; the parameters are ``size`` means, then the log stds."""

    dtype = np.float32

    def __init__(self, size: int) -> None:
        self.size = self.n_noise = size
        self.n_params = 2 * size

    def noise(self, batch: int, generator: torch.Generator) -> Tensor:
        """Draw standard normal noise."""
        return torch.randn(batch, self.n_noise, generator=generator, device=generator.device)

    def sample(self, params: Tensor, noise: Tensor) -> Tensor:
        """Return an action for each row."""
        mean, log_std = params.chunk(2, -1)
        return mean + log_std.exp() * noise

    def mode(self, params: Tensor) -> Tensor:
        """Return the mean for each row."""
        return params[..., : self.size]

    def evaluate(self, params: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-density and entropy, summed over the dimensions."""
        mean, log_std = params.chunk(2, -1)
        distance = (action - mean) * (-log_std).exp()
        log_volume = log_std.sum(-1) + 0.5 * self.size * LOG_2PI
        return -0.5 * distance.square().sum(-1) - log_volume, log_volume + 0.5 * self.size

    def imitation(self, params: Tensor, action: Tensor) -> Tensor:
        """Return the mean squared distance: a likelihood would take the noise away, too."""
        return (self.mode(params) - action).square().mean()

    def kl(self, params: Tensor, other: Tensor) -> Tensor:
        """Return the Kullback-Leibler divergence from ``other``, summed over the dimensions."""
        mean, log_std = params.chunk(2, -1)
        other_mean, other_log_std = other.chunk(2, -1)
        log_ratio = log_std - other_log_std
        distance = (mean - other_mean) * (-other_log_std).exp()
        divergence = 0.5 * ((2 * log_ratio).exp() + distance.square() - 1) - log_ratio
        return divergence.sum(-1)


def make_distribution(space: spaces.Space[Any]) -> Distribution:
    """Return the distribution that fits an action space.

    Raises:
        UserError: no policy here can act in such a space.
    """
    if isinstance(space, spaces.Discrete):
        return Categorical(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return MultiCategorical([int(n) for n in space.nvec.reshape(-1)])
    if isinstance(space, spaces.MultiBinary):
        return Bernoulli(int(np.prod(space.shape)))
    if isinstance(space, spaces.Box):
        return Gaussian(int(np.prod(space.shape)))
    raise UserError(
        f"actions in a {type(space).__name__} space are not supported; "
        "use Box, Discrete, MultiDiscrete or MultiBinary"
    )
