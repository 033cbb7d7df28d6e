"""Networks: encoders that read observations, and actor and critic on top of them.

Every weight is initialised from the generator that is handed in.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from rltune.agents.algorithm import Spaces
from rltune.agents.config import OnPolicyConfig
from rltune.agents.distributions import Distribution, Gaussian
from rltune.agents.errors import UserError
from rltune.agents.recurrent import Reader, make_core
from rltune.agents.seen import Parts
from torch import Tensor, nn

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "silu": nn.SiLU,
}
HIDDEN_GAIN = math.sqrt(2)
# Log-stds that a network gives are kept in this range, as in SAC.
LOG_STD_RANGE = (-20.0, 2.0)


def initialise(module: nn.Module, gain: float, rule: str, generator: torch.Generator) -> None:
    """Set weights and biases of all linear and convolutional layers in ``module``.

    Args:
        module: a network
        gain: of the weights; torch's rule has none
        rule: "orthogonal" (Saxe et al. 2013, arXiv:1312.6120), "xavier" (Glorot and Bengio 2010),
            both with biases of 0, or "torch": its own uniform rule for weights and biases
        generator: where the weights come from
    """
    for layer in module.modules():
        if not isinstance(layer, (nn.Linear, nn.Conv2d)):
            continue
        if rule == "orthogonal":
            nn.init.orthogonal_(layer.weight, gain, generator=generator)
        elif rule == "xavier":
            nn.init.xavier_uniform_(layer.weight, gain, generator=generator)
        else:
            nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
        if layer.bias is None:
            continue
        if rule == "torch":
            bound = 1 / math.sqrt(layer.weight[0].numel())
            nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
        else:
            nn.init.zeros_(layer.bias)


def mlp(sizes: list[int], activation: str) -> nn.Sequential:
    """Return linear layers of the given sizes, each with an activation behind it."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes):
        layers += [nn.Linear(n_in, n_out), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers)


