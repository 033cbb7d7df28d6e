"""An environment: a cart on a rail must come to rest at the flag."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces

LENGTH = 50  # steps of an episode
WIDTH, HEIGHT = 240, 80


class MyEnv(gymnasium.Env):
    """Observes (position, velocity); pushes left, not at all, or right."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012

    def __init__(self, push: float = 0.02, render_mode: str | None = None) -> None:
        self.observation_space = spaces.Box(-2.0, 2.0, (2,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.push = push
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        self.state = np.array([self.np_random.uniform(-1, 1), 0.0], np.float32)
        return self.state.copy(), {}

    def step(self, action):
        position, velocity = self.state
        velocity += self.push * (action - 1)
        position += velocity
        self.state = np.array([position, velocity], np.float32)
        self.steps += 1
        fell_off = bool(abs(position) > 1.5)
        reward = -20.0 if fell_off else -abs(float(position)) - abs(float(velocity))
        # A cart that falls off ends the task (terminated); the clock only stops it (truncated).
        return self.state.copy(), reward, fell_off, self.steps >= LENGTH, {}

    def render(self):
        picture = np.full((HEIGHT, WIDTH, 3), 255, np.uint8)
        picture[60:62] = 0
        self._paint(picture, 0.0, 4, 20, (0, 160, 0))
        self._paint(picture, self.state[0], 16, 44, (200, 60, 40))
        return picture

    def _paint(self, picture, position, width, top, colour):
        middle = int((position + 1.5) / 3 * WIDTH)
        picture[top:60, max(0, middle - width // 2) : middle + width // 2] = colour
