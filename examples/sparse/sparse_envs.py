"""Environments where hardly anything is rewarded."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

ROOM, ROOMS = 11, 3
WIDTH = ROOMS * (ROOM + 1) - 1
MOVES = ((1, 0), (-1, 0), (0, 1), (0, -1))


class KeyRooms(gymnasium.Env[Any, Any]):
    """Three rooms in a row with narrow doorways: the key is in the first, the exit in the last.

    An agent that starts in the middle must fetch the key from the far corner of one room and bring
    it to the far corner of the other; only that is rewarded, with 1. The observation is where it is
    and whether it has the key, each within [-1, 1].
    """

    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Discrete(4)
    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, max_episode_steps: int = 400) -> None:
        self.limit = max_episode_steps

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin in the middle of the middle room, give or take a cell."""
        super().reset(seed=seed)
        self.x = WIDTH // 2 + int(self.np_random.integers(-1, 2))
        self.y = ROOM // 2 + int(self.np_random.integers(-1, 2))
        self.has_key, self.steps = False, 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Move, unless a wall is in the way."""
        dx, dy = MOVES[int(action)]
        x, y = self.x + dx, self.y + dy
        wall = (x + 1) % (ROOM + 1) == 0 and y != ROOM // 2
        if 0 <= x < WIDTH and 0 <= y < ROOM and not wall:
            self.x, self.y = x, y
        self.steps += 1
        self.has_key = self.has_key or (self.x, self.y) == (0, 0)
        done = self.has_key and (self.x, self.y) == (WIDTH - 1, ROOM - 1)
        ended = self.steps >= self.limit and not done
        return self._seen(), float(done), done, ended, {"is_success": done} if done or ended else {}

    def _seen(self) -> Any:
        at = (2 * self.x / (WIDTH - 1) - 1, 2 * self.y / (ROOM - 1) - 1, 2.0 * self.has_key - 1)
        return np.array(at, np.float32)
