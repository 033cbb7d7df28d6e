"""A reward signal: a linear model learns to copy a fixed random one; its error is the reward."""

from __future__ import annotations

import torch
from rltune.agents.rewards.networks import Steps
from rltune.agents.rewards.signal import RewardSignal
from rltune.agents.spaces import Spaces
from torch import Tensor, nn


class Novelty(RewardSignal):
    """Its weights come from the generator alone; checkpoints keep them, as of any nn.Module."""

    episodic = False

    def __init__(
        self,
        spaces: Spaces,
        encoder: str,  # for signals that read images
        size: int,
        generator: torch.Generator,
        device: torch.device,
    ) -> None:
        super().__init__(scaled=True)  # rewards are divided by their running deviation
        n = spaces.observation.shape[0]
        self.register_buffer("target", torch.randn(n, size, generator=generator))
        self.copy = nn.Parameter(torch.zeros(n, size))

    def rewards(self, steps: Steps) -> Tensor:
        obs = steps.next_obs.float().clamp(-5, 5)
        return (obs @ self.copy - obs @ self.target).square().mean(1)

    def loss(self, steps: Steps, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        loss = self.rewards(steps).mean()
        return loss, {"novelty_loss": loss.detach()}

    def learn_scale(self, steps: Steps) -> None:
        """Inputs are not whitened."""
