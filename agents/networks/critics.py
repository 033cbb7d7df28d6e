"""Critics: the Q-networks of DDPG, TD3 and SAC, side by side.

Critics read images with an encoder that they share; actors (`actors.py`) have their own.
"""

from __future__ import annotations

import torch
from rltune.agents.config import OffPolicyConfig
from rltune.agents.model_files import Layer
from rltune.agents.networks.encoders import Encoder, make_encoder, model_encoder
from rltune.agents.networks.layers import HIDDEN_GAIN, ModelLayers, flat, initialise, mlp
from rltune.agents.networks.recurrent import Reader, make_core
from rltune.agents.reward_signals import value_streams
from rltune.agents.spaces import InputParts, Spaces
from torch import Tensor, nn

# The recurrent states' order.
ACTOR, CRITICS = 0, 1


def head(
    n_in: int,
    n_out: int,
    config: OffPolicyConfig,
    generator: torch.Generator,
    described: Layer | None = None,
) -> nn.Linear:
    """Return an initialised output layer, as a model file describes it if there is one."""
    layer = nn.Linear(n_in, n_out)
    initialise(layer, *(described.rule if described else (1.0, config.weight_init)), generator)
    return layer


class Critics(Reader):
    """Q-networks side by side that differ in their weights alone.

    Their products stay apart: stacked into one batched product they were no faster on a CPU.

    Args:
        spaces: of one environment
        n_critics: how many
        n_actions: numbers of an action that goes in beside the observation; 0: none does
        n_values: how many values each gives, of each stream of rewards
        config: of the agent
        generator: where the weights come from
    """

    def __init__(
        self,
        spaces: Spaces,
        n_critics: int,
        n_actions: int,
        n_values: int,
        config: OffPolicyConfig,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.parts = InputParts(spaces.observation)
        self.encoder: Encoder | ModelLayers
        model = config.models().get("critic_model")
        if model:  # the convolutions are shared, and the actions join in behind them
            dense = tuple(layer for layer in model.layers if layer.kind == "dense")
            self.encoder = file = model_encoder(
                spaces, model.layers[: len(model.layers) - len(dense)]
            )
            size = flat(file.shape)
        else:
            self.encoder = make_encoder(spaces, config.encoder, config.layer_norm)
            size = self.encoder.size
        initialise(self.encoder, HIDDEN_GAIN, config.weight_init, generator)
        self.core = make_core(self.parts, size, CRITICS)
        if self.core is not None:
            initialise(self.core, 1.0, config.weight_init, generator)
            size = self.core.size
        self.streams = value_streams(config)
        n_in, n_out = size + n_actions, n_values * self.streams
        self.networks = nn.ModuleList()
        for _ in range(n_critics):
            hidden: nn.Module
            if model:
                hidden = ModelLayers(dense, (n_in,))
                output, width = model.outputs[0], hidden.size
            else:
                sizes = [n_in, *config.net_arch]
                hidden = mlp(sizes, config.activation, config.layer_norm)
                output, width = None, sizes[-1]
            initialise(hidden, HIDDEN_GAIN, config.weight_init, generator)
            self.networks.append(
                nn.Sequential(hidden, head(width, n_out, config, generator, output))
            )

    def forward(self, obs: Tensor, action: Tensor | None = None) -> Tensor:
        """Return (n_critics, batch, n_values); with several streams, (n_critics, streams, ...)."""
        inputs = self._inputs(obs, action)
        values = torch.stack([network(inputs) for network in self.networks])
        if self.streams == 1:
            return values
        return values.view(*values.shape[:2], self.streams, -1).transpose(1, 2)

    def first(self, obs: Tensor, action: Tensor | None = None) -> Tensor:
        """Return the values of the first critic alone: (batch, n_values)."""
        values: Tensor = self.networks[0](self._inputs(obs, action))
        return values

    def _inputs(self, obs: Tensor, action: Tensor | None) -> Tensor:
        features = self.read(obs)
        return features if action is None else torch.cat([features, action], 1)
