"""Environments that give NaN or infinity, found where they do."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class NotFiniteError(Exception):
    """The environment gave NaN or infinity."""


class Finite(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Ends a training on observations or rewards of which others' samplers only break.

    Raises:
        NotFiniteError: from ``reset`` and ``step``.
    """

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        obs, info = self.env.reset(**options)
        self._check("an observation", obs)
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._check("an observation", obs)
        self._check("a reward", reward)
        return obs, reward, terminated, truncated, info

    def _check(self, what: str, value: Any) -> None:
        if not np.isfinite(value).all():
            raise NotFiniteError(f"the environment gave {what} with NaN or infinity in it")
