"""Single observations, shown as agents see those of an environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray
from rltune.agents.envs.make import as_shown
from rltune.agents.envs.masks import KEY

Array = NDArray[Any]


class View:
    """Shows single observations as `rltune.agents.envs.make` shows those of an environment."""

    def __init__(
        self,
        env: str,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        is_masked: bool,
        view: Mapping[str, Any],
    ) -> None:
        self._given = _Given(observation_space, action_space)
        self._shown = as_shown(env, self._given, is_masked, **view)
        self.is_bare = self._shown is self._given

    def show(self, obs: Any, starts: bool, mask: Any) -> Array:
        """Return it as agents see it; where an episode ``starts``, without those before."""
        self._given.now = obs, ({} if mask is None else {KEY: mask})
        shown: Array = self._shown.reset()[0] if starts else self._shown.step(None)[0]
        return np.asarray(shown)


class _Given(gymnasium.Env[Any, Any]):
    """An environment whose observations are given from outside, for the wrappers around it."""

    def __init__(
        self, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> None:
        self.observation_space = observation_space
        self.action_space = action_space
        self.now: tuple[Any, dict[str, Any]] = None, {}

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return self.now

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, info = self.now
        return obs, 0.0, False, False, info
