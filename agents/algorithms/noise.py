"""Action noise: how deterministic policies explore, drawn for each environment apart."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import torch
from rltune.agents.errors import unknown
from torch import Tensor


class ActionNoise(Protocol):
    """Noise that is added to actions between -1 and 1."""

    def draw(self, n_envs: int, generator: torch.Generator) -> Tensor:
        """Return the next noise of every environment: (n_envs, size)."""

    def reset(self, ended: Tensor) -> None:
        """Begin anew in the environments whose episode ended: (n_envs,) of bool."""

    def restart(self) -> None:
        """Begin anew, with any number of environments."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state that the next noise depends on, the generator aside."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""


class NormalNoise:
    """Independent normal numbers.

    Args:
        size: numbers of one action
        std: their standard deviation
    """

    def __init__(self, size: int, std: float) -> None:
        self.size, self.std = size, std

    def draw(self, n_envs: int, generator: torch.Generator) -> Tensor:
        """Return the next noise of every environment: (n_envs, size)."""
        shape = (n_envs, self.size)
        return torch.randn(shape, generator=generator, device=generator.device) * self.std

    def reset(self, ended: Tensor) -> None:
        """Do nothing: there is no past."""

    def restart(self) -> None:
        """Do nothing: there is no past."""

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: there is no past."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing."""


class OrnsteinUhlenbeckNoise:
    """A random walk that is drawn back to 0 (Uhlenbeck and Ornstein 1930), from 0 each episode.

    Args:
        size: numbers of one action
        std: of the increments of a unit of time; far from the start the noise has the standard
            deviation ``std / sqrt(2 theta)``
        theta: how strongly it is drawn back, in a unit of time
        dt: the length of a step
    """

    def __init__(self, size: int, std: float, theta: float = 0.15, dt: float = 0.01) -> None:
        self.size, self.std, self.theta, self.dt = size, std, theta, dt
        self.value: Tensor | None = None  # (n_envs, size)

    def draw(self, n_envs: int, generator: torch.Generator) -> Tensor:
        """Return the next noise of every environment: (n_envs, size)."""
        device = generator.device
        old = self.value
        last = torch.zeros(n_envs, self.size, device=device) if old is None else old.to(device)
        step = torch.randn(n_envs, self.size, generator=generator, device=device)
        self.value = last - self.theta * self.dt * last + self.std * math.sqrt(self.dt) * step
        return self.value

    def reset(self, ended: Tensor) -> None:
        """Begin at 0 in the environments whose episode ended: (n_envs,) of bool."""
        if self.value is not None:
            ended = ended.to(self.value.device).unsqueeze(1)
            self.value = self.value.masked_fill(ended, 0.0)

    def restart(self) -> None:
        """Begin at 0, with any number of environments."""
        self.value = None

    def state_dict(self) -> dict[str, Any]:
        """Return the noise of the last step."""
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        self.value = state["value"]


NOISES: dict[str, Callable[[int, float], ActionNoise]] = {
    "normal": NormalNoise,
    "ornstein-uhlenbeck": OrnsteinUhlenbeckNoise,
}


def make_noise(kind: str, size: int, std: float) -> ActionNoise:
    """Return the noise of a kind for actions of ``size`` numbers.

    Raises:
        UserError: there is no such kind.
    """
    if kind not in NOISES:
        raise unknown("noise_type", kind, NOISES)
    return NOISES[kind](size, std)
