"""Environments whose steps take a known time, or whose observations have a known size."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np

EPISODE = 1_000  # steps
DRAWN = 64  # observations, given in turn: drawing them would take time of its own


class Timed(gymnasium.Env[Any, Any]):
    """An environment whose step takes a time that is given.

    Args:
        seconds: of a step
        computes: whether it burns CPU meanwhile; otherwise it waits, as for a simulator elsewhere
        shape: of an observation; three numbers: uint8 images
        n_actions: that can be chosen from; 0: an action is a vector of six
    """

    def __init__(
        self,
        seconds: float = 0.0,
        computes: bool = False,
        shape: tuple[int, ...] = (17,),
        n_actions: int = 0,
    ) -> None:
        self.seconds, self.computes = seconds, computes
        spaces = gymnasium.spaces
        draw, images = np.random.default_rng(0), len(shape) == 3
        if images:
            self.observation_space = spaces.Box(0, 255, tuple(shape), np.uint8)
            self._obs: Any = draw.integers(0, 256, (DRAWN, *shape), np.uint8)
        else:
            self.observation_space = spaces.Box(-np.inf, np.inf, tuple(shape), np.float32)
            self._obs = draw.normal(size=(DRAWN, *shape)).astype(np.float32)
        box = spaces.Box(-1, 1, (6,), np.float32)
        self.action_space = spaces.Discrete(n_actions) if n_actions else box
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin an episode."""
        super().reset(seed=seed)
        self._steps = 0
        return self._obs[0], {}

    def step(self, action: Any) -> Any:
        """Take the time of a step; nothing depends on the action."""
        if self.computes:
            # CPU time: on a machine with other programs, a step takes longer, as a simulator's.
            end = time.thread_time() + self.seconds
            while time.thread_time() < end:
                pass
        elif self.seconds:
            time.sleep(self.seconds)
        self._steps += 1
        obs = self._obs[self._steps % DRAWN]
        return obs, float(self._steps % 7), False, self._steps == EPISODE, {}
