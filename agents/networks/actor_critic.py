"""Actor-critic networks: a policy and a value function on top of an encoder.

Every weight is initialised from the generator that is handed in.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from rltune.agents.config import AgentConfig, OnPolicyConfig
from rltune.agents.model_files import Layer
from rltune.agents.networks.distributions import Distribution, Gaussian
from rltune.agents.networks.encoders import Encoder, ImageEncoder, make_encoder, model_encoder
from rltune.agents.networks.layers import HIDDEN_GAIN, ModelLayers, flat, initialise, mlp
from rltune.agents.networks.recurrent import LSTM, Reader, make_core
from rltune.agents.reward_signals import value_streams
from rltune.agents.spaces import InputParts, Spaces
from torch import Tensor, nn

# Log-stds that a network gives are kept in this range, as in SAC.
LOG_STD_RANGE = (-20.0, 2.0)


class Hidden(NamedTuple):
    """The layers of actor and critic before their output layers."""

    encoder: Encoder | ModelLayers | Shared  # both read it
    core: LSTM | None  # behind it
    actor: nn.Module  # the hidden layers of its own
    critic: nn.Module
    actor_size: int  # numbers that come out
    critic_size: int
    # How a model file describes the output layers; None: there is none.
    actor_output: Layer | None = None
    critic_output: Layer | None = None


class Shared(nn.Module):
    """An encoder with hidden layers that actor and critic share."""

    def __init__(self, encoder: Encoder, hidden: nn.Module, size: int) -> None:
        super().__init__()
        self.encoder, self.hidden, self.size = encoder, hidden, size

    def forward(self, obs: Tensor) -> Tensor:
        """Return (batch, size)."""
        features: Tensor = self.hidden(self.encoder(obs))
        return features


def hidden_layers(spaces: Spaces, config: AgentConfig) -> Hidden:
    """Return the layers of actor and critic that a configuration describes, not yet initialised.

    Vectors are read by hidden layers of each's own, unless the agent has a ``shared_torso`` and it
    is on. Images are read by an encoder that both share and that ends in a hidden layer (as in
    SB3); where other numbers stand beside images, hidden layers of each's own follow. With one
    model file all its layers are shared, with two none is. An LSTM is shared too.

    Raises:
        UserError: the observations can't be read so.
    """
    models = config.models()
    if "actor_model" in models:
        scaled = model_encoder(spaces, ())
        actor, critic = models["actor_model"], models["critic_model"]
        own = [ModelLayers(model.layers, scaled.shape) for model in (actor, critic)]
        sizes = [flat(layers.shape) for layers in own]
        outputs = (*actor.outputs, *critic.outputs)
        return Hidden(scaled, None, own[0], own[1], sizes[0], sizes[1], *outputs)
    encoder: Encoder | ModelLayers | Shared
    hidden: tuple[int, ...] = ()
    outputs = ()
    if "model" in models:
        encoder, outputs = model_encoder(spaces, models["model"].layers), models["model"].outputs
        size = flat(encoder.shape)
    else:
        encoder = make_encoder(spaces, config.encoder, config.layer_norm)
        size = encoder.size
        if not isinstance(encoder, ImageEncoder):
            hidden = config.net_arch
            # TRPO has no such field: its critic is updated apart from the actor.
            if getattr(config, "shared_torso", False):
                layers = mlp([size, *hidden], config.activation, config.layer_norm)
                size, hidden = hidden[-1] if hidden else size, ()
                encoder = Shared(encoder, layers, size)
    core = make_core(InputParts(spaces.observation), size)
    sizes = [size if core is None else core.size, *hidden]
    own_actor, own_critic = (mlp(sizes, config.activation, config.layer_norm) for _ in range(2))
    return Hidden(encoder, core, own_actor, own_critic, sizes[-1], sizes[-1], *outputs)


class Actor(nn.Module):
    """Gives the parameters of the action distribution from encoded observations.

    For Box actions the log-std is a free parameter, or given by the network
    (``state_dependent_std``), or that of gSDE (Raffin et al. 2021, arXiv:2005.05719), whose noise
    is a random linear function of the last hidden layer.
    """

    def __init__(
        self,
        hidden: Hidden,
        distribution: Distribution,
        config: OnPolicyConfig,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.torso = hidden.actor
        n_latent = hidden.actor_size
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
        rule = hidden.actor_output.rule if hidden.actor_output else (0.01, config.weight_init)
        initialise(self.head, *rule, generator)
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
    """An actor and a critic; `hidden_layers` says what they share.

    With a value for each reward signal, values are (batch, streams).
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
        self.parts = InputParts(spaces.observation)
        hidden = hidden_layers(spaces, config)
        self.encoder, self.core = hidden.encoder, hidden.core
        initialise(self.encoder, HIDDEN_GAIN, config.weight_init, generator)
        if self.core is not None:
            initialise(self.core, 1.0, config.weight_init, generator)
        self.actor = Actor(hidden, distribution, config, generator)
        n_values = value_streams(config)
        self.critic = nn.Sequential(hidden.critic, nn.Linear(hidden.critic_size, n_values))
        initialise(self.critic[0], HIDDEN_GAIN, config.weight_init, generator)
        rule = hidden.critic_output.rule if hidden.critic_output else (1.0, config.weight_init)
        initialise(self.critic[1], *rule, generator)

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


class ACERNet(nn.Module):
    """A policy and action values, of ACER; `hidden_layers` says what they share."""

    def __init__(
        self, spaces: Spaces, n_actions: int, config: AgentConfig, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.parts = InputParts(spaces.observation)
        hidden = hidden_layers(spaces, config)
        self.encoder = hidden.encoder
        self.actor = nn.Sequential(hidden.actor, nn.Linear(hidden.actor_size, n_actions))
        self.critic = nn.Sequential(hidden.critic, nn.Linear(hidden.critic_size, n_actions))
        initialise(self.encoder, HIDDEN_GAIN, config.weight_init, generator)
        for network, gain, output in (
            (self.actor, 0.01, hidden.actor_output),
            (self.critic, 1.0, hidden.critic_output),
        ):
            initialise(network[0], HIDDEN_GAIN, config.weight_init, generator)
            rule = output.rule if output else (gain, config.weight_init)
            initialise(network[1], *rule, generator)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the policy's logits and the action values, each (batch, n_actions)."""
        features = self.encoder(self.parts.observation(obs))
        return self.parts.allow(self.actor(features), obs), self.critic(features)

    def logits(self, obs: Tensor) -> Tensor:
        """Return the policy's logits: (batch, n_actions)."""
        logits: Tensor = self.actor(self.encoder(self.parts.observation(obs)))
        return self.parts.allow(logits, obs)

    def value(self, obs: Tensor) -> Tensor:
        """Return the expected action value: (batch,)."""
        logits, q = self(obs)
        value: Tensor = (logits.softmax(-1) * q).sum(-1)
        return value

    @torch.no_grad()
    def probabilities(self, obs: Tensor) -> Tensor:
        """Return the policy for sequences (n_envs, n_steps, ...), without its gradient."""
        return self.logits(obs.flatten(0, 1)).softmax(-1).view(*obs.shape[:2], -1)
