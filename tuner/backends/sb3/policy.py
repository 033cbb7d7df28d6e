"""Policies of Stable-Baselines3's algorithms, as evaluation and play ask them for actions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm

Array = NDArray[Any]


class SB3Policy:
    """The policy of an algorithm; its inputs are observations (n, ...), normalised already."""

    state_size = 0

    def __init__(self, model: BaseAlgorithm) -> None:
        self._model = model

    def act(self, seen: Array, *, explore: bool = False) -> Array:
        """Return actions (n, ...), as the environment takes them; choices count from 0."""
        actions, _ = self._model.predict(seen, deterministic=not explore)
        return np.asarray(actions)

    def restart_exploration(self) -> None:
        """Begin an episode: what explores here has no memory."""
