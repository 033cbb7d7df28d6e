"""Recording of episodes while they are played, one after the other."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
from rltune.agents.demonstrations.episodes import (
    Array,
    Demonstration,
    Demonstrations,
    describe_actions,
)
from rltune.agents.demonstrations.files import write
from rltune.agents.errors import UserError


@contextmanager
def recording(recorder: Recorder, file: str | os.PathLike[str], flag: str) -> Iterator[Recorder]:
    """Give the recorder, and write the episodes that have ended, also where the block fails.

    Args:
        recorder: of the episodes
        file: what the user named
        flag: where they named it

    Raises:
        UserError: it can't be a file, or can't be written.
    """
    if os.path.isdir(file):
        raise UserError(f"{flag} {file}: it is a folder; name a file, such as demos.parquet")
    try:
        yield recorder
    finally:
        if (found := recorder.demonstrations).episodes:
            write(found, file, flag)


class Recorder:
    """Takes the steps of one environment, and makes demonstrations of the episodes that ended.

    Args:
        env: gymnasium id or "module:Class"
        env_kwargs: its arguments
        view: how observations are made of the environment's
        action_space: of the environment
        source: who acts, in words
    """

    def __init__(
        self,
        env: str,
        env_kwargs: Mapping[str, Any],
        view: Mapping[str, Any],
        action_space: gymnasium.Space[Any],
        source: str,
    ) -> None:
        self._about: dict[str, Any] = {
            "env": env,
            "env_kwargs": dict(env_kwargs),
            "view": dict(view),
        }
        self._space, self._source = action_space, source
        self._episodes: list[Demonstration] = []
        self._obs: list[Array] = []
        self._actions: list[Array] = []
        self._rewards: list[float] = []

    def begin(self, obs: Array) -> None:
        """Begin an episode with its first observation; one that has not ended is forgotten."""
        self._obs, self._actions, self._rewards = [np.array(obs)], [], []

    def step(
        self, action: Array, reward: float, next_obs: Array, terminated: bool, truncated: bool
    ) -> None:
        """Add a step: what was done, and what came of it."""
        self._actions.append(self._in_space(action))
        self._rewards.append(float(reward))
        self._obs.append(np.array(next_obs))
        if terminated or truncated:
            self._episodes.append(
                Demonstration(
                    np.stack(self._obs),
                    np.stack(self._actions),
                    np.array(self._rewards, np.float64),
                    bool(terminated),
                )
            )

    def _in_space(self, action: Array) -> Array:
        """Return the action as the environment takes it: within the bounds of a Box."""
        if isinstance(self._space, gymnasium.spaces.Box):
            clipped = np.clip(action, self._space.low, self._space.high)
            return np.asarray(clipped, np.float32)
        return np.array(action, np.int64)

    @property
    def demonstrations(self) -> Demonstrations:
        """The episodes that have ended."""
        return Demonstrations(
            **self._about,
            actions=describe_actions(self._space),
            episodes=tuple(self._episodes),
            source=self._source,
        )
