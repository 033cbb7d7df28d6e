"""Q-networks of DQN: plain, dueling, noisy, and distributional."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Protocol

import torch
from rltune.agents.model_files import Layer, Model
from rltune.agents.networks.encoders import ImageEncoder, make_encoder, model_encoder
from rltune.agents.networks.layers import HIDDEN_GAIN, activated, flat, initialise, mlp
from rltune.agents.networks.recurrent import Reader, make_core
from rltune.agents.spaces import InputParts, Spaces
from torch import Tensor, nn
from torch.nn.functional import linear


class NetConfig(Protocol):
    """The part of a configuration that decides on the network."""

    @property
    def net_arch(self) -> tuple[int, ...]: ...  # noqa: D102
    @property
    def activation(self) -> str: ...  # noqa: D102
    @property
    def weight_init(self) -> str: ...  # noqa: D102
    @property
    def encoder(self) -> str: ...  # noqa: D102
    @property
    def layer_norm(self) -> bool: ...  # noqa: D102
    def models(self) -> dict[str, Model]: ...  # noqa: D102
    @property
    def dueling(self) -> bool: ...  # noqa: D102
    @property
    def noisy(self) -> bool: ...  # noqa: D102
    @property
    def noisy_sigma(self) -> float: ...  # noqa: D102


class Returns(nn.Module):
    """The form in which the network predicts an action's return: here the mean, its only output.

    Attributes:
        n_outputs: numbers about each action
    """

    n_outputs = 1

    def values(self, outputs: Tensor) -> Tensor:
        """Return the expected returns (...,) from outputs of shape (..., n_outputs)."""
        return outputs.squeeze(-1)

    def target(self, reward: Tensor, discount: Tensor, outputs: Tensor) -> Tensor:
        """Return the TD targets: reward (batch,) plus the discounted next return."""
        return reward + discount * outputs.squeeze(-1)

    def losses(self, outputs: Tensor, target: Tensor, delta: Tensor) -> Tensor:
        """Return the Huber loss of each row of the outputs (batch, n_outputs)."""
        return huber(target - outputs.squeeze(-1), delta)


class CategoricalReturns(Returns):
    """Probabilities of ``n_outputs`` returns in [v_min, v_max]: C51 (Bellemare et al. 2017).

    arXiv:1707.06887; the outputs are logits, the target is probabilities.
    """

    support: Tensor

    def __init__(self, n_atoms: int, v_min: float, v_max: float) -> None:
        super().__init__()
        self.n_outputs = n_atoms
        self.v_min, self.v_max = v_min, v_max
        self.step = (v_max - v_min) / (n_atoms - 1)
        self.register_buffer("support", torch.linspace(v_min, v_max, n_atoms), persistent=False)

    def values(self, outputs: Tensor) -> Tensor:
        """Return the expected returns."""
        return outputs.softmax(-1) @ self.support

    def target(self, reward: Tensor, discount: Tensor, outputs: Tensor) -> Tensor:
        """Return the next return's distribution, moved and projected on the support."""
        moved = reward.unsqueeze(-1) + discount.unsqueeze(-1) * self.support
        moved = moved.clamp(self.v_min, self.v_max)
        # Each probability is shared by the two atoms beside it, in proportion to their nearness.
        distance = (moved.unsqueeze(-2) - self.support.unsqueeze(-1)).abs()
        share = (1 - distance / self.step).clamp(min=0)
        return (share @ outputs.softmax(-1).unsqueeze(-1)).squeeze(-1)

    def losses(self, outputs: Tensor, target: Tensor, delta: Tensor) -> Tensor:
        """Return the cross-entropies."""
        return -(target * outputs.log_softmax(-1)).sum(-1)


