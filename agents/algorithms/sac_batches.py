"""SAC's minibatches: replayed transitions, with noise for the actions that it will take."""

from __future__ import annotations

from typing import NamedTuple

import torch
from rltune.agents.algorithms.sac_config import SACConfig
from rltune.agents.memory.batch import Batch
from rltune.agents.memory.replay import ReplayMemory
from rltune.agents.memory.sequences import sample_sequences
from rltune.agents.networks.actions import BoxScale, Choices
from rltune.agents.networks.actors import FactoredCategorical, SquashedGaussian
from rltune.agents.networks.critics import CRITICS, Critics
from torch import Tensor


class SACBatch(NamedTuple):
    """Sampled transitions and noise for both actions; the first axis of a tensor is the batch."""

    obs: Tensor
    action: Tensor  # in [-1, 1], or the choices' values
    reward: Tensor
    next_obs: Tensor
    discount: Tensor
    noise: Tensor
    next_noise: Tensor


class Minibatches:
    """Draws minibatches; with LSTMs, of sequences whose stored states it brings up to date.

    Args:
        actor: that learns
        critics: that learn
        target_critics: that value what follows
        scale: between the memory's actions and those of the networks
        config: of the agent
        generator: of the draws and of the noise
    """

    def __init__(
        self,
        actor: SquashedGaussian | FactoredCategorical,
        critics: Critics,
        target_critics: Critics,
        scale: BoxScale | Choices,
        config: SACConfig,
        generator: torch.Generator,
    ) -> None:
        self.actor, self.critics, self.target_critics = actor, critics, target_critics
        self.scale, self.config, self.generator = scale, config, generator
        self.burn_in = config.burn_in if config.lstm_size else 0

    def draw(self, memory: ReplayMemory) -> SACBatch:
        """Return a minibatch."""
        if self.config.lstm_size:
            return self.of(sample_sequences(memory, self.config, self.generator))
        return self.of(memory.sample(self.config.batch_size, self.generator))

    def of(self, batch: Batch) -> SACBatch:
        """Return the minibatch of some transitions, or of sequences of them."""
        actor, n = self.actor, len(batch.action)
        noise = actor.noise(n, self.generator)
        return SACBatch(
            obs=self._warmed_up(batch.obs, self.critics),
            action=self.scale.to_nets(batch.action),
            reward=batch.reward,
            next_obs=self._warmed_up(batch.next_obs, self.target_critics),
            discount=batch.discount,
            noise=noise,
            next_noise=noise if actor.use_sde else actor.noise(n, self.generator),
        )

    @torch.no_grad()
    def _warmed_up(self, inputs: Tensor, critics: Critics) -> Tensor:
        """Return sequences behind the burn-in, with the states of the actor and of ``critics``."""
        own = self.actor.torso.warm_up(inputs, self.burn_in)
        if self.burn_in:
            parts = critics.parts
            theirs = parts.state(critics.warm_up(inputs, self.burn_in)[:, 0], CRITICS)
            parts.state(own[:, 0], CRITICS).copy_(theirs)
        return own
