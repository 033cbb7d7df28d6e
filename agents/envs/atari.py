"""Atari preprocessing: the standard steps (Mnih et al., 2015; Machado et al., 2018).

No-ops at the start, sticky actions where the id has them (``-v5``), 4 frames per decision with the
maximum over the last two, 84x84 grey, and FIRE pressed where a game waits for it. Rewards and lives
are left as they are: `Envs` clips the rewards and ends the learner's episode with a life, in
training only, and reports the game's own score.
"""

from __future__ import annotations

import math
from typing import Any, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.utils import seeding
from rltune.agents.errors import UserError

Env = gymnasium.Env[Any, Any]
Frame = npt.NDArray[np.uint8]
NOOP_MAX = 30
FRAME_SKIP = 4
SCREEN_SIZE, MAX_SCREEN_SIZE = 84, 160  # the screen is 160 pixels wide


def preprocess(env: Env, repeat_action_probability: float, screen_size: int = SCREEN_SIZE) -> Env:
    """Return an ALE environment with the standard steps, unstacked.

    Args:
        env: made with ``frameskip=1`` and ``repeat_action_probability=0``
        repeat_action_probability: that of sticky actions, per frame (Machado et al., 2018)
        screen_size: pixels of a side; smaller pictures make a network faster

    Raises:
        UserError: OpenCV is missing, actions are continuous, or there is no such size.
    """
    if not isinstance(screen_size, int) or not 10 <= screen_size <= MAX_SCREEN_SIZE:
        raise UserError(
            f"screen_size is {screen_size!r}, but must be a whole number from 10 to "
            f"{MAX_SCREEN_SIZE}"
        )
    try:
        import cv2
    except ImportError as error:
        raise UserError(
            'Atari games need OpenCV to shrink the screen: pip install "rltune[atari]"'
        ) from error
    if not isinstance(env.action_space, spaces.Discrete):
        raise UserError("Atari games are preprocessed for discrete actions; leave continuous out")
    return _Game(env, repeat_action_probability, screen_size, cv2)


