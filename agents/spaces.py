"""Spaces: what an environment shows and takes, and augmented observations.

An augmented observation is one flat vector: the observation, a bit for each action that says
whether it is allowed (the action mask), and the state of recurrent networks. So memories, final
observations and checkpoints need not know of masks and states, and a successor brings its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from gymnasium import spaces as gym_spaces
from torch import Tensor

# What stands in place of a forbidden action's logit or value: its probability is exactly 0, but
# logarithms, and what they are multiplied with, stay finite.
FORBIDDEN = -1e8


class Mixed(spaces.Box):
    """The space of vectors that end with the pixels of images, as numbers from 0 to 255.

    Args:
        low: the lower bounds of what stands before the pixels: (n_vector,)
        high: the upper bounds
        images: (channels, height, width) of each

    Attributes:
        n_vector: how many numbers stand before the pixels
        n_pixels: how many pixels there are
    """

    def __init__(
        self, low: npt.NDArray[Any], high: npt.NDArray[Any], images: tuple[tuple[int, ...], ...]
    ) -> None:
        self.images = images
        self.n_vector = len(low)
        self.n_pixels = sum(map(math.prod, images))
        black = np.zeros(self.n_pixels, np.float32)
        super().__init__(
            np.concatenate([low, black], dtype=np.float32),
            np.concatenate([high, black + 255], dtype=np.float32),
            dtype=np.float32,
        )


class AugmentedBox(spaces.Box):
    """The space of augmented observations.

    Attributes:
        inner: the space of the observation alone
        n_mask: how many bits there are, in the order of the actions; 1: allowed
        lstm_sizes: of the LSTMs whose states (twice as large) follow, after one number that is 1
            where an episode begins
    """

    def __init__(self, inner: spaces.Box, n_mask: int, lstm_sizes: tuple[int, ...] = ()) -> None:
        self.inner = inner
        self.n_mask = n_mask
        self.lstm_sizes = lstm_sizes
        state = np.full(1 + 2 * sum(lstm_sizes) if lstm_sizes else 0, np.inf)
        low = np.concatenate([inner.low.reshape(-1), np.zeros(n_mask), -state])
        high = np.concatenate([inner.high.reshape(-1), np.ones(n_mask), state])
        dtype: Any = np.float32 if lstm_sizes else inner.dtype
        super().__init__(low.astype(dtype), high.astype(dtype), dtype=dtype)


def as_model_input(space: gymnasium.Space[Any]) -> spaces.Box:
    """Return the space as agents see it: images stay uint8, all else becomes float32."""
    if isinstance(space, AugmentedBox):
        return space
    box = cast(spaces.Box, space)
    if box.dtype == np.float32 or (box.dtype == np.uint8 and len(box.shape) == 3):
        return box
    with np.errstate(over="ignore"):  # the bounds of a float64 box may only fit as infinities
        low, high = box.low.astype(np.float32), box.high.astype(np.float32)
    return spaces.Box(low, high, dtype=np.float32)


class InputParts:
    """Takes a network's inputs apart; of a plain observation nothing has to be taken.

    Attributes:
        observation_space: the space of the observation alone
        n_mask: how many bits follow it; 0: every action is always allowed
        lstm_sizes: of the LSTMs whose states follow
        state_size: numbers of all these states
        n_vector: how many numbers of the observation are no pixels; those come first
        has_images: whether the observation is an image, or has some in it
    """

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        parts = space if isinstance(space, AugmentedBox) else None
        self.observation_space = parts.inner if parts else space
        assert self.observation_space.shape is not None
        self.shape: tuple[int, ...] = self.observation_space.shape
        self.n_mask = parts.n_mask if parts else 0
        self.lstm_sizes = parts.lstm_sizes if parts else ()
        self.state_size = 2 * sum(self.lstm_sizes)
        self._size = math.prod(self.shape)
        self.has_images = len(self.shape) == 3
        self.n_vector = 0 if self.has_images else self._size
        if isinstance(self.observation_space, Mixed):
            self.has_images, self.n_vector = True, self.observation_space.n_vector
        self.flag = self._size + self.n_mask  # where the number stands that marks a beginning
        self._is_plain = parts is None

    def observation(self, inputs: Tensor) -> Tensor:
        """Return the observations (batch, *shape); of sequences, those of all rows in order."""
        if self._is_plain:
            return inputs
        return inputs[..., : self._size].reshape(-1, *self.shape)

    def mask(self, inputs: Tensor) -> Tensor:
        """Return the action mask, True for allowed actions: bool (batch, n_mask)."""
        return inputs[..., self._size : self._size + self.n_mask].reshape(-1, self.n_mask) > 0

    def allow(self, values: Tensor, inputs: Tensor) -> Tensor:
        """Return logits or values (batch, n_mask) with `FORBIDDEN` in place of the forbidden."""
        return torch.where(self.mask(inputs), values, FORBIDDEN) if self.n_mask else values

    def begins(self, inputs: Tensor) -> Tensor:
        """Return True where an episode begins, and the state stored here counts: bool (..., 1)."""
        return inputs[..., self.flag : self.flag + 1] > 0

    def state(self, inputs: Tensor, which: int) -> Tensor:
        """Return the state of one of the LSTMs: (..., 2 * size), a view."""
        start = self.flag + 1 + 2 * sum(self.lstm_sizes[:which])
        return inputs[..., start : start + 2 * self.lstm_sizes[which]]


def choose(uniform: Tensor, mask: Tensor) -> Tensor:
    """Return one of the allowed values for each row, all alike: (batch,).

    Args:
        uniform: numbers in [0, 1): (batch,)
        mask: which values are allowed, at least one a row: bool (batch, n)
    """
    rank = (uniform * mask.sum(1)).long().unsqueeze(1)
    return (mask.cumsum(1) <= rank).sum(1)


@dataclass(frozen=True)
class Goals:
    """Where the goals stand in observations, and what a step is worth for a goal.

    Attributes:
        achieved: the indices of the achieved goal in an observation, of the newest frame: (size,)
        desired: the indices of the desired goal in each of the stacked frames: (frames, size)
        reward: achieved goals and desired goals (n, size) -> rewards (n,)
        close: closes what computes them
    """

    achieved: npt.NDArray[np.int64]
    desired: npt.NDArray[np.int64]
    reward: Callable[[npt.NDArray[Any], npt.NDArray[Any]], npt.NDArray[np.float32]]
    close: Callable[[], None]


@dataclass(frozen=True)
class Spaces:
    """The spaces of one environment and how many environments there are.

    ``goals`` are those of a goal environment, where a configuration asks for them.
    """

    observation: gymnasium.Space[Any]
    action: gymnasium.Space[Any]
    n_envs: int
    goals: Goals | None = None


def with_states(spaces: Spaces, *sizes: int) -> Spaces:
    """Return the spaces with room for the states of LSTMs of the given sizes; 0: there is none."""
    if not all(sizes):
        return spaces
    parts = InputParts(spaces.observation)
    inner = cast(gym_spaces.Box, parts.observation_space)
    return replace(spaces, observation=AugmentedBox(inner, parts.n_mask, sizes))
