"""Action scaling: between the outputs of networks and the actions of environments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from gymnasium import spaces as gym_spaces
from numpy.typing import NDArray
from rltune.agents.errors import UserError
from rltune.agents.spaces import choose
from torch import Tensor


class BoxScale:
    """Scales actions between the networks' [-1, 1] and the bounds of a Box.

    What the environments get and the memory holds is in the Box's units.

    Raises:
        UserError: the space is no Box, or has an infinite bound.
    """

    def __init__(
        self, space: gym_spaces.Space[Any], agent: str, device: torch.device | str = "cpu"
    ) -> None:
        if not isinstance(space, gym_spaces.Box):
            raise UserError(
                f"{agent} acts in Box spaces, but the action space is {space}; use SAC or PPO"
            )
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise UserError(
                f"{agent} needs actions with finite bounds, but the action space is {space}; "
                "bound them with gymnasium.wrappers.TransformAction or use PPO"
            )
        self.shape: tuple[int, ...] = space.shape
        self.size = math.prod(space.shape)
        self.dtype: type[np.generic] = np.float32
        self.low = space.low.astype(np.float32)
        self.high = space.high.astype(np.float32)
        half = (self.high - self.low) / 2
        self._half = np.where(half > 0, half, 1).astype(np.float32)
        self._centre = self.low + half
        self._unit = torch.from_numpy(1 / self._half).reshape(-1).to(device)
        self._offset = torch.from_numpy(self._centre / self._half).reshape(-1).to(device)

    def to_space(self, action: Tensor) -> NDArray[np.float32]:
        """Return actions (n, size) in [-1, 1] as arrays (n, *shape) within the bounds."""
        scaled = action.cpu().numpy().reshape(-1, *self.shape) * self._half + self._centre
        clipped: NDArray[np.float32] = np.minimum(np.maximum(scaled, self.low), self.high)
        return clipped

    def as_actions(self, action: Tensor) -> Tensor:
        """Return the same as `to_space`, as tensors."""
        half, centre, low, high = (
            torch.from_numpy(part).to(action.device)
            for part in (self._half, self._centre, self.low, self.high)
        )
        scaled = action.reshape(-1, *self.shape) * half + centre
        return torch.minimum(torch.maximum(scaled, low), high)

    def to_nets(self, action: Tensor) -> Tensor:
        """Return actions (batch, *shape) within the bounds as (batch, size) in [-1, 1]."""
        return action.flatten(1) * self._unit - self._offset

    def random(self, n: int, generator: torch.Generator, mask: Tensor | None = None) -> Tensor:
        """Draw actions (n, size) uniformly from [-1, 1]; a Box has no ``mask``."""
        shape = (n, self.size)
        return 2 * torch.rand(shape, generator=generator, device=generator.device) - 1


class Choices:
    """One choice or several, as Discrete, MultiDiscrete and MultiBinary spaces have them.

    Attributes:
        counts: how many values each choice has

    Raises:
        UserError: the space has no choices.
    """

    def __init__(self, space: gym_spaces.Space[Any], agent: str) -> None:
        if isinstance(space, gym_spaces.Discrete):
            self.counts = [int(space.n)]
        elif isinstance(space, gym_spaces.MultiDiscrete):
            self.counts = [int(n) for n in space.nvec.reshape(-1)]
        elif isinstance(space, gym_spaces.MultiBinary):
            self.counts = [2] * math.prod(space.shape)
        else:
            raise UserError(
                f"{agent} cannot act in a {type(space).__name__} space; "
                "use Box, Discrete, MultiDiscrete or MultiBinary"
            )
        assert space.shape is not None
        self.shape: tuple[int, ...] = space.shape
        self.size = len(self.counts)
        bits = isinstance(space, gym_spaces.MultiBinary)
        self.dtype: type[np.generic] = np.int8 if bits else np.int64

    def to_space(self, action: Tensor) -> NDArray[Any]:
        """Return actions (n, size) as arrays (n, *shape)."""
        return action.cpu().numpy().astype(self.dtype, copy=False).reshape(-1, *self.shape)

    def as_actions(self, action: Tensor) -> Tensor:
        """Return the same as `to_space`, as tensors."""
        return action.reshape(-1, *self.shape)

    def to_nets(self, action: Tensor) -> Tensor:
        """Return actions (batch, *shape) as (batch, size)."""
        return action.reshape(len(action), -1).long()

    def random(self, n: int, generator: torch.Generator, mask: Tensor | None = None) -> Tensor:
        """Draw actions (n, size) uniformly, of those that the ``mask`` (n, values) allows."""
        uniform = torch.rand(n, self.size, generator=generator, device=generator.device)
        if mask is None:
            return (uniform * torch.tensor(self.counts, device=generator.device)).long()
        masks = torch.split(mask, self.counts, 1)
        return torch.stack([choose(u, m) for u, m in zip(uniform.T, masks, strict=True)], 1)
