"""Frame storage: observations of a replay memory, of which stacked frames are kept once."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.memory.pixels import MixedRows, packed, unpack
from rltune.agents.spaces import InputParts, Mixed, Spaces

Array = NDArray[Any]


class FrameLayout(NamedTuple):
    """The shape in which a replay memory stores observations."""

    shape: tuple[int, ...]  # of one frame
    dtype: np.dtype[Any]
    n_frames: int  # in one observation
    pixels: slice = slice(0, 0)  # where in a vector they lie
    n_rest: int = 0  # numbers behind an image: mask and states of an `AugmentedBox`

    @classmethod
    def of(cls, spaces: Spaces, n_frames: int | None) -> FrameLayout:
        """Return the layout for a space; ``n_frames`` as in `ReplayMemory`."""
        shape = spaces.observation.shape
        assert shape is not None
        parts = InputParts(spaces.observation)
        inner = parts.observation_space
        if isinstance(inner, Mixed):
            pixels = slice(inner.n_vector, inner.n_vector + inner.n_pixels)
            return cls(shape, np.dtype(np.float32), 1, pixels)
        floats = spaces.observation.dtype == np.float32
        if parts.has_images and inner.dtype == np.uint8 and floats:
            image = cls.of(replace(spaces, observation=inner), n_frames)
            return image._replace(n_rest=shape[0] - math.prod(parts.shape))
        is_bytes = spaces.observation.dtype == np.uint8
        dtype = np.dtype(np.uint8 if is_bytes else np.float32)
        if not is_bytes or len(shape) != 3:
            return cls(shape, dtype, 1)
        if n_frames is None:
            n_frames = 1 if shape[0] in (1, 3) else shape[0]
        if shape[0] % n_frames:
            raise ValueError(f"{shape[0]} channels are no stack of {n_frames} frames")
        return cls((shape[0] // n_frames, *shape[1:]), dtype, n_frames)

    @property
    def frame_bytes(self) -> int:
        """The bytes of what a row stores of one environment."""
        n_pixels: int = self.pixels.stop - self.pixels.start
        rest = 4 * self.n_rest
        return (math.prod(self.shape) - n_pixels) * self.dtype.itemsize + n_pixels + rest

    def memory(self, rows: tuple[int, int]) -> FrameRows | MixedRows | AugmentedRows:
        """Return an empty one for so many rows and environments."""
        if self.pixels.stop:
            return MixedRows(rows, self.shape[0], self.pixels)
        if self.n_rest:
            return AugmentedRows(rows, self)
        return FrameRows(rows, self)


class FrameRows:
    """Observations by row and environment; of a stack of frames, a row keeps the newest alone.

    A stack is put together from its own row's frame and those before. Whether it continues the
    stack of the row before is seen by comparing them, so ends of episodes, lost lives and resets
    need no rule. One that does not is the beginning of new ones: the same frame over and over, as
    resets give it, or else it is kept as a whole beside.
    """

    def __init__(self, rows: tuple[int, int], layout: FrameLayout) -> None:
        self.dtype = layout.dtype
        self.n_rows = rows[0]
        self.n_frames, self.channels = layout.n_frames, layout.shape[0] if layout.shape else 1
        self.frames = np.zeros((*rows, *layout.shape), layout.dtype)
        # How many of the preceding rows' frames a stack has, at most all; 0: a beginning.
        self.depth = np.zeros(rows, np.int8)
        self.odd = np.zeros(rows, np.bool_)  # beginnings that are kept as a whole
        self.whole: dict[tuple[int, int], Array] = {}
        self._before: Array | None = None  # the stacks of the last row but one

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays."""
        return self.frames.nbytes + self.depth.nbytes + self.odd.nbytes

    def put(self, row: int, obs: Array) -> None:
        """Store the observations that follow those of the last ``put``."""
        self._write(row, obs, self._before)
        if self.n_frames > 1:
            self._before = obs.copy()

    def put_successor(self, row: int, obs: Array, next_obs: Array) -> None:
        """Store for now what followed ``obs``; the next ``put`` writes this row again."""
        self._write(row, next_obs, obs)

    def _write(self, row: int, obs: Array, before: Array | None) -> None:
        if self.n_frames == 1:
            self.frames[row] = obs
            return
        c = self.channels
        self.frames[row] = obs[:, -c:]
        for env in np.flatnonzero(self.odd[row]).tolist():
            del self.whole[row, env]
        self.odd[row] = False
        self.depth[row] = 0
        for env in range(len(obs)):
            if before is not None and np.array_equal(obs[env, :-c], before[env, c:]):
                self.depth[row, env] = min(self.depth[row - 1, env] + 1, self.n_frames - 1)
            elif not np.array_equal(obs[env, :-c], obs[env, c:]):
                self.odd[row, env] = True
                self.whole[row, env] = obs[env].astype(self.dtype)

    def get(self, row: Array, env: Array) -> Array:
        """Return a copy of the observations: (len(row), ...)."""
        if self.n_frames == 1:
            copy: Array = self.frames[row, env]
            return copy
        depth = self.depth[row, env].astype(np.int64)
        back = np.minimum(np.arange(self.n_frames - 1, -1, -1), depth[:, None])
        stacks = self.frames[(row[:, None] - back) % self.n_rows, env[:, None]]
        begin = (row - depth) % self.n_rows
        for i in np.flatnonzero(self.odd[begin, env] & (depth < self.n_frames - 1)).tolist():
            whole = self.whole[int(begin[i]), int(env[i])].reshape(stacks.shape[1:])
            stacks[i, : self.n_frames - depth[i]] = whole[depth[i] :]
        stacked: Array = stacks.reshape(len(row), self.n_frames * self.channels, *stacks.shape[3:])
        return stacked

    def state_dict(self, rows: Array) -> dict[str, Any]:
        """Return the given rows as tensors."""
        is_image = self.dtype == np.uint8
        order = {int(row): i for i, row in enumerate(rows)}
        wholes = {key: stack for key, stack in self.whole.items() if key[0] in order}
        return {
            "frames": None if is_image else torch.from_numpy(self.frames[rows]),
            "compressed": packed(self.frames, rows) if is_image else None,
            "depth": torch.from_numpy(self.depth[rows]),
            "whole_index": [(order[row], env) for row, env in wholes],
            "whole": torch.from_numpy(np.array(list(wholes.values()), self.dtype)),
        }

    def load_state_dict(self, rows: Array, state: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave for as many rows."""
        if state["compressed"] is None:
            self.frames[rows] = state["frames"].numpy()
        else:
            unpack(self.frames, rows, state["compressed"])
        self.depth[rows] = state["depth"].numpy()
        self.odd[:] = False
        self.whole = {}
        for (i, env), stack in zip(state["whole_index"], state["whole"].numpy(), strict=True):
            self.odd[rows[i], env] = True
            self.whole[int(rows[i]), int(env)] = stack
        if self.n_frames > 1 and len(rows) > 1:
            envs = np.arange(self.frames.shape[1])
            self._before = self.get(np.full(len(envs), rows[-2]), envs)


class AugmentedRows:
    """Images by row and environment as bytes, and beside them the numbers behind each.

    What is put in and comes out is the float32 vector of an `AugmentedBox`.

    Args:
        rows: how many there are, and of how many environments
        layout: of the images, and how many numbers follow them
    """

    def __init__(self, rows: tuple[int, int], layout: FrameLayout) -> None:
        self.dtype = np.dtype(np.float32)
        self.images = FrameRows(rows, layout)
        self.frames = np.zeros((*rows, layout.n_rest), np.float32)
        self._shape = (layout.n_frames * layout.shape[0], *layout.shape[1:])
        self._size = math.prod(self._shape)

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays."""
        return self.images.nbytes + self.frames.nbytes

    def put(self, row: int, obs: Array) -> None:
        """Store the observations (n_envs, size) that follow those of the last ``put``."""
        self.images.put(row, self._images(obs))
        self.frames[row] = obs[:, self._size :]

    def put_successor(self, row: int, obs: Array, next_obs: Array) -> None:
        """Store for now what followed ``obs``; the next ``put`` writes this row again."""
        self.images.put_successor(row, self._images(obs), self._images(next_obs))
        self.frames[row] = next_obs[:, self._size :]

    def _images(self, obs: Array) -> Array:
        return obs[:, : self._size].astype(np.uint8).reshape(-1, *self._shape)

    def get(self, row: Array, env: Array) -> Array:
        """Return a copy of the observations: (len(row), size)."""
        images = self.images.get(row, env).reshape(len(row), -1)
        return np.concatenate([images, self.frames[row, env]], 1, dtype=np.float32)

    def state_dict(self, rows: Array) -> dict[str, Any]:
        """Return the given rows as tensors."""
        return {
            "images": self.images.state_dict(rows),
            "frames": torch.from_numpy(self.frames[rows]),
        }

    def load_state_dict(self, rows: Array, state: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave for as many rows."""
        self.images.load_state_dict(rows, state["images"])
        self.frames[rows] = state["frames"].numpy()
