"""Training environments of RLlib's algorithms, as our own agents see them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from rltune.agents.envs.make import make_env


class NotFiniteError(Exception):
    """The environment gave NaN or infinity."""


class Finite(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Ends a training on observations or rewards of which RLlib's samplers only break.

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


def training_env(config: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """Return an environment as our own agents see it, which counts its episodes."""
    made: gymnasium.Env[Any, Any] = Finite(make_env(config["env"], env_kwargs=config["kwargs"]))
    if made.observation_space.dtype != np.float32:
        made = gymnasium.wrappers.DtypeObservation(made, np.float32)
    return gymnasium.wrappers.RecordEpisodeStatistics(made)
