"""Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rltune.agents.algorithm import Algorithm, Memory
from rltune.agents.config import OnPolicyConfig, hp


@dataclass(frozen=True, kw_only=True)
class PPOConfig(OnPolicyConfig):
    """The hyperparameters of PPO."""

    batch_size: int = hp(256, low=32, high=1024, scale="pow2", minimum=1, help="minibatch size")
    n_minibatches: int = hp(
        0, low=1, high=64, scale="pow2", help="minibatches a rollout; 0: as batch_size says"
    )
    n_epochs: int = hp(10, low=1, high=20, minimum=1, help="passes over each rollout")
    clip_range: float | str = hp(
        0.2, low=0.05, high=0.4, schedule=True, help="how far the policy may move in an update"
    )
    clip_range_vf: float | str = hp(
        0.0, low=0.05, high=10.0, schedule=True, help="the same for the value function; 0: no limit"
    )
    normalize_advantage: bool = hp(True, help="normalise the advantages of each minibatch")
    target_kl: float = hp(
        0.0, low=0.003, high=0.1, scale="log", help="end an update beyond 1.5 times this; 0: never"
    )


class PPO(Algorithm[PPOConfig]):
    """PPO (under construction)."""

    Config = PPOConfig

    def make_memory(self) -> Memory:
        """Return an empty rollout memory."""
        raise NotImplementedError

    def act(
        self, obs: NDArray[Any], *, explore: bool, mask: NDArray[np.bool_] | None = None
    ) -> NDArray[Any]:
        """Return actions."""
        raise NotImplementedError

    def update(self, memory: Any, progress: float) -> dict[str, float]:
        """Learn."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""
        raise NotImplementedError

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the state."""
        raise NotImplementedError
