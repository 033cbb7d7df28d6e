"""The reward signal interface: a network that rewards steps, and learns beside an agent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from rltune.agents.rewards.networks import Steps, Whitening
from torch import Tensor, nn


class RewardSignal(nn.Module, ABC):
    """The base of all signals.

    Attributes:
        episodic: whether its returns end where an episode terminates; those of curiosity and RND
            do not (as in ML-Agents): else an agent would learn to fear an end, or to seek it
        scale: knows the running deviation that rewards are divided by; None: they aren't
    """

    episodic: ClassVar[bool]
    scale: Whitening | None

    def __init__(self, *, scaled: bool) -> None:
        super().__init__()
        self.scale = Whitening(1) if scaled else None

    @abstractmethod
    def rewards(self, steps: Steps) -> Tensor:
        """Return the rewards of steps: (rows,)."""

    @abstractmethod
    def loss(self, steps: Steps, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """Return what a gradient step lowers, 0-d, and 0-d metrics.

        Args:
            steps: of the agent
            generator: where randomness comes from
        """

    @abstractmethod
    def learn_scale(self, steps: Steps) -> None:
        """Take in steps of the agent, in the statistics that inputs are whitened with."""