class QuantileReturns(Returns):
    """Quantiles of the return at equal distances: QR-DQN (Dabney et al. 2018, arXiv:1710.10044)."""

    fractions: Tensor

    def __init__(self, n_quantiles: int) -> None:
        super().__init__()
        self.n_outputs = n_quantiles
        fractions = (torch.arange(n_quantiles) + 0.5) / n_quantiles
        self.register_buffer("fractions", fractions, persistent=False)

    def values(self, outputs: Tensor) -> Tensor:
        """Return the expected returns."""
        return outputs.mean(-1)

    def target(self, reward: Tensor, discount: Tensor, outputs: Tensor) -> Tensor:
        """Return the next return's quantiles, moved."""
        return reward.unsqueeze(-1) + discount.unsqueeze(-1) * outputs

    def losses(self, outputs: Tensor, target: Tensor, delta: Tensor) -> Tensor:
        """Return the quantile Huber losses, summed over the outputs and meant over the targets."""
        error = target.unsqueeze(-2) - outputs.unsqueeze(-1)
        below = (error.detach() < 0).to(error.dtype)
        asymmetry = (self.fractions.unsqueeze(-1) - below).abs()
        return (asymmetry * huber(error, delta) / delta).sum(-2).mean(-1)


def huber(error: Tensor, delta: Tensor) -> Tensor:
    """Return half the square of each error, and beyond ``delta`` a straight line (Huber 1964)."""
    size = error.abs()
    near = torch.minimum(size, delta)
    return near * (size - 0.5 * near)


class NoisyLinear(nn.Module):
    """A linear layer with learned, factorised noise (Fortunato et al. 2018, arXiv:1706.10295).

    Args:
        n_in: numbers that it reads
        n_out: numbers that it gives
        sigma: initial size of the noise, divided by ``sqrt(n_in)``
        generator: of the initial weights
    """

    def __init__(self, n_in: int, n_out: int, sigma: float, generator: torch.Generator) -> None:
        super().__init__()
        bound = 1 / math.sqrt(n_in)
        self.weight = nn.Parameter(torch.empty(n_out, n_in))
        self.bias = nn.Parameter(torch.empty(n_out))
        nn.init.uniform_(self.weight, -bound, bound, generator=generator)
        nn.init.uniform_(self.bias, -bound, bound, generator=generator)
        self.weight_sigma = nn.Parameter(torch.full((n_out, n_in), sigma * bound))
        self.bias_sigma = nn.Parameter(torch.full((n_out,), sigma * bound))
        self.n_noise = n_in + n_out

    def forward(self, x: Tensor, noise: Tensor | None) -> Tensor:
        """Return (batch, n_out).

        Args:
            x: (batch, n_in)
            noise: (n_noise,), or (batch, n_noise) for one a row; None: the mean weights
        """
        mean = linear(x, self.weight, self.bias)
        if noise is None:
            return mean
        n_in = self.weight.shape[1]
        noise_in, noise_out = noise[..., :n_in], noise[..., n_in:]
        # The noise of a weight is a product, so no noisy weight has to be made: also not many.
        noisy = linear(x * noise_in, self.weight_sigma) + self.bias_sigma
        return mean + noisy * noise_out


class _Stream(nn.Module):
    """Hidden layers and a linear one behind them, all noisy or none."""

    def __init__(
        self,
        sizes: list[int],
        config: NetConfig,
        generator: torch.Generator,
        output: Layer | None = None,
    ) -> None:
        super().__init__()
        # There is one hidden layer at most.
        has_hidden = len(sizes) > 2
        self.activation = activated(sizes[1], config.activation, config.layer_norm and has_hidden)
        layers: list[nn.Module] = []
        for i, (n_in, n_out) in enumerate(pairwise(sizes)):
            if config.noisy:
                layers.append(NoisyLinear(n_in, n_out, config.noisy_sigma, generator))
            else:
                layers.append(nn.Linear(n_in, n_out))
                gain = 1.0 if i == len(sizes) - 2 else HIDDEN_GAIN
                rule = output.rule if output else (gain, config.weight_init)
                initialise(layers[-1], *rule, generator)
        self.layers = nn.ModuleList(layers)
        self.n_noise = sum(n_in + n_out for n_in, n_out in pairwise(sizes)) if config.noisy else 0

    def forward(self, x: Tensor, noise: Tensor | None) -> Tensor:
        at = 0
        for i, layer in enumerate(self.layers):
            x = self.activation(x) if i else x
            if isinstance(layer, NoisyLinear):
                own = None if noise is None else noise[..., at : at + layer.n_noise]
                x = layer(x, own)
                at += layer.n_noise
            else:
                x = layer(x)
        return x


