"""Curiosity: a reward for what a learned model did not foresee (Pathak 2017, arXiv:1705.05363)."""

from __future__ import annotations

import torch
from rltune.agents.networks.layers import HIDDEN_GAIN, initialise, mlp
from rltune.agents.rewards.networks import ActionCode, Features, Steps
from rltune.agents.rewards.signal import RewardSignal
from rltune.agents.spaces import Spaces
from torch import Tensor, nn

HIDDEN = 256
# As in ML-Agents: how much the forward model's loss counts beside the inverse model's, and both.
FORWARD, SCALE = 0.2, 10.0


class Curiosity(RewardSignal):
    """Rewards the error of a forward model in the space of learned features.

    The features are those that an inverse model needs to tell the action from two observations in a
    row, so what actions have nothing to do with is no novelty.

    Args:
        spaces: of one environment
        encoder: what reads images
        size: numbers that encode an observation
        generator: where the weights come from
        device: of the networks
    """

    episodic = False

    def __init__(
        self,
        spaces: Spaces,
        encoder: str,
        size: int,
        generator: torch.Generator,
        device: torch.device,
    ) -> None:
        super().__init__(scaled=True)
        self.code = ActionCode(spaces.action, device)
        self.features = Features(spaces, encoder, [size, size], generator)
        self.inverse = nn.Sequential(
            mlp([2 * size, HIDDEN], "relu"), nn.Linear(HIDDEN, self.code.size)
        )
        self.foresight = nn.Sequential(
            mlp([size + self.code.size, HIDDEN], "relu"), nn.Linear(HIDDEN, size)
        )
        for network in (self.inverse, self.foresight):
            initialise(network, HIDDEN_GAIN, "orthogonal", generator)
        self.to(device)

    def learn_scale(self, steps: Steps) -> None:
        """Let the whitening take in the observations."""
        self.features.learn(steps.obs)

    def rewards(self, steps: Steps) -> Tensor:
        """Return the squared errors of the forward model: (rows,)."""
        return self._errors(self.features(steps.obs), self.features(steps.next_obs), steps.action)

    def loss(self, steps: Steps, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of both models."""
        now, then = self.features(steps.obs), self.features(steps.next_obs)
        forward = self._errors(now, then, steps.action).mean()
        inverse = self.code.loss(self.inverse(torch.cat([now, then], 1)), steps.action)
        loss = SCALE * (FORWARD * forward + (1 - FORWARD) * inverse)
        return loss, {"curiosity_loss": loss.detach()}

    def _errors(self, now: Tensor, then: Tensor, action: Tensor) -> Tensor:
        foreseen = self.foresight(torch.cat([now, self.code.encode(action)], 1))
        errors: Tensor = 0.5 * (then - foreseen).square().sum(1)
        return errors
