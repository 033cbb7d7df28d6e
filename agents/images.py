"""Image observations: their layout, and observations that hold other numbers beside images.

An image becomes ``(channels, height, width)``. A Dict or Tuple with images in it becomes one row of
numbers (`rltune.agents.spaces.Mixed`), of which the encoder knows where the images lie.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from rltune.agents.spaces import Mixed

Env = gymnasium.Env[Any, Any]
Array = npt.NDArray[Any]
# Below this size the Nature CNN has nothing left to convolve: such images become vectors.
SMALLEST_IMAGE = 36
CNN_FEATURES = 512  # units behind the Nature CNN


def image_layout(frame: tuple[int, ...], dtype: Any, small: bool = False) -> str | None:
    """Return "grey", "channels_last" or "channels_first" for an image, None for anything else.

    With ``small`` any size will do, and bits, of which MinAtar's images are made.
    """
    if not (dtype == np.uint8 or (small and dtype == np.bool_)) or len(frame) not in (2, 3):
        return None
    if len(frame) == 2:
        layout = "grey"
    elif frame[2] < frame[0] or (small and frame[0] == frame[1]):
        layout = "channels_last"  # small square images may have as many channels as rows, or more
    else:
        layout = "channels_first"
    sides = sorted(frame)[-2:]
    return layout if small or min(sides) >= SMALLEST_IMAGE else None


def channels_first(image: Array, layout: str) -> Array:
    """Return an image, or a stack of them, as one: (channels, height, width)."""
    if layout == "channels_last":
        image = np.moveaxis(image, -1, -3)
    return image.reshape(-1, *image.shape[-2:])


class ImageLayout(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Images as ``(channels, height, width)``, stacked frames as channels; all else as ``(d,)``."""

    def __init__(self, env: Env, layout: str | None) -> None:
        super().__init__(env)
        self._layout = layout
        space = cast(spaces.Box, env.observation_space)
        low, high = self.observation(space.low), self.observation(space.high)
        self.observation_space = spaces.Box(low, high, dtype=cast(Any, space.dtype))

    def observation(self, observation: Array) -> Array:
        """Return it as it shall lie."""
        observation = np.asarray(observation)
        if self._layout is None:
            return observation.reshape(-1)
        return channels_first(observation, self._layout)


def with_images(env: Env, frame_stack: int, small: bool) -> Env | None:
    """Return the environment with `Mixed` observations; None: there is no image among its parts.

    Args:
        env: of Dict or Tuple observations
        frame_stack: of how many frames an observation is made; at most 1: of one
        small: as in `image_layout`
    """
    parts = list(_parts(env.observation_space, small))
    if not any(part.layout for part in parts):
        return None
    mixed = _MixedObservation(env, parts)
    if frame_stack <= 1:
        return mixed
    return _Stacked(gymnasium.wrappers.FrameStackObservation(mixed, frame_stack))


class _Part(NamedTuple):
    """A part of an observation: where it stands in it, and how it lies if it is an image."""

    path: tuple[Any, ...]
    space: spaces.Space[Any]
    layout: str | None

    def of(self, observation: Any) -> Any:
        for key in self.path:
            observation = observation[key]
        return observation


def _parts(space: spaces.Space[Any], small: bool, path: tuple[Any, ...] = ()) -> Iterator[_Part]:
    """Yield the parts of a space, those of the spaces within it included."""
    inner: Iterable[tuple[Any, spaces.Space[Any]]]
    if isinstance(space, spaces.Dict):
        inner = space.spaces.items()
    elif isinstance(space, spaces.Tuple):
        inner = enumerate(space.spaces)
    else:
        layout = None
        if isinstance(space, spaces.Box):
            layout = image_layout(space.shape, space.dtype, small)
        yield _Part(path, space, layout)
        return
    for key, part in inner:
        yield from _parts(part, small, (*path, key))


class _MixedObservation(gymnasium.ObservationWrapper[Array, Any, Any]):
    """Brings the parts of an observation into one row: the numbers, then the pixels."""

    def __init__(self, env: Env, parts: list[_Part]) -> None:
        super().__init__(env)
        self._others = [part for part in parts if not part.layout]
        self._images = [(part, part.layout) for part in parts if part.layout]
        flat = [spaces.flatten_space(part.space) for part in self._others]
        boxes = [cast(spaces.Box, space) for space in flat]
        with np.errstate(over="ignore"):  # the bounds of float64 may only fit as infinities
            low = [box.low.astype(np.float32) for box in boxes]
            high = [box.high.astype(np.float32) for box in boxes]
        shapes = [
            channels_first(cast(spaces.Box, part.space).low, layout).shape
            for part, layout in self._images
        ]
        none = np.zeros(0, np.float32)
        self.observation_space = Mixed(
            np.concatenate([none, *low]),
            np.concatenate([none, *high]),
            tuple(cast("tuple[int, int, int]", shape) for shape in shapes),
        )

    def observation(self, observation: Any) -> Array:
        rows: list[Any] = [
            spaces.flatten(part.space, part.of(observation)) for part in self._others
        ]
        for part, layout in self._images:
            image = np.asarray(part.of(observation))
            bits = image.dtype == np.bool_
            rows.append(channels_first(image, layout).reshape(-1) * np.float32(255 if bits else 1))
        row: Array = np.concatenate(rows, dtype=np.float32, casting="unsafe")
        return row


class _Stacked(gymnasium.ObservationWrapper[Array, Any, Any]):
    """Frames of `Mixed` observations in one row: an image's frames become its channels."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        frame = cast(Mixed, cast(Any, env).env.observation_space)
        low, high = cast(spaces.Box, env.observation_space).low, env.observation_space.high  # type: ignore[attr-defined]
        n = frame.n_vector
        ends = np.cumsum([n, *(math.prod(shape) for shape in frame.images)]).tolist()
        self._cuts = [(0, n), *pairwise(ends)]
        stacked = tuple((len(low) * shape[0], *shape[1:]) for shape in frame.images)
        self.observation_space = Mixed(
            low[:, :n].reshape(-1),
            high[:, :n].reshape(-1),
            stacked,
        )

    def observation(self, observation: Array) -> Array:
        frames = np.asarray(observation)
        return np.concatenate([frames[:, start:end].reshape(-1) for start, end in self._cuts])
