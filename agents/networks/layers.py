"""Layers: multilayer perceptrons, the layers of model files, and weight initialisation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from rltune.agents.errors import UserError
from rltune.agents.model_files import Layer
from torch import Tensor, nn

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "silu": nn.SiLU,
}
HIDDEN_GAIN = math.sqrt(2)


def initialise(module: nn.Module, gain: float, rule: str, generator: torch.Generator) -> None:
    """Set weights and biases of all linear and convolutional layers in ``module``.

    Layers of a model file follow what the file says of them; layer norms keep their 1 and 0.

    Args:
        module: a network
        gain: of the weights; torch's rule has none
        rule: "orthogonal" (Saxe et al. 2013, arXiv:1312.6120), "xavier" (Glorot and Bengio 2010),
            both with biases of 0, or "torch": its own uniform rule for weights and biases
        generator: where the weights come from
    """
    own: dict[nn.Module, tuple[float, str]] = {}
    for layer in module.modules():
        if isinstance(layer, ModelLayers):  # comes before its layers
            own.update(layer.rules)
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            _initialise_layer(layer, *own.get(layer, (gain, rule)), generator)


def _initialise_layer(
    layer: nn.Linear | nn.Conv2d, gain: float, rule: str, generator: torch.Generator
) -> None:
    if rule == "orthogonal":
        nn.init.orthogonal_(layer.weight, gain, generator=generator)
    elif rule == "xavier":
        nn.init.xavier_uniform_(layer.weight, gain, generator=generator)
    else:
        nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
    if layer.bias is None:
        return
    if rule == "torch":
        bound = 1 / math.sqrt(max(1, layer.weight[0].numel()))  # there may be nothing to see
        nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    else:
        nn.init.zeros_(layer.bias)


def activated(size: int, activation: str, layer_norm: bool) -> nn.Module:
    """Return the activation of a hidden layer, with a layer norm before it if wanted.

    Layer norm: Ba, Kiros and Hinton 2016, arXiv:1607.06450.
    """
    function = ACTIVATIONS[activation]()
    return nn.Sequential(nn.LayerNorm(size), function) if layer_norm else function


def mlp(sizes: Sequence[int], activation: str, layer_norm: bool = False) -> nn.Sequential:
    """Return linear layers of the given sizes, each with what `activated` gives behind it."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes):
        layers += [nn.Linear(n_in, n_out), activated(n_out, activation, layer_norm)]
    return nn.Sequential(*layers)


class ModelLayers(nn.Module):
    """Layers of a model file.

    Args:
        layers: as the file has them, without the output layers
        shape: of one input: (size,) or (channels, height, width)
        scale: what the input is multiplied by

    Attributes:
        rules: gain and rule of each layer's first weights
        shape: of one output
        size: how many numbers that is

    Raises:
        UserError: the layers don't fit the input.
    """

    def __init__(self, layers: Sequence[Layer], shape: tuple[int, ...], scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale
        self.rules: dict[nn.Module, tuple[float, str]] = {}
        self.shape = shape
        self.layers = nn.Sequential()
        for layer in layers:
            self._append(layer)
        self.size = math.prod(self.shape)

    def _append(self, layer: Layer) -> None:
        made: nn.Module
        if layer.kind == "flatten":
            made, self.shape = nn.Flatten(), (math.prod(self.shape),)
        elif layer.kind == "dense":
            made, self.shape = nn.Linear(flat(self.shape), layer.units), (layer.units,)
        else:
            made = nn.Conv2d(channels(self.shape), layer.filters, layer.size, layer.stride)
            sides = [(side - layer.size) // layer.stride + 1 for side in self.shape[1:]]
            if min(sides) < 1:
                raise UserError(
                    f"model: a [convolutional] of size={layer.size} gets images of "
                    f"{self.shape[1]} x {self.shape[2]}; write smaller sizes or strides"
                )
            self.shape = (layer.filters, *sides)
        self.layers.append(made)
        if layer.kind != "flatten":
            self.rules[made] = layer.rule
        if layer.activation != "linear":
            self.layers.append(ACTIVATIONS[layer.activation]())

    def forward(self, x: Tensor) -> Tensor:
        """Return (batch, *self.shape)."""
        output: Tensor = self.layers(x if self.scale == 1.0 else x * self.scale)
        return output


def flat(shape: tuple[int, ...]) -> int:
    """Return the size of a vector.

    Raises:
        UserError: the shape is that of an image.
    """
    if len(shape) == 3:
        raise UserError(
            f"model: a [dense] reads vectors, but gets images of shape {shape}; "
            "put [flatten] in front of it"
        )
    return math.prod(shape)


def channels(shape: tuple[int, ...]) -> int:
    """Return the channels of an image.

    Raises:
        UserError: the shape is another one.
    """
    if len(shape) != 3:
        raise UserError(
            f"model: a [convolutional] reads images, but gets vectors of shape {shape}; "
            "give a model file with [dense] layers alone"
        )
    return shape[0]
