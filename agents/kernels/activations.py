"""Activations of hidden layers and their slopes, in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]
SMALL = 1024  # numbers below which a call costs more than its work
TORCH_FROM = 8192  # numbers from which PyTorch adds and multiplies faster than NumPy
_MINUS_ONE = torch.tensor(-1.0)


class Cells(NamedTuple):
    """The numbers of one hidden layer, for NumPy and for PyTorch in the same memory."""

    array: Array
    tensor: Tensor

    @classmethod
    def of(cls, *shape: int) -> Cells:
        """Return cells of float32, not yet filled."""
        array = np.empty(shape, np.float32)
        return cls(array, torch.from_numpy(array))

    def taken(self, index: Tensor, axis: int = -1) -> Cells:
        """Return a copy of some units (axis 1) or rows (the last axis)."""
        tensor = self.tensor.index_select(axis, index)
        return Cells(tensor.numpy(), tensor)


class Activation(NamedTuple):
    """An activation.

    ``forward(z, bias, before)`` turns the products ``z`` into the layer's output; ``backward(
    gradient, z, before)`` turns the gradient of that output into the gradient of its input. Only
    some need ``before``, a copy of the input. With some, output and gradient are both 0 for many
    numbers.
    """

    forward: Callable[[Cells, Array, Cells | None], None]
    backward: Callable[[Cells, Cells, Cells | None], None]
    keeps_input: bool = False
    has_zeros: bool = False


def add_bias(z: Cells, bias: Array) -> None:
    """Add the biases (networks, outputs, 1) to the products."""
    if z.array.size < TORCH_FROM:
        np.add(z.array, bias, out=z.array)
    else:
        z.tensor.add_(torch.from_numpy(bias))


def _tanh(z: Cells, bias: Array, _before: Cells | None) -> None:
    array, tensor = z.array, z.tensor
    if array.size < SMALL:
        np.add(array, bias, out=array)
        np.tanh(array, out=array)
        return
    # 2 sigmoid(2 z) - 1: PyTorch's sigmoid takes a third of the time of its tanh, or of NumPy's.
    torch.add(torch.from_numpy(bias + bias), tensor, alpha=2, out=tensor)
    torch.sigmoid(tensor, out=tensor)
    torch.add(_MINUS_ONE, tensor, alpha=2, out=tensor)


def _tanh_back(gradient: Cells, z: Cells, _before: Cells | None) -> None:
    torch.ops.aten.tanh_backward.grad_input(gradient.tensor, z.tensor, grad_input=gradient.tensor)


def _relu(z: Cells, bias: Array, _before: Cells | None) -> None:
    add_bias(z, bias)
    torch.relu_(z.tensor)  # np.maximum takes five times as long


def _relu_back(gradient: Cells, z: Cells, _before: Cells | None) -> None:
    torch.ops.aten.threshold_backward.grad_input(
        gradient.tensor, z.tensor, 0, grad_input=gradient.tensor
    )


def _elu(z: Cells, bias: Array, _before: Cells | None) -> None:
    add_bias(z, bias)
    torch.nn.functional.elu_(z.tensor)


def _elu_back(gradient: Cells, z: Cells, _before: Cells | None) -> None:
    torch.ops.aten.elu_backward.grad_input(
        gradient.tensor, 1.0, 1.0, 1.0, True, z.tensor, grad_input=gradient.tensor
    )


def _silu(z: Cells, bias: Array, before: Cells | None) -> None:
    assert before is not None
    add_bias(z, bias)
    before.array[:] = z.array
    torch.nn.functional.silu(z.tensor, inplace=True)


def _silu_back(gradient: Cells, _z: Cells, before: Cells | None) -> None:
    assert before is not None
    torch.ops.aten.silu_backward.grad_input(
        gradient.tensor, before.tensor, grad_input=gradient.tensor
    )


ACTIVATIONS = {
    "tanh": Activation(_tanh, _tanh_back),
    "relu": Activation(_relu, _relu_back, has_zeros=True),
    "elu": Activation(_elu, _elu_back),
    "silu": Activation(_silu, _silu_back, keeps_input=True),
}
