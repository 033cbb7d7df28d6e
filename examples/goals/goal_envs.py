"""Small goal environments: bits to be set, and a place to be reached."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class BitFlip(gymnasium.Env[Any, Any]):
    """Flip one bit a step until all are as wished: -1 a step, and 0 in the last.

    Args:
        n: bits, and steps of an episode
        terminates: whether the goal ends an episode
    """

    def __init__(self, n: int = 8, terminates: bool = True) -> None:
        bits = spaces.MultiBinary(n)
        self.observation_space = spaces.Dict(
            observation=bits, achieved_goal=bits, desired_goal=bits
        )
        self.action_space = spaces.Discrete(n)
        self.n, self.terminates = n, terminates

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        self.bits, self.wish = self.np_random.integers(0, 2, (2, self.n), np.int8)
        return self._look(), {}

    def _look(self) -> Any:
        bits = self.bits.copy()
        return {"observation": bits, "achieved_goal": bits, "desired_goal": self.wish}

    def step(self, action: Any) -> Any:
        self.bits[action] ^= 1
        self.steps += 1
        reward = float(self.compute_reward(self.bits, self.wish, {}))
        done = reward == 0
        terminated = done and self.terminates
        return (
            self._look(),
            reward,
            terminated,
            self.steps >= self.n and not terminated,
            {"is_success": done},
        )

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return -np.any(achieved_goal != desired_goal, axis=-1).astype(np.float32)


class Reach(gymnasium.Env[Any, Any]):
    """Move a point in a square, at most ``stride`` a step: -1 a step, and 0 at the goal.

    Args:
        length: steps of an episode, which nothing else ends
        near: how close is there
        stride: the length of a step in each direction
        camera: whether a picture is seen, too
    """

    def __init__(
        self, length: int = 30, near: float = 0.05, stride: float = 0.1, camera: bool = False
    ) -> None:
        place = spaces.Box(-1, 1, (2,), np.float64)
        parts: dict[str, Any] = dict.fromkeys(
            ("observation", "achieved_goal", "desired_goal"), place
        )
        if camera:
            parts["camera"] = spaces.Box(0, 255, (36, 36, 1), np.uint8)
        self.observation_space = spaces.Dict(parts)
        self.action_space = spaces.Box(-1, 1, (2,), np.float32)
        self.length, self.near, self.stride, self.camera = length, near, stride, camera

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        self.place, self.wish = self.np_random.uniform(-1, 1, (2, 2))
        return self._look(), {}

    def _look(self) -> Any:
        place = self.place.copy()
        seen = {"observation": place, "achieved_goal": place, "desired_goal": self.wish}
        if self.camera:
            seen["camera"] = np.full((36, 36, 1), self.steps, np.uint8)
        return seen

    def step(self, action: Any) -> Any:
        self.place = np.clip(self.place + self.stride * np.asarray(action), -1, 1)
        self.steps += 1
        reward = float(self.compute_reward(self.place, self.wish, {}))
        info = {"is_success": reward == 0}
        return self._look(), reward, False, self.steps >= self.length, info

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        distance = np.linalg.norm(achieved_goal - desired_goal, axis=-1)
        return -(distance > self.near).astype(np.float32)
