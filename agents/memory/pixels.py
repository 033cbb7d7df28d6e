"""Pixel storage of replay memories: bytes, compressed in checkpoints."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]
_CHUNK = 2**26  # bytes of images that are compressed at once


def packed(pixels: Array, rows: Array) -> list[Tensor]:
    """Return the bytes of some rows compressed, as tensors that any checkpoint can hold."""
    return [_compress(pixels[part]) for part in _parts(pixels, rows)]


def unpack(pixels: Array, rows: Array, compressed: list[Tensor]) -> None:
    """Write what `packed` gave into as many rows."""
    for part, content in zip(_parts(pixels, rows), compressed, strict=True):
        # Bounded: a few bytes could stand for more than the memory.
        size = pixels[part].nbytes
        raw = zlib.decompressobj().decompress(content.numpy().data, size)
        pixels[part] = np.frombuffer(raw, np.uint8).reshape(len(part), *pixels.shape[1:])


def _compress(content: Array) -> Tensor:
    return torch.frombuffer(bytearray(zlib.compress(content.data, 1)), dtype=torch.uint8)


def _parts(pixels: Array, rows: Array) -> Iterator[Array]:
    """Yield the rows in parts that fit into the memory a second time."""
    length = max(1, _CHUNK // max(1, pixels[0].nbytes))
    for start in range(0, len(rows), length):
        yield rows[start : start + length]


class MixedRows:
    """Observations with images in them (`rltune.agents.spaces.Mixed`), by row and environment.

    Args:
        rows: how many there are, and of how many environments
        size: numbers of one row: an observation, and what an `AugmentedBox` has behind it
        pixels: where in them the pixels lie
    """

    def __init__(self, rows: tuple[int, int], size: int, pixels: slice) -> None:
        self.dtype = np.dtype(np.float32)
        self._where = pixels
        self.pixels = np.zeros((*rows, pixels.stop - pixels.start), np.uint8)
        self.frames = np.zeros((*rows, size - self.pixels.shape[-1]), np.float32)

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays."""
        return self.pixels.nbytes + self.frames.nbytes

    def put(self, row: int, obs: Array) -> None:
        """Store the observations (n_envs, size) of a row."""
        start, stop = self._where.start, self._where.stop
        self.pixels[row] = obs[:, self._where]
        self.frames[row, :, :start] = obs[:, :start]
        self.frames[row, :, start:] = obs[:, stop:]

    def put_successor(self, row: int, _obs: Array, next_obs: Array) -> None:
        """Store for now what follows; the next `put` writes this row again."""
        self.put(row, next_obs)

    def get(self, row: Array, env: Array) -> Array:
        """Return a copy of the observations: (len(row), size)."""
        frames, start = self.frames[row, env], self._where.start
        return np.concatenate(
            [frames[:, :start], self.pixels[row, env], frames[:, start:]], 1, dtype=np.float32
        )

    def state_dict(self, rows: Array) -> dict[str, Any]:
        """Return the given rows as tensors."""
        return {
            "frames": torch.from_numpy(self.frames[rows]),
            "compressed": packed(self.pixels, rows),
        }

    def load_state_dict(self, rows: Array, state: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave for as many rows."""
        self.frames[rows] = state["frames"].numpy()
        unpack(self.pixels, rows, state["compressed"])
