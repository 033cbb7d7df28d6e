"""Actors of DDPG, TD3 and SAC: deterministic, squashed Gaussian, and of one choice or several."""

from __future__ import annotations

import math

import torch
from rltune.agents.config import OffPolicyConfig
from rltune.agents.model_files import Layer
from rltune.agents.networks.actions import Choices
from rltune.agents.networks.actor_critic import LOG_STD_RANGE
from rltune.agents.networks.critics import ACTOR, Critics, head
from rltune.agents.networks.distributions import MultiCategorical
from rltune.agents.networks.encoders import Encoder, make_encoder, model_encoder
from rltune.agents.networks.layers import HIDDEN_GAIN, ModelLayers, flat, initialise, mlp
from rltune.agents.networks.recurrent import Reader, make_core
from rltune.agents.spaces import InputParts, Spaces
from torch import Tensor, nn
from torch.nn.functional import hardtanh

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
# Keeps the logarithm of the squashing's slope, and gSDE's variance, away from 0.
EPSILON = 1e-6
# The part of the largest entropy that choices aim at. Under the paper's 0.98 actions are all but
# uniform, and what takes several right ones in a row is then worth nothing.
TARGET_ENTROPY = 0.89
# gSDE's means are kept in this range, as in SB3: the noise must be able to reach both sides.
SDE_MEAN = 2.0


