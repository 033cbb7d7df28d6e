"""Checks for NaN and infinity in what the environments gave."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def non_finite(obs: NDArray[Any], reward: NDArray[Any]) -> list[str]:
    """Return those of "an observation" and "a reward" that have NaN or infinity in them."""
    held = {"an observation": obs, "a reward": reward}
    return [name for name, array in held.items() if not np.isfinite(array).all()]
