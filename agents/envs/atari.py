"""Atari preprocessing: the standard steps (Mnih et al., 2015; Machado et al., 2018).

No-ops at the start, sticky actions where the id has them (``-v5``), 4 frames per decision with the
maximum over the last two, 84x84 grey, and FIRE pressed where a game waits for it. Rewards and lives
are left as they are: `Envs` clips the rewards and ends the learner's episode with a life, in
training only, and reports the game's own score.
"""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.utils import seeding
from rltune.agents.errors import UserError

NOOP_MAX = 30
FRAME_SKIP = 4
SCREEN_SIZE = 84


def preprocess(
    env: gymnasium.Env[Any, Any], repeat_action_probability: float
) -> gymnasium.Env[Any, Any]:
    """Return an ALE environment with the standard steps, unstacked.

    Args:
        env: made with ``frameskip=1`` and ``repeat_action_probability=0``
        repeat_action_probability: that of sticky actions, per frame (Machado et al., 2018)

    Raises:
        UserError: OpenCV is missing.
    """
    env = _Seeded(env, repeat_action_probability)
    try:
        env = gymnasium.wrappers.AtariPreprocessing(
            env, noop_max=NOOP_MAX, frame_skip=FRAME_SKIP, screen_size=SCREEN_SIZE
        )
    except gymnasium.error.DependencyNotInstalled as error:
        raise UserError(
            'Atari games need OpenCV to shrink the screen: pip install "rltune[atari]"'
        ) from error
    return _Lives(env)


class _Seeded(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Makes a reset with a seed cheap, and sticky actions with gymnasium's generator.

    ALE loads the ROM again for a seed, which takes as long as some hundred steps; its generator is
    only needed for sticky actions. Here, all episodes begin in one and the same state of the
    console, and the seed decides on the no-ops and on the sticky actions.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], repeat_action_probability: float) -> None:
        super().__init__(env)
        self._ale: Any = env.unwrapped.ale  # type: ignore[attr-defined]
        self._sticky = repeat_action_probability
        self._console: Any = None
        self._last: Any = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        if self._console is None:
            self.env.reset(seed=0)
            self._console = self._ale.cloneSystemState()
        self._ale.restoreSystemState(self._console)
        obs, info = self.env.reset(options=options)
        if seed is not None:
            self.env.unwrapped.np_random = seeding.np_random(seed)[0]
        self._last = 0
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        if self._sticky and self.env.unwrapped.np_random.random() < self._sticky:
            action = self._last
        self._last = action
        return self.env.step(action)


class _Lives(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Reports a lost life in ``info["life_lost"]`` and presses FIRE where a new life waits for it.

    FIRE is pressed after a reset and after a lost life, in training and in evaluation alike: a
    greedy agent would otherwise stand still in front of a ball that never comes. The state before
    the key counts as terminal for the learner, so the extra frames never enter a bootstrap.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        meanings = env.unwrapped.get_action_meanings()  # type: ignore[attr-defined]
        self._fire = meanings.index("FIRE") if "FIRE" in meanings else None
        self._lives = 0

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**kwargs)
        if self._fire is not None:
            obs, _, terminated, truncated, info = self.env.step(self._fire)
            if terminated or truncated:
                obs, info = self.env.reset(**kwargs)
        self._lives = info.get("lives", 0)
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        lives = info.get("lives", 0)
        lost = lives < self._lives
        self._lives = lives
        if lost and self._fire is not None and not (terminated or truncated):
            obs, more, terminated, truncated, info = self.env.step(self._fire)
            reward = float(reward) + float(more)
        info["life_lost"] = lost
        return obs, reward, terminated, truncated, info
