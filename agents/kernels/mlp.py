"""Multilayer perceptrons of one form, side by side: forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.kernels.activations import ACTIVATIONS, TORCH_FROM, Cells, add_bias
from rltune.agents.kernels.slots import slot
from torch import Tensor, nn

Array = NDArray[Any]
MOST_ROWS = 8192  # for which buffers are kept, of all numbers of rows together
LARGE = 16384  # weights from which on it pays to leave out units that are 0 for all rows
MANY = 0.75  # the part of a layer that is too many for that


class Layer(NamedTuple):
    """The parameters of one layer of networks side by side, or their gradients."""

    weight: Array  # (networks, outputs, inputs)
    transposed: Array  # the same as (networks, inputs, outputs)
    bias: Array  # (networks, outputs, 1)


class Rows:
    """The numbers of all layers for so many rows, and their gradients.

    Attributes:
        outputs: of each layer, behind its activation: (networks, outputs, rows)
        gradients: of the loss, of the same shapes
        ones: (networks, rows, 1), whose product with a gradient is its sum
    """

    def __init__(self, networks: int, sizes: Sequence[int], rows: int, keeps_input: bool) -> None:
        self.outputs = [Cells.of(networks, size, rows) for size in sizes]
        self.gradients = [Cells.of(networks, size, rows) for size in sizes]
        self.before = [Cells.of(networks, n, rows) if keeps_input else None for n in sizes]
        self.ones = np.ones((rows, 1), np.float32)


class MLPs:
    """Networks of linear layers that differ in their weights alone.

    Args:
        networks: the linear layers of each
        flat: the buffer that their parameters lie in
        activation: behind each layer
        n_plain: how many layers at the end have none
    """

    def __init__(
        self,
        networks: Sequence[Sequence[nn.Linear]],
        flat: Tensor,
        activation: str,
        n_plain: int = 0,
    ) -> None:
        self._slots = [
            (
                slot([layer.weight for layer in layers], flat),
                slot([layer.bias for layer in layers], flat),
            )
            for layers in zip(*networks, strict=True)
        ]
        self.sizes = [layer.out_features for layer in networks[0]]
        self.n_networks = len(networks)
        self._activation = ACTIVATIONS[activation]
        self._n_active = len(self.sizes) - n_plain
        self._rows: dict[int, Rows] = {}

    def layers(self, flat: Array) -> list[Layer]:
        """Return the views of a flat buffer: of parameters, of gradients or of a target's."""
        views = [(weight.of(flat), bias.of(flat)) for weight, bias in self._slots]
        return [Layer(w, w.transpose(0, 2, 1), b[:, :, None]) for w, b in views]

    def rows(self, n: int) -> Rows:
        """Return buffers for ``n`` rows; what they held before is gone."""
        found = self._rows.get(n)
        if found is None:
            while self._rows and sum(self._rows) + n > MOST_ROWS:
                self._rows.pop(next(iter(self._rows)))
            keeps_input = self._activation.keeps_input
            found = self._rows[n] = Rows(self.n_networks, self.sizes, n, keeps_input)
        return found

    def forward(self, layers: Sequence[Layer], x: Array, rows: Rows) -> Array:
        """Return the last layer's output: (networks, outputs, rows).

        Args:
            layers: the parameters
            x: (inputs, rows), or (networks, inputs, rows)
            rows: buffers for so many rows
        """
        for i, layer in enumerate(layers):
            output = rows.outputs[i]
            x = np.matmul(layer.weight, x, out=output.array)
            if i < self._n_active:
                self._activation.forward(output, layer.bias, rows.before[i])
            else:
                add_bias(output, layer.bias)
        return x

    def tangent(
        self, layers: Sequence[Layer], directions: Sequence[Layer], x: Array, rows: Rows
    ) -> Array:
        """Return how the last layer's output changes where the parameters do.

        Args:
            layers: the parameters
            directions: how they change
            x: what `forward` got
            rows: what it filled; its gradients are overwritten
        """
        moved = None
        for i, (layer, direction) in enumerate(zip(layers, directions, strict=True)):
            own, before = rows.gradients[i], rows.outputs[i - 1].array if i else x
            np.matmul(direction.weight, before, out=own.array)
            np.add(own.array, direction.bias, out=own.array)
            if moved is not None:
                np.add(own.array, np.matmul(layer.weight, moved), out=own.array)
            if i < self._n_active:
                self._activation.backward(own, rows.outputs[i], rows.before[i])
            moved = own.array
        assert moved is not None
        return moved

    def backward(
        self,
        layers: Sequence[Layer],
        gradients: Sequence[Layer],
        x: Array,
        rows: Rows,
        x_gradient: Array | None = None,
    ) -> None:
        """Set the gradients of the parameters.

        Args:
            layers: the parameters
            gradients: where their gradients go
            x: what `forward` got
            rows: what it filled, and the last of ``gradients`` in it: that of the output
            x_gradient: where the gradient of ``x`` goes, (networks, inputs, rows); None: nowhere
        """
        for i in range(len(layers) - 1, -1, -1):
            below, gradient = layers[i], rows.gradients[i]
            if i < self._n_active:
                self._activation.backward(gradient, rows.outputs[i], rows.before[i])
            own = gradient.array
            inputs = rows.outputs[i - 1].array if i else x
            np.matmul(own, rows.ones, out=gradients[i].bias)
            live = self._live(i, rows, below.weight.size) if i else None
            if live is not None:
                to_inputs = rows.gradients[i - 1].array
                _backward_of(
                    live, below.weight[0], own[0], inputs[0], gradients[i].weight[0], to_inputs[0]
                )
                continue
            np.matmul(own, inputs.swapaxes(-1, -2), out=gradients[i].weight)
            if i:
                _product(below.transposed, own, rows.gradients[i - 1].array)
            elif x_gradient is not None:
                _product(below.transposed, own, x_gradient)

    def _live(self, i: int, rows: Rows, n_weights: int) -> Array | None:
        """Return the units of layer ``i`` that are not 0 for all rows; None: it's not worth it."""
        if not self._activation.has_zeros or i >= self._n_active or self.n_networks > 1:
            return None
        if n_weights < LARGE:
            return None
        live = np.flatnonzero(np.matmul(rows.outputs[i].array, rows.ones))
        return live if len(live) < MANY * self.sizes[i] else None

    def input_gradient(
        self,
        layers: Sequence[Layer],
        rows: Rows,
        gradient: Array,
        first: int = 0,
        columns: Tensor | None = None,
    ) -> Array:
        """Return the gradient of the input: (networks, inputs, columns).

        Args:
            layers: the parameters
            rows: what `forward` filled
            gradient: that of the output: (networks, outputs, columns); one without an activation
            first: of the inputs that are asked for
            columns: the rows that it is asked for; None: all
        """
        n = gradient.shape[-1]
        below = Cells(gradient, torch.from_numpy(gradient))
        for i in range(len(layers) - 1, -1, -1):
            weight = layers[i].weight if i else layers[i].weight[:, :, first:]
            if i < self._n_active:
                output, before = rows.outputs[i], rows.before[i]
                live = self._live(i, rows, weight.size) if i else None
                if live is not None:
                    units = torch.from_numpy(live)
                    below, output = below.taken(units, 1), output.taken(units, 1)
                    weight = weight.take(live, axis=1)
                if columns is not None:
                    output = output.taken(columns)
                    before = None if before is None else before.taken(columns)
                self._activation.backward(below, output, before)
            above, below = below, Cells.of(len(weight), weight.shape[2], n)
            _product(weight.swapaxes(-1, -2), above.array, below.array)
        return below.array


def _backward_of(
    units: Array, weight: Array, own: Array, inputs: Array, gradient: Array, to_inputs: Array
) -> None:
    """Set the gradients of a layer's weights and inputs, of which other units have no part."""
    own = own.take(units, axis=0)
    gradient.fill(0)
    gradient[units] = np.dot(own, inputs.T)
    np.dot(weight.take(units, axis=0).T, own, out=to_inputs)


def _product(weight: Array, gradient: Array, out: Array) -> None:
    """Compute a matrix product; BLAS takes four times as long where it is an outer one."""
    if weight.shape[-1] != 1:
        np.matmul(weight, gradient, out=out)
    elif out.size < TORCH_FROM:
        np.multiply(weight, gradient, out=out)
    else:
        torch.mul(torch.from_numpy(weight), torch.from_numpy(gradient), out=torch.from_numpy(out))
