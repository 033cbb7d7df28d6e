"""Twin delayed DDPG (Fujimoto, van Hoof and Meger 2018, arXiv:1802.09477).

DDPG with three changes: the smaller of two critics' values is the target, noise smooths the target
actor's actions, and actor and targets move more rarely than the critics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from rltune.agents.algorithms.ddpg import DDPG, DDPGConfig
from rltune.agents.config import hp
from rltune.agents.kernels.ddpg import DDPGKernel
from rltune.agents.spaces import Spaces
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class TD3Config(DDPGConfig):
    """The hyperparameters of TD3."""

    policy_delay: int = hp(
        2, low=1, high=4, minimum=1, help="critic updates to each of actor and targets"
    )
    target_policy_noise: float = hp(
        0.2, low=0.05, high=0.5, help="standard deviation of the noise on the target's actions"
    )
    target_noise_clip: float = hp(0.5, low=0.1, high=1.0, help="largest noise on them")


class TD3(DDPG):
    """TD3 with Stable-Baselines3's semantics, but with noise on the actions by default."""

    Config = TD3Config
    n_critics: ClassVar[int] = 2

    def __init__(
        self, config: TD3Config, spaces: Spaces, *, seed: int, device: str = "cpu"
    ) -> None:
        super().__init__(config, spaces, seed=seed, device=device)
        self.policy_delay = config.policy_delay
        self.scalars = self.scalars._replace(
            target_policy_noise=torch.tensor(config.target_policy_noise, device=self.device),
            target_noise_clip=torch.tensor(config.target_noise_clip, device=self.device),
        )

    def make_kernel(self) -> DDPGKernel:
        """Return what computes in NumPy: DDPG's knows of the noise and of the second critic."""
        return super().make_kernel()

    def _smoothing(self, action: Tensor) -> Tensor:
        return torch.randn(action.shape, generator=self.generator, device=self.device)