class _Convolutions(nn.Module):
    """The convolutions of an encoder, without the hidden layer that follows them."""

    def __init__(self, encoder: ImageEncoder) -> None:
        super().__init__()
        self.scale = encoder.scale
        self.layers = encoder.convolutions
        self.size = encoder.n_flat

    def forward(self, obs: Tensor) -> Tensor:
        features: Tensor = self.layers(obs * self.scale)
        return features


class QNetwork(Reader):
    """Says about each action what its return is: its mean, or its distribution.

    With ``dueling`` (Wang et al. 2016, arXiv:1511.06581) the last hidden layer is there twice: for
    the state's value and for the advantages. With ``noisy``, it and the layer behind it are noisy.
    With a model file, both concern the output layer alone.

    Args:
        spaces: of one environment; the actions are discrete
        config: hidden layers, activation, initialisation, dueling, noisy
        returns: what the network says about an action's return
        generator: where the weights come from
    """

    def __init__(
        self, spaces: Spaces, config: NetConfig, returns: Returns, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.n_actions = int(spaces.action.n)  # type: ignore[attr-defined]
        self.parts = InputParts(spaces.observation)
        self.returns = returns
        self.n_outputs = n_outputs = returns.n_outputs
        hidden = config.net_arch
        output: Layer | None = None
        self.encoder: nn.Module
        model = config.models().get("model")
        if model:
            self.encoder = file = model_encoder(spaces, model.layers)
            hidden, size, output = (), flat(file.shape), model.outputs[0]
        else:
            self.encoder = encoder = make_encoder(spaces, config.encoder, config.layer_norm)
            size = encoder.size
            if isinstance(encoder, ImageEncoder):  # its hidden layer shall be one of the streams'
                hidden = (encoder.size,)
                self.encoder = convolutions = _Convolutions(encoder)
                size = convolutions.size
        initialise(self.encoder, HIDDEN_GAIN, config.weight_init, generator)
        self.core = make_core(self.parts, size)
        if self.core is not None:
            initialise(self.core, 1.0, config.weight_init, generator)
            size = self.core.size
        shared = [size, *hidden[:-1]]
        self.torso = mlp(shared, config.activation, config.layer_norm)
        initialise(self.torso, HIDDEN_GAIN, config.weight_init, generator)
        last = [shared[-1], *hidden[-1:]]
        self.advantage = _Stream([*last, self.n_actions * n_outputs], config, generator, output)
        self.value = None
        if config.dueling:
            self.value = _Stream([*last, n_outputs], config, generator, output)
        self.n_noise = self.advantage.n_noise + (self.value.n_noise if self.value else 0)

    def forward(self, obs: Tensor, noise: Tensor | None = None) -> Tensor:
        """Return (batch, n_actions, n_outputs).

        Args:
            obs: (batch, ...)
            noise: what `draw_noise` gave; None: the noisy layers' means
        """
        features = self.torso(self.read(obs))
        advantage: Tensor = self.advantage(features, noise)
        advantage = advantage.reshape(-1, self.n_actions, self.n_outputs)
        if self.value is None:
            return advantage
        rest = None if noise is None else noise[..., self.advantage.n_noise :]
        value: Tensor = self.value(features, rest).unsqueeze(-2)
        return value + advantage - advantage.mean(-2, keepdim=True)

    def best(self, outputs: Tensor, obs: Tensor) -> Tensor:
        """Return the best of the allowed actions for each row: (batch,).

        Args:
            outputs: what the network says about ``obs``
            obs: (batch, ...)
        """
        return self.parts.allow(self.returns.values(outputs), obs).argmax(-1)

    def draw_noise(self, generator: torch.Generator, *shape: int) -> Tensor | None:
        """Return noise of shape (*shape, n_noise); None where no layer is noisy."""
        if not self.n_noise:
            return None
        noise = torch.randn(*shape, self.n_noise, generator=generator, device=generator.device)
        return noise.sign() * noise.abs().sqrt()
