"""Random network distillation, RND: a reward for what is new (Burda 2018, arXiv:1810.12894)."""

from __future__ import annotations

import torch
from rltune.agents.rewards.networks import Features, Steps
from rltune.agents.rewards.signal import RewardSignal
from rltune.agents.spaces import Spaces
from torch import Tensor


class RND(RewardSignal):
    """Rewards the error of a network that learns what a random one says of an observation.

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
        self.target = Features(spaces, encoder, [size, size], generator)
        self.target.requires_grad_(False)
        self.predictor = Features(spaces, encoder, [size, size, size], generator)
        self.to(device)

    def learn_scale(self, steps: Steps) -> None:
        """Let the whitening take in the observations."""
        self.target.learn(steps.next_obs)

    def rewards(self, steps: Steps) -> Tensor:
        """Return the mean squared errors at the successors: (rows,)."""
        read = self.target.observation(steps.next_obs)
        return (self.predictor.encoded(read) - self.target.encoded(read)).square().mean(1)

    def loss(self, steps: Steps, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean error."""
        loss = self.rewards(steps).mean()
        return loss, {"rnd_loss": loss.detach()}
