"""Encoders: the first layers of a network, which read the observations."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import torch
from rltune.agents.errors import UserError
from rltune.agents.images import CNN_FEATURES
from rltune.agents.model_files import Layer
from rltune.agents.networks.layers import ModelLayers, mlp
from rltune.agents.spaces import InputParts, Mixed, Spaces
from torch import Tensor, nn


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


class ImageEncoder(nn.Module):
    """Convolutions and a hidden layer of ``size`` units behind them.

    Args:
        shape: (channels, height, width), each side at least ``smallest``
        dtype: uint8 images are divided by 255
        layer_norm: normalise the hidden layer before its activation
    """

    size: ClassVar[int]
    smallest: ClassVar[int]

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], layer_norm: bool = False
    ) -> None:
        super().__init__()
        self.scale = 1 / 255 if dtype == np.uint8 else 1.0
        self.convolutions = nn.Sequential(*self.make_convolutions(shape), nn.Flatten())
        with torch.no_grad():
            self.n_flat = self.convolutions(torch.zeros(1, *shape)).shape[1]
        self.linear = mlp([self.n_flat, self.size], "relu", layer_norm)

    @staticmethod
    def make_convolutions(shape: tuple[int, ...]) -> list[nn.Module]:
        """Return the layers up to the hidden one."""
        raise NotImplementedError

    def forward(self, obs: Tensor) -> Tensor:
        """Return (batch, size) for images of shape (batch, channels, height, width)."""
        features: Tensor = self.linear(self.convolutions(obs * self.scale))
        return features


class NatureCNN(ImageEncoder):
    """The convolutional network of Mnih et al. 2015 (doi:10.1038/nature14236)."""

    size = CNN_FEATURES
    smallest = 36

    @staticmethod
    def make_convolutions(shape: tuple[int, ...]) -> list[nn.Module]:
        """Return three convolutions."""
        return [
            nn.Conv2d(shape[0], 32, 8, 4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1),
            nn.ReLU(),
        ]


class SmallCNN(ImageEncoder):
    """The convolutional network of Mnih et al. 2013 (arXiv:1312.5602).

    Its kernels, 8 x 8 and 4 x 4, leave 2 x 2 places of 28 x 28 pixels. Smaller images, such as
    MinAtar's of 10 x 10 (Young and Tian 2019, arXiv:1903.03176), get 3 x 3 kernels of stride 1 in
    both layers: where a thing is one pixel, none may be skipped.
    """

    size = 256
    smallest = 5

    @staticmethod
    def make_convolutions(shape: tuple[int, ...]) -> list[nn.Module]:
        """Return two convolutions."""
        large = min(shape[1:]) >= 28
        return [
            nn.Conv2d(shape[0], 16, *((8, 4) if large else (3, 1))),
            nn.ReLU(),
            nn.Conv2d(16, 32, *((4, 2) if large else (3, 1))),
            nn.ReLU(),
        ]


class ResidualBlock(nn.Module):
    """Two convolutions whose result is added to what they read."""

    def __init__(self, n_channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(n_channels, n_channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(n_channels, n_channels, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the shape of ``x``."""
        added: Tensor = x + self.layers(x)
        return added


class ImpalaResNet(ImageEncoder):
    """The large residual network of Espeholt et al. 2018 (arXiv:1802.01561), without its LSTM."""

    size = 256
    smallest = 5

    @staticmethod
    def make_convolutions(shape: tuple[int, ...]) -> list[nn.Module]:
        """Return three groups: a convolution, a pooling that halves the image, two blocks."""
        layers: list[nn.Module] = []
        n_in = shape[0]
        for n_out in (16, 32, 32):
            layers += [
                nn.Conv2d(n_in, n_out, 3, padding=1),
                nn.MaxPool2d(3, 2, padding=1),
                ResidualBlock(n_out),
                ResidualBlock(n_out),
            ]
            n_in = n_out
        return [*layers, nn.ReLU()]


IMAGE_ENCODERS: dict[str, type[ImageEncoder]] = {
    "nature_cnn": NatureCNN,
    "small_cnn": SmallCNN,
    "impala_resnet": ImpalaResNet,
}


class Combined(nn.Module):
    """Reads each image with an encoder of its own, and sets the other numbers beside what it says.

    Args:
        space: of the observations
        encoders: one for each of its images
    """

    def __init__(self, space: Mixed, encoders: list[Flat | ImageEncoder]) -> None:
        super().__init__()
        self.images = space.images
        self.cuts = [space.n_vector, *(math.prod(shape) for shape in space.images)]
        self.encoders = nn.ModuleList(encoders)
        self.size = space.n_vector + sum(encoder.size for encoder in encoders)

    def forward(self, obs: Tensor) -> Tensor:
        """Return (batch, size)."""
        vector, *images = torch.split(obs, self.cuts, -1)
        read = [
            encoder(image.reshape(-1, *shape))
            for encoder, image, shape in zip(self.encoders, images, self.images, strict=True)
        ]
        return torch.cat([vector, *read], -1)


Encoder = Flat | ImageEncoder | Combined


def make_encoder(spaces: Spaces, kind: str, layer_norm: bool = False) -> Encoder:
    """Return an encoder of observations: ``mlp``, a network for images, or for ``auto`` what fits.

    Images that stand beside other numbers get such a network each.

    Args:
        spaces: of one environment
        kind: "mlp", a name in IMAGE_ENCODERS, or "auto": nature_cnn for images that it can read
        layer_norm: of the hidden layer that a network for images ends with

    Raises:
        UserError: the network can't read the observations: these are no images, or too small ones.
    """
    space = InputParts(spaces.observation).observation_space
    if isinstance(space, Mixed):
        pixels = np.dtype(np.uint8)
        return Combined(
            space, [_read_by(kind, shape, pixels, layer_norm) for shape in space.images]
        )
    return _read_by(kind, *_observations(spaces), layer_norm)


def _read_by(
    kind: str, shape: tuple[int, ...], dtype: np.dtype[Any], layer_norm: bool
) -> Flat | ImageEncoder:
    if kind == "auto":
        is_image = len(shape) == 3 and min(shape[1:]) >= NatureCNN.smallest
        kind = "nature_cnn" if is_image else "mlp"
    if kind == "mlp":
        return Flat(shape, dtype)
    network = IMAGE_ENCODERS[kind]
    if len(shape) != 3 or min(shape[1:]) < network.smallest:
        raise UserError(
            f"encoder {kind} reads images of at least {network.smallest} x {network.smallest}, but "
            f"the observations have the shape {shape}; use encoder mlp"
        )
    return network(shape, dtype, layer_norm)


def model_encoder(spaces: Spaces, layers: tuple[Layer, ...]) -> ModelLayers:
    """Return the layers of a model file that read the observations; uint8 is divided by 255.

    Raises:
        UserError: the layers don't fit the observations.
    """
    shape, dtype = _observations(spaces)
    return ModelLayers(layers, shape, 1 / 255 if dtype == np.uint8 else 1.0)


def _observations(spaces: Spaces) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and type of the observations alone: `InputParts.observation` gives them."""
    parts = InputParts(spaces.observation)
    assert parts.observation_space.dtype is not None
    return parts.shape, parts.observation_space.dtype
