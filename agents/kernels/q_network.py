"""Q-networks of DQN, plain or dueling: values of actions, and the gradient of a loss of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rltune.agents.errors import NotStandardError
from rltune.agents.kernels.mlp import Layer, MLPs
from rltune.agents.kernels.standard import check_reader, linear_layers
from rltune.agents.networks.q_networks import QNetwork
from torch import Tensor

Array = NDArray[Any]


class QKernel:
    """Computes with the parameters of a `QNetwork` of standard form.

    Args:
        nets: the network
        flat: the buffer that its parameters lie in
        config: a `DQNConfig`

    Raises:
        NotStandardError: the network is of another form.
    """

    def __init__(self, nets: QNetwork, flat: Tensor, config: Any) -> None:
        if config.models():
            raise NotStandardError("a model file")
        check_reader(nets)
        if config.noisy:
            raise NotStandardError("noisy layers")
        if config.distributional != "none":
            raise NotStandardError("distributional returns")
        torso = linear_layers(nets.torso) if len(nets.torso) else []
        advantage = linear_layers(nets.advantage)
        activation = config.activation
        self.n_actions = nets.n_actions
        self._torso: MLPs | None = None
        if nets.value is None:
            self._streams = [MLPs([[*torso, *advantage]], flat, activation, n_plain=1)]
        else:
            each = [advantage, linear_layers(nets.value)]
            self._streams = [MLPs([layers], flat, activation, n_plain=1) for layers in each]
            if torso:
                self._torso = MLPs([torso], flat, activation)

    def layers(self, flat: Array) -> list[list[Layer]]:
        """Return the views of a flat buffer, of the torso last; see `MLPs.layers`."""
        parts = [*self._streams, *([self._torso] if self._torso else [])]
        return [part.layers(flat) for part in parts]

    def forward(self, layers: Sequence[Sequence[Layer]], x: Array) -> Array:
        """Return the values (actions, rows) of all actions, until the next call.

        Args:
            layers: the parameters
            x: (inputs, rows)
        """
        n = x.shape[1]
        self._x = self._features = x
        if self._torso:
            self._features = self._torso.forward(layers[-1], x, self._torso.rows(n))
        outputs = [
            stream.forward(own, self._features, stream.rows(n))[0]
            for stream, own in zip(self._streams, layers, strict=False)
        ]
        values: Array = outputs[0]
        if len(outputs) > 1:
            mean = np.add.reduce(values, axis=0) / np.float32(self.n_actions)
            values = outputs[1] + values - mean
        return values

    def backward(
        self,
        layers: Sequence[Sequence[Layer]],
        gradients: Sequence[Sequence[Layer]],
        chosen: Array,
        value: Array,
    ) -> None:
        """Set the gradients of the parameters; `forward` came before.

        Args:
            layers: the parameters
            gradients: where their gradients go
            chosen: where the value of each row's action stands, in the flattened values
            value: the loss's gradient with respect to it: (rows,)
        """
        n = len(value)
        rows = [stream.rows(n) for stream in self._streams]
        outputs = rows[0].gradients[-1].array[0]
        outputs.fill(0)
        outputs.reshape(-1)[chosen] = value
        if len(rows) > 1:
            outputs -= value / np.float32(len(outputs))
            rows[1].gradients[-1].array[0] = value
        if self._torso is None:
            for i, stream in enumerate(self._streams):
                stream.backward(layers[i], gradients[i], self._x, rows[i])
            return
        torso = self._torso.rows(n)
        to_torso = torso.gradients[-1].array
        shares = [to_torso, np.empty_like(to_torso)]  # of the two streams
        for i, stream in enumerate(self._streams):
            stream.backward(layers[i], gradients[i], self._features, rows[i], shares[i])
        to_torso += shares[1]
        self._torso.backward(layers[-1], gradients[-1], self._x, torso)
