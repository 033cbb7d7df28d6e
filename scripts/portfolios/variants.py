"""Environments with discrete actions for the suites: gymnasium has few of them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv


class Levels(gymnasium.ActionWrapper):
    """A task with one continuous action, which has so many levels here."""

    env_id = ""
    levels = 5

    def __init__(self) -> None:
        super().__init__(gymnasium.make(self.env_id))
        box = self.env.action_space
        assert isinstance(box, gymnasium.spaces.Box)
        assert box.shape == (1,)
        self._values = np.linspace(box.low, box.high, self.levels).astype(np.float32)
        self.action_space = gymnasium.spaces.Discrete(self.levels)

    def action(self, action: Any) -> Any:
        return self._values[int(action)]


class LevelsPendulum(Levels):
    env_id = "Pendulum-v1"


class LevelsInvertedDoublePendulum(Levels):
    env_id = "InvertedDoublePendulum-v5"
    levels = 9


class LevelsInvertedPendulum(Levels):
    env_id = "InvertedPendulum-v5"


class SwingUp(gymnasium.Wrapper):
    """CartPole that begins with the pole hanging: the reward is its height, 200 steps."""

    def __init__(self) -> None:
        super().__init__(CartPoleEnv())
        low = np.array([-4.8, -np.inf, -1.0, -1.0, -np.inf], np.float32)
        self.observation_space = gymnasium.spaces.Box(low, -low)
        self._steps = 0

    def _seen(self) -> Any:
        x, speed, angle, turn = self.unwrapped.state
        return np.array([x, speed, np.cos(angle), np.sin(angle), turn], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        _, info = self.env.reset(seed=seed)
        self.unwrapped.state = (*self.unwrapped.state[:2], np.pi, 0.0)
        self._steps = 0
        return self._seen(), info

    def step(self, action: Any) -> Any:
        self.unwrapped.steps_beyond_terminated = None
        self.env.step(action)
        self._steps += 1
        x, _, angle, _ = self.unwrapped.state
        out = abs(x) > 2.4
        reward = -10.0 if out else float(np.cos(angle) + 1) / 2
        return self._seen(), reward, bool(out), self._steps >= 200, {}


class Windy(gymnasium.Wrapper):
    """LunarLander with wind."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("LunarLander-v3", enable_wind=True, wind_power=12.0))