class _Game(gymnasium.Wrapper[Frame, Any, Any, Any]):
    """The standard steps, by calls of the emulator: an observation is a frame, square and grey.

    Bit for bit the same as gymnasium's AtariPreprocessing, with less work: only frames that count
    are read, and only strips of the screen that have changed are shrunk, mostly a tenth to a third.

    A reset with a seed is cheap. ALE loads the ROM again for one, which takes as long as some
    hundred steps; its generator is only needed for sticky actions, which are gymnasium's
    generator's here. So all episodes begin in one and the same state of the console, and the seed
    decides on the no-ops and on the sticky actions.

    A lost life is reported in ``info["life_lost"]``. FIRE is pressed where a new life waits for it,
    after a reset and after a lost life, in training and in evaluation alike: a greedy agent would
    otherwise stand still in front of a ball that never comes. The state before the key counts as
    terminal for the learner, so the extra frames never enter a bootstrap.
    """

    def __init__(self, env: Env, repeat_action_probability: float, size: int, cv2: Any) -> None:
        super().__init__(env)
        self._cv2 = cv2
        self._console = cast(Any, env.unwrapped)
        self._ale: Any = self._console.ale
        # All of them in their order, or those that the game knows.
        self._keys: list[Any] = list(self._console._action_set)
        meanings = self._console.get_action_meanings()
        self._fire = meanings.index("FIRE") if "FIRE" in meanings else None
        self._sticky = repeat_action_probability
        self._begin: Any = None  # the state of the console at the beginning of every episode
        self._last = 0  # the key of the last frame
        self._lives = 0
        height, width = self._ale.getScreenDims()
        self._screen, self._before = np.zeros((2, height, width), np.uint8)
        # Strips that are shrunk to whole rows: of 84 pixels, 5 of the screen's rows to 2. OpenCV's
        # arithmetic is the same for one of them where a strip's rows are exact in binary.
        is_exact = (2 * height / size).is_integer()
        n_strips = math.gcd(height, size) if is_exact else 1
        self._strips = self._screen.reshape(n_strips, -1, width)
        self._shrunk = np.zeros_like(self._strips)  # what `_small` was made of
        self._small = np.zeros((n_strips, size // n_strips, size), np.uint8)
        self._words = [
            strips.reshape(n_strips, -1).view(np.uint64) for strips in (self._strips, self._shrunk)
        ]
        self.observation_space = spaces.Box(0, 255, (size, size), np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Frame, dict[str, Any]]:
        """Begin an episode with up to 30 no-ops."""
        self._restart(seed, options)
        if self._fire is not None and self._frames(self._fire)[1:] != (False, False):
            self._restart(seed, options)
        self._lives = self._ale.lives()
        return self._picture(), self._info()

    def _restart(self, seed: int | None, options: dict[str, Any] | None) -> None:
        self._restore(seed, options)
        for _ in range(self._generator.integers(1, NOOP_MAX + 1)):
            self._act(0)
            if self._ale.game_over():
                self._restore(seed, options)
        self._ale.getScreenGrayscale(self._screen)
        self._before.fill(0)

    def _restore(self, seed: int | None, options: dict[str, Any] | None) -> None:
        if self._begin is None:
            self.env.reset(seed=0)
            self._begin = self._ale.cloneSystemState()
        self._ale.restoreSystemState(self._begin)
        self.env.reset(options=options)
        if seed is not None:
            self._console.np_random = seeding.np_random(seed)[0]
        self._generator: np.random.Generator = self._console.np_random
        self._last = 0

    def step(self, action: Any) -> tuple[Frame, float, bool, bool, dict[str, Any]]:
        """Press a key for four frames, and FIRE for four more where a life was lost."""
        reward, terminated, truncated = self._frames(action)
        lives = self._ale.lives()
        lost = lives < self._lives
        self._lives = lives
        if lost and self._fire is not None and not (terminated or truncated):
            more, terminated, truncated = self._frames(self._fire)
            reward += more
        return self._picture(), reward, terminated, truncated, {**self._info(), "life_lost": lost}

    def _frames(self, action: Any) -> tuple[float, bool, bool]:
        """Press a key for four frames; return reward, terminated and truncated."""
        ale, reward, is_over = self._ale, 0.0, False
        for t in range(FRAME_SKIP):
            reward += self._act(action)
            is_over = ale.game_over()  # or truncated
            if is_over:
                break
            if t == FRAME_SKIP - 2:
                ale.getScreenGrayscale(self._before)
            elif t == FRAME_SKIP - 1:
                ale.getScreenGrayscale(self._screen)
        # The maximum of the last two frames: some games draw things in every other one.
        np.maximum(self._screen, self._before, out=self._screen)
        if not is_over:
            return reward, False, False
        return reward, ale.game_over(with_truncation=False), ale.game_truncated()

    def _act(self, action: Any) -> int:
        if self._sticky and self._generator.random() < self._sticky:
            action = self._last
        self._last = action
        reward: int = self._ale.act(self._keys[action])
        return reward

    def _picture(self) -> Frame:
        now, before = self._words
        changed = (now != before).any(axis=1).nonzero()[0]
        if len(changed):
            strips, small = self._strips[changed], self._small
            self._shrunk[changed] = strips
            small[changed] = self._cv2.resize(
                strips.reshape(-1, strips.shape[-1]),
                (small.shape[2], len(changed) * small.shape[1]),
                interpolation=self._cv2.INTER_AREA,
            ).reshape(-1, *small.shape[1:])
        return self._small.reshape(-1, self._small.shape[2]).copy()

    def _info(self) -> dict[str, Any]:
        return {
            "lives": self._ale.lives(),
            "episode_frame_number": self._ale.getEpisodeFrameNumber(),
            "frame_number": self._ale.getFrameNumber(),
        }