class Torso(Reader):
    """Hidden layers on top of the encoded observation; ``size`` is how many numbers come out."""

    def __init__(self, spaces: Spaces, config: OffPolicyConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.parts = InputParts(spaces.observation)
        self.encoder: Encoder | ModelLayers
        self.output: Layer | None = None  # as a model file describes it
        hidden = config.net_arch
        model = config.models().get("actor_model")
        if model:
            self.encoder = file = model_encoder(spaces, model.layers)
            hidden, size, self.output = (), flat(file.shape), model.outputs[0]
        else:
            self.encoder = make_encoder(spaces, config.encoder, config.layer_norm)
            size = self.encoder.size
        self.core = make_core(self.parts, size, ACTOR)
        sizes = [size if self.core is None else self.core.size, *hidden]
        self.layers, self.size = mlp(sizes, config.activation, config.layer_norm), sizes[-1]
        initialise(self, HIDDEN_GAIN, config.weight_init, generator)
        if self.core is not None:
            initialise(self.core, 1.0, config.weight_init, generator)

    def forward(self, obs: Tensor) -> Tensor:
        """Return (batch, size)."""
        latent: Tensor = self.layers(self.read(obs))
        return latent


class DeterministicActor(nn.Module):
    """Gives one action in [-1, 1] for each observation."""

    def __init__(
        self, spaces: Spaces, size: int, config: OffPolicyConfig, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.torso = Torso(spaces, config, generator)
        self.head = head(self.torso.size, size, config, generator, self.torso.output)

    def forward(self, obs: Tensor) -> Tensor:
        """Return (batch, size)."""
        action: Tensor = self.head(self.torso(obs)).tanh()
        return action

    def imitation(self, obs: Tensor, action: Tensor) -> Tensor:
        """Return the loss of imitating actions (batch, size), 0-d: their mean squared distance."""
        distance: Tensor = self(obs) - action
        return distance.square().mean()


class SquashedGaussian(nn.Module):
    """A normal distribution whose samples go through tanh, with a std that the network gives.

    With ``log_std_init`` the std is gSDE's (Raffin et al. 2021, arXiv:2005.05719): the noise is a
    random linear function of the last hidden layer, the same for all rows of a batch in training.

    Args:
        spaces: of one environment
        size: numbers of one action
        config: of the agent
        log_std_init: of gSDE's noise functions; None: no gSDE
        generator: where the weights come from
    """

    largest_temperature = math.inf

    def __init__(
        self,
        spaces: Spaces,
        size: int,
        config: OffPolicyConfig,
        log_std_init: float | None,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.size = size
        self.torso = Torso(spaces, config, generator)
        self.use_sde = log_std_init is not None
        n_outputs = size if self.use_sde else 2 * size
        self.head = head(self.torso.size, n_outputs, config, generator, self.torso.output)
        if log_std_init is not None:
            self.log_std = nn.Parameter(torch.full((self.torso.size, size), float(log_std_init)))

    def forward(self, obs: Tensor) -> Tensor:
        """Return the greedy actions: (batch, size)."""
        return self._mean(self.head(self.torso(obs))).tanh()

    def imitation(self, obs: Tensor, action: Tensor) -> Tensor:
        """Return the loss of imitating actions (batch, size), 0-d: their mean squared distance."""
        distance: Tensor = self(obs) - action
        return distance.square().mean()

    def _mean(self, output: Tensor) -> Tensor:
        return hardtanh(output, -SDE_MEAN, SDE_MEAN) if self.use_sde else output[:, : self.size]

    def target_entropies(self) -> list[float]:
        """Return the entropy that the temperature aims at by default; there is one."""
        return [-float(self.size)]

    def noise(self, batch: int, generator: torch.Generator) -> Tensor:
        """Draw what `sample` needs: (batch, size), or with gSDE one (latent, size) for all."""
        shape = self.log_std.shape if self.use_sde else (batch, self.size)
        return torch.randn(shape, generator=generator, device=generator.device)

    def expect(self, critics: Critics, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the smallest value (batch,) and the log-density (batch, 1) of a sample.

        With several streams of rewards, values are (streams, batch).
        """
        action, log_prob = self.sample(obs, noise)
        return critics(obs, action).amin(0).squeeze(-1), log_prob.unsqueeze(1)

    def values(self, critics: Critics, obs: Tensor, action: Tensor) -> Tensor:
        """Return the values of actions that were done: (n_critics, batch)."""
        q: Tensor = critics(obs, action).squeeze(-1)
        return q

    def sample(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions (batch, size) and their log-densities (batch,)."""
        latent = self.torso(obs)
        output = self.head(latent)
        mean = self._mean(output)
        if self.use_sde:
            std = self.log_std.exp()
            added = latent @ (noise * std)
            variance = latent.square() @ std.square() + EPSILON
            exponent = -0.5 * (added.square() / variance + variance.log())
        else:
            log_std = output[:, self.size :].clamp(*LOG_STD_RANGE)
            added = log_std.exp() * noise
            exponent = -0.5 * noise.square() - log_std
        action = (mean + added).tanh()
        slope = (1 - action.square() + EPSILON).log()
        return action, (exponent - slope).sum(1) - HALF_LOG_2PI * self.size

    def explore(self, obs: Tensor, generator: torch.Generator) -> Tensor:
        """Return a sample for each row: (n, size)."""
        return self.sample(obs, self.noise(len(obs), generator))[0]

    def explore_sde(self, obs: Tensor, functions: Tensor) -> Tensor:
        """Return actions (n, size) with gSDE's noise functions (n, latent, size)."""
        latent = self.torso(obs)
        added = torch.bmm(latent.unsqueeze(1), functions).squeeze(1)
        return (self._mean(self.head(latent)) + added).tanh()

    def functions(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw gSDE's noise functions, one for each environment: (n, latent, size)."""
        shape = (n, *self.log_std.shape)
        noise = torch.randn(shape, generator=generator, device=generator.device)
        return noise * self.log_std.exp()


class FactoredCategorical(nn.Module):
    """One or several independent choices; the logits of all values stand in one row.

    A critic gives one number for each value of each choice, and the value of an action is the sum
    over its choices. Expectations are then sums over each choice's values, and exact.
    """

    use_sde = False
    # The entropy of all steps to come is part of the values, so a higher temperature lets actions
    # that end an episode look worse and the entropy fall: without a bound it would rise for ever.
    largest_temperature = 1.0

    def __init__(
        self,
        spaces: Spaces,
        choices: Choices,
        config: OffPolicyConfig,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.distribution = MultiCategorical(choices.counts)
        self.torso = Torso(spaces, config, generator)
        n_outputs = sum(choices.counts)
        self.head = head(self.torso.size, n_outputs, config, generator, self.torso.output)
        starts = torch.tensor([0, *choices.counts[:-1]]).cumsum(0)
        self.register_buffer("starts", starts, persistent=False)  # of the choices, in a row

    def forward(self, obs: Tensor) -> Tensor:
        """Return the greedy actions: (batch, choices)."""
        return self.distribution.mode(self.logits(obs))

    def imitation(self, obs: Tensor, action: Tensor) -> Tensor:
        """Return the loss of imitating actions (batch, choices), 0-d: how unlikely they are."""
        return self.distribution.imitation(self.logits(obs), action)

    def logits(self, obs: Tensor) -> Tensor:
        """Return the logits of all choices: (batch, values)."""
        return self.torso.parts.allow(self.head(self.torso(obs)), obs)

    def target_entropies(self) -> list[float]:
        """Return the entropies that the choices' temperatures aim at by default."""
        return [TARGET_ENTROPY * math.log(n) for n in self.distribution.counts]

    def masked_target_entropies(self, obs: Tensor) -> Tensor:
        """Return the same for the actions that are allowed in ``obs``, on average: (choices,)."""
        masks = torch.split(self.torso.parts.mask(obs), self.distribution.counts, 1)
        return TARGET_ENTROPY * torch.stack([mask.sum(1).log() for mask in masks]).mean(1)

    def noise(self, batch: int, generator: torch.Generator) -> Tensor:
        """Return nothing: expectations need no samples."""
        return torch.empty(batch, 0, device=generator.device)

    def expect(self, critics: Critics, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the expected value (batch,) and log-probabilities of choices (batch, choices)."""
        logits = torch.split(self.logits(obs), self.distribution.counts, 1)
        log_probs = torch.cat([part.log_softmax(1) for part in logits], 1)
        probs = log_probs.exp()
        with torch.no_grad():  # the actor has no part in it
            q = critics(obs).amin(0)
        terms = torch.split(probs * log_probs, self.distribution.counts, 1)
        return (probs * q).sum(-1), torch.cat([term.sum(1, keepdim=True) for term in terms], 1)

    def values(self, critics: Critics, obs: Tensor, action: Tensor) -> Tensor:
        """Return the values of actions that were done: (n_critics, batch)."""
        assert isinstance(self.starts, Tensor)
        q: Tensor = critics(obs)
        index = (action + self.starts).expand(*q.shape[:-2], -1, -1)
        return q.gather(-1, index).sum(-1)

    def explore(self, obs: Tensor, generator: torch.Generator) -> Tensor:
        """Return a sample for each row: (n, choices)."""
        noise = self.distribution.noise(len(obs), generator)
        return self.distribution.sample(self.logits(obs), noise)
