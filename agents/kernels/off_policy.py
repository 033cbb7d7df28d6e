"""The networks of DDPG, TD3 and SAC: values of actions, their fit, and the actors' layers.

Critics come one after the other, so that the numbers of one stay in the cache.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rltune.agents.kernels.mlp import MLPs
from rltune.agents.kernels.standard import linear_layers
from rltune.agents.networks.actors import DeterministicActor, SquashedGaussian
from rltune.agents.networks.critics import Critics
from torch import Tensor, nn

Array = NDArray[Any]


class CriticsKernel:
    """Computes with the parameters of `Critics` that read an observation and an action.

    Args:
        critics: the networks
        flat: the buffer that their parameters lie in
        target: the same of the critics that follow them
        config: of the agent

    Attributes:
        nets: of each critic
    """

    def __init__(self, critics: Critics, flat: Tensor, target: Tensor, config: Any) -> None:
        networks = [linear_layers(network) for network in critics.networks]
        self.nets = [MLPs([own], flat, config.activation, n_plain=1) for own in networks]
        self._gradient = np.empty_like(flat.numpy())
        self._layers, self._targets, self._gradients = (
            [net.layers(buffer) for net in self.nets]
            for buffer in (flat.numpy(), target.numpy(), self._gradient)
        )
        self._huber = config.td_loss == "huber"

    def target_value(self, x: Array) -> Array:
        """Return the smallest value of the target: (rows,).

        Args:
            x: observations with the actions below them: (inputs, rows)
        """
        smallest: Array = reduce(
            np.minimum,
            (
                net.forward(layers, x, net.rows(x.shape[1]))[0, 0]
                for net, layers in zip(self.nets, self._targets, strict=True)
            ),
        )
        return smallest

    def value(self, which: int, x: Array) -> Array:
        """Return the values of one critic: (rows,); they hold until it is asked again."""
        net = self.nets[which]
        values: Array = net.forward(self._layers[which], x, net.rows(x.shape[1]))[0, 0]
        return values

    def action_gradient(
        self, which: int, rows: int, first: int, chosen: Tensor | None = None
    ) -> Array:
        """Return the gradient of each value with respect to its action: (size, chosen).

        Args:
            which: the critic; its `value` came before
            rows: how many that was asked of
            first: where in the input the action begins
            chosen: which of them; None: all
        """
        net = self.nets[which]
        ones = np.ones((1, 1, rows if chosen is None else len(chosen)), np.float32)
        gradient = net.input_gradient(self._layers[which], net.rows(rows), ones, first, chosen)
        taken: Array = gradient[0]
        return taken

    def fit(self, x: Array, target: Array, weight: float) -> tuple[Array, float, float]:
        """Return the gradient of the TD loss, laid out as the parameters, the loss and mean value.

        Args:
            x: observations with the actions below them: (inputs, rows)
            target: what all critics shall say: (rows,)
            weight: of the loss, which is summed over the critics
        """
        n = len(target)
        loss = total = 0.0
        for i, (net, gradients) in enumerate(zip(self.nets, self._gradients, strict=True)):
            value = self.value(i, x)
            error = value - target
            # A Huber loss goes on from 1 as its tangent; the square is near * near.
            near = np.minimum(np.maximum(error, -1), 1) if self._huber else error
            loss += float(near.dot(2 * error - near))
            total += float(np.add.reduce(value))
            rows = net.rows(n)
            np.multiply(near, 2 * weight / n, out=rows.gradients[-1].array[0, 0])
            net.backward(self._layers[i], gradients, x, rows)
        return self._gradient, weight * loss / n, total / (n * len(self.nets))


class ActorKernel:
    """Computes with the parameters of an actor: its hidden layers and a head without activation.

    Args:
        actor: the network, with ``torso`` and ``head``
        flat: the buffer that its parameters lie in
        activation: of the hidden layers
    """

    def __init__(
        self, actor: SquashedGaussian | DeterministicActor, flat: Tensor, activation: str
    ) -> None:
        layers = linear_layers(nn.Sequential(actor.torso.layers, actor.head))
        self._net = MLPs([layers], flat, activation, n_plain=1)
        self._layers = self._net.layers(flat.numpy())
        self._gradient = np.empty_like(flat.numpy())
        self._gradients = self._net.layers(self._gradient)

    def forward(self, x: Array) -> Array:
        """Return the outputs (outputs, rows) for ``x`` (d, rows); they hold until the next call."""
        outputs: Array = self._net.forward(self._layers, x, self._net.rows(x.shape[1]))[0]
        return outputs

    def backward(self, x: Array, outputs: Array) -> Array:
        """Return the gradient, laid out as the parameters; `forward` came before.

        Args:
            x: what it got
            outputs: the loss's gradient with respect to the outputs: (outputs, rows)
        """
        rows = self._net.rows(x.shape[1])
        rows.gradients[-1].array[0] = outputs
        self._net.backward(self._layers, self._gradients, x, rows)
        return self._gradient


def columns(tensor: Tensor) -> Array:
    """Return rows (n, ...) as columns (size, n)."""
    return tensor.numpy().reshape(len(tensor), -1).T
