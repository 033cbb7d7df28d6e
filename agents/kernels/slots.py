"""Where parameters lie in the flat buffer of a learner, as views of such buffers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]


class Slot(NamedTuple):
    """The place of one parameter of several networks of one form, side by side.

    The same slot gives the parameters, their gradients and those of a target network: all have the
    same layout.
    """

    offset: int
    distance: int  # from one network to the next
    networks: int
    shape: tuple[int, ...]

    def of(self, flat: Array) -> Array:
        """Return the view of a flat buffer: (networks, *shape)."""
        size = flat.itemsize
        inner = np.empty(self.shape, flat.dtype).strides
        return as_strided(
            flat[self.offset :], (self.networks, *self.shape), (self.distance * size, *inner)
        )


def slot(parameters: Sequence[Tensor], flat: Tensor) -> Slot:
    """Return the slot of parameters that lie in ``flat`` at equal distances.

    Raises:
        ValueError: they don't, or they have different shapes.
    """
    first, shape = flat.data_ptr(), tuple(parameters[0].shape)
    offsets = [(p.data_ptr() - first) // flat.element_size() for p in parameters]
    distances = {b - a for a, b in pairwise(offsets)}
    inside = all(0 <= at <= flat.numel() - parameters[0].numel() for at in offsets)
    if not inside or len(distances) > 1 or any(tuple(p.shape) != shape for p in parameters):
        raise ValueError("these parameters don't lie side by side in the buffer")
    return Slot(offsets[0], distances.pop() if distances else 0, len(parameters), shape)