class Flat(nn.Module):
    """Reads vectors as they are, images as vectors of numbers between 0 and 1."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        super().__init__()
        self.size = math.prod(shape)
        self.scale = 1 / 255 if dtype == np.uint8 else None

    def forward(self, obs: Tensor) -> Tensor:
        """Return (batch, size)."""
        if self.scale is not None:
            return obs.flatten(1) * self.scale
        return obs if obs.ndim == 2 else obs.flatten(1)


class NatureCNN(nn.Module):
    """The convolutional network of Mnih et al. 2015 (doi:10.1038/nature14236).

    Args:
        shape: (channels, height, width), at least 36 x 36
        dtype: uint8 images are divided by 255
    """

    size = 512

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        super().__init__()
        self.scale = 1 / 255 if dtype == np.uint8 else 1.0
        self.convolutions = nn.Sequential(
            nn.Conv2d(shape[0], 32, 8, 4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1),
            nn.ReLU(),
            nn.Flatten(),
        )
        with torch.no_grad():
            n_flat = self.convolutions(torch.zeros(1, *shape)).shape[1]
        self.linear = nn.Sequential(nn.Linear(n_flat, self.size), nn.ReLU())

    def forward(self, obs: Tensor) -> Tensor:
        """Return (batch, 512) for images of shape (batch, channels, height, width)."""
        features: Tensor = self.linear(self.convolutions(obs * self.scale))
        return features


def make_encoder(spaces: Spaces, kind: str) -> Flat | NatureCNN:
    """Return what reads the observations: ``mlp``, ``nature_cnn``, or for ``auto`` what fits.

    It reads the observations alone, without masks: `Parts.observation` gives them.

    Raises:
        UserError: nature_cnn for observations that are no images of at least 36 x 36.
    """
    parts = Parts(spaces.observation)
    shape, dtype = parts.shape, parts.observation_space.dtype
    assert dtype is not None
    is_image = len(shape) == 3 and min(shape[1:]) >= 36
    if kind == "nature_cnn" and not is_image:
        raise UserError(
            f"encoder nature_cnn reads images of at least 36 x 36, but the observations have the "
            f"shape {shape}; use encoder mlp"
        )
    return Flat(shape, dtype) if kind == "mlp" or not is_image else NatureCNN(shape, dtype)


class Actor(nn.Module):
    """Gives the parameters of the action distribution from encoded observations.

    For Box actions the log-std is a free parameter, or given by the network
    (``state_dependent_std``), or that of gSDE (Raffin et al. 2021, arXiv:2005.05719), whose noise
    is a random linear function of the last hidden layer.
    """

    def __init__(
        self,
        n_features: int,
        hidden: tuple[int, ...],
        distribution: Distribution,
        config: OnPolicyConfig,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.torso = mlp([n_features, *hidden], config.activation)
        n_latent = hidden[-1] if hidden else n_features
        n_outputs = distribution.n_params
        self.std = "none"
        if isinstance(distribution, Gaussian):
            self.std = "network" if config.state_dependent_std else "free"
            self.std = "sde" if config.use_sde else self.std
            n_outputs = 2 * distribution.size if self.std == "network" else distribution.size
            shape = (n_latent, distribution.size) if self.std == "sde" else (distribution.size,)
            if self.std != "network":
                self.log_std = nn.Parameter(torch.full(shape, config.log_std_init))
        self.head = nn.Linear(n_latent, n_outputs)
        initialise(self.torso, HIDDEN_GAIN, config.weight_init, generator)
        initialise(self.head, 0.01, config.weight_init, generator)
        if self.std == "network":
            nn.init.constant_(self.head.bias[n_outputs // 2 :], config.log_std_init)

    def forward(self, features: Tensor) -> Tensor:
        """Return the parameters: (batch, n_params)."""
        return self.params(self.torso(features))

    def params(self, latent: Tensor) -> Tensor:
        """Return the parameters from the last hidden layer."""
        output: Tensor = self.head(latent)
        if self.std == "none":
            return output
        if self.std == "network":
            mean, log_std = output.chunk(2, -1)
            return torch.cat([mean, log_std.clamp(*LOG_STD_RANGE)], -1)
        if self.std == "sde":
            variance = latent.detach().square() @ self.log_std.exp().square()
            return torch.cat([output, 0.5 * (variance + 1e-6).log()], -1)
        return torch.cat([output, self.log_std.expand_as(output)], -1)

    def exploration_matrices(self, n_envs: int, generator: torch.Generator) -> Tensor:
        """Draw gSDE's noise functions, one for each environment: (n_envs, n_latent, size)."""
        shape = (n_envs, *self.log_std.shape)
        noise = torch.randn(shape, generator=generator, device=generator.device)
        return noise * self.log_std.exp()


class ActorCritic(Reader):
    """An actor and a critic with torsos of their own; images share the convolutional encoder.

    They share the LSTM too, where there is one.
    """

    def __init__(
        self,
        spaces: Spaces,
        distribution: Distribution,
        config: OnPolicyConfig,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.distribution = distribution
        self.parts = Parts(spaces.observation)
        self.encoder = make_encoder(spaces, config.encoder)
        initialise(self.encoder, HIDDEN_GAIN, config.weight_init, generator)
        self.core = make_core(self.parts, self.encoder.size)
        size = self.encoder.size
        if self.core is not None:
            initialise(self.core, 1.0, config.weight_init, generator)
            size = self.core.size
        # The convolutional encoder ends in a hidden layer of its own (as in SB3).
        hidden = () if isinstance(self.encoder, NatureCNN) else config.net_arch
        self.actor = Actor(size, hidden, distribution, config, generator)
        sizes = [size, *hidden]
        self.critic = nn.Sequential(mlp(sizes, config.activation), nn.Linear(sizes[-1], 1))
        initialise(self.critic[0], HIDDEN_GAIN, config.weight_init, generator)
        initialise(self.critic[1], 1.0, config.weight_init, generator)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the distribution's parameters (batch, n_params) and the values (batch,)."""
        features = self.read(obs)
        params = self.parts.allow(self.actor(features), obs)
        return params, self.critic(features).squeeze(-1)

    def params(self, obs: Tensor) -> Tensor:
        """Return the distribution's parameters: (batch, n_params)."""
        return self.parts.allow(self.actor(self.read(obs)), obs)

    def value(self, obs: Tensor) -> Tensor:
        """Return the values: (batch,)."""
        values: Tensor = self.critic(self.read(obs)).squeeze(-1)
        return values
