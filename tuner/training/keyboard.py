"""Demonstrations by a person at the keyboard, in a window that shows the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray
from rltune.agents.demonstrations.episodes import Demonstrations
from rltune.agents.demonstrations.recorder import Recorder, recording
from rltune.agents.envs.make import as_made
from rltune.agents.envs.vector import Envs
from rltune.agents.errors import UserError
from rltune.agents.loop.video import has_display

IDLE = "idle"
# By name without the version: the keys that are down together, and the action. Without an action
# for IDLE, the environment waits for a key.
KEYS: dict[str, dict[str, Any]] = {
    "CartPole": {"left": 0, "right": 1},
    "MountainCar": {"left": 0, IDLE: 1, "right": 2},
    "Acrobot": {"left": 0, IDLE: 1, "right": 2},
    "LunarLander": {IDLE: 0, "left": 1, "up": 2, "right": 3},
    "LunarLanderContinuous": {
        IDLE: [0, 0], "up": [1, 0], "left": [0, -1], "right": [0, 1],
        "up+left": [1, -1], "up+right": [1, 1],
    },
    "MountainCarContinuous": {IDLE: [0], "left": [-1], "right": [1]},
    "Pendulum": {IDLE: [0], "left": [2], "right": [-2]},
    "CarRacing": {
        IDLE: [0, 0, 0], "left": [-1, 0, 0], "right": [1, 0, 0], "up": [0, 1, 0],
        "down": [0, 0, 0.8], "left+up": [-1, 1, 0], "right+up": [1, 1, 0],
        "left+down": [-1, 0, 0.8], "right+down": [1, 0, 0.8],
    },
    "FrozenLake": {"left": 0, "down": 1, "right": 2, "up": 3},
    "FrozenLake8x8": {"left": 0, "down": 1, "right": 2, "up": 3},
    "CliffWalking": {"up": 0, "right": 1, "down": 2, "left": 3},
    "Taxi": {"down": 0, "up": 1, "right": 2, "left": 3, "space": 4, "return": 5},
}  # fmt: skip
LEAST_WIDTH = 400  # pixels; smaller pictures are shown larger


class KeyMap(NamedTuple):
    """Which keys mean which action.

    Attributes:
        actions: by the keys that are down together, as pygame's codes
        idle: the action while none is down; None: the environment waits
        names: of the combinations, for the user
    """

    actions: dict[frozenset[int], Any]
    idle: Any
    names: tuple[str, ...]

    def action(self, down: list[int]) -> Any:
        """Return the action for the keys that are down, in the order in which they were pressed.

        Where they are no combination, the last one counts alone; None: it has none either.
        """
        known = frozenset(key for key in down if any(key in keys for keys in self.actions))
        if known in self.actions:
            return self.actions[known]
        for key in reversed(down):
            if frozenset([key]) in self.actions:
                return self.actions[frozenset([key])]
        return self.idle


def record(
    env: str,
    file: str | os.PathLike[str],
    *,
    episodes: int = 10,
    keys: Mapping[str, Any] | None = None,
    fps: float | None = None,
    seed: int = 0,
    env_kwargs: Mapping[str, Any] | None = None,
) -> Demonstrations:
    """Let a person play in a window, and write the episodes; Escape ends it.

    Args:
        env: gymnasium id or "module:Class"
        file: of the demonstrations
        episodes: after so many it ends
        keys: actions by the names of keys, such as {"left": 0, "right": 1, "idle": 2}; None: those
            that the environment or rltune knows
        fps: steps a second; None: the environment's own
        seed: episode k starts from a seed made of this and k
        env_kwargs: handed to the environment's constructor

    Raises:
        UserError: there is no display, nobody knows the keys, or the environment can't be drawn.
    """
    if not has_display():
        raise UserError("there is no display for a window; recording by keyboard needs one")
    pygame = _pygame()
    found = find_keys(pygame, env, keys, env_kwargs or {})
    envs = Envs(
        env, 1, seed=seed, env_kwargs=env_kwargs, training=False, autoreset=False,
        render_mode="rgb_array",
    )  # fmt: skip
    try:
        _check_actions(env, found, envs.single_action_space)
        view = {"frame_stack": 0, "small_images": False}
        recorder = Recorder(env, env_kwargs or {}, view, envs.single_action_space, "a person")
        with recording(recorder, file, "--to"):
            _Game(pygame, env, envs, recorder, found, fps or envs.steps_per_second).play(episodes)
    finally:
        envs.close()
        pygame.quit()
    if not recorder.demonstrations.episodes:
        raise UserError("no episode has ended, so nothing was written")
    return recorder.demonstrations


def find_keys(
    pygame: ModuleType, env: str, keys: Mapping[str, Any] | None, env_kwargs: Mapping[str, Any]
) -> KeyMap:
    """Return the keys of an environment: the user's, the environment's own, or rltune's.

    Raises:
        UserError: nobody knows them, or there is no such key.
    """
    if keys is None:
        keys = KEYS.get(env.rpartition("-v")[0] or env)
    if keys is None:
        own, _ = as_made(env, env_kwargs=env_kwargs)
        try:
            if not own.has_wrapper_attr("get_keys_to_action"):
                raise UserError(
                    f'which keys are for {env!r}? Name them: --keys "{{left: 0, right: 1, '
                    f'idle: 2}}"; without {IDLE!r} the environment waits for a key.'
                )
            return _of_environment(pygame, own.get_wrapper_attr("get_keys_to_action")())
        finally:
            own.close()  # type: ignore[no-untyped-call]
    actions = {
        frozenset(_code(pygame, name) for name in names.split("+")): action
        for names, action in keys.items()
        if names != IDLE
    }
    if not actions:
        raise UserError("--keys names no key")
    return KeyMap(actions, keys.get(IDLE), tuple(name for name in keys if name != IDLE))


def _of_environment(pygame: ModuleType, theirs: Mapping[Any, Any]) -> KeyMap:
    """Return an environment's own keys, characters or codes; the idle action is 0 for gymnasium."""

    def codes(keys: Any) -> frozenset[int]:
        several = keys if isinstance(keys, (tuple, str)) else (keys,)
        return frozenset(ord(key) if isinstance(key, str) else int(key) for key in several)

    actions = {codes(keys): action for keys, action in theirs.items()}
    idle = actions.pop(frozenset(), 0)
    names = tuple("+".join(sorted(map(pygame.key.name, keys))) for keys in actions)
    return KeyMap(actions, idle, names)


def _code(pygame: ModuleType, name: str) -> int:
    try:
        return int(pygame.key.key_code(name.strip()))
    except ValueError:
        raise UserError(
            f"--keys: there is no key {name!r}; keys are a to z, 0 to 9, left, right, up, down, "
            "space, return, and combinations such as up+left"
        ) from None


def _check_actions(env: str, keys: KeyMap, space: gymnasium.Space[Any]) -> None:
    for action in (*keys.actions.values(), *([] if keys.idle is None else [keys.idle])):
        try:
            fits = space.contains(_in_space(action, space))
        except (TypeError, ValueError):
            fits = False
        if not fits:
            raise UserError(f"--keys: {action} is no action of {env!r}, whose space is {space}")


def _in_space(action: Any, space: gymnasium.Space[Any]) -> NDArray[Any]:
    return np.asarray(action, space.dtype).reshape(space.shape or ())


def _pygame() -> ModuleType:
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        import pygame
    except ImportError:
        raise UserError('a window needs pygame: pip install "rltune[video]"') from None
    pygame.display.init()
    return pygame


class _Game:
    """The window: it shows the environment, and hears the keys."""

    def __init__(
        self,
        pygame: ModuleType,
        env: str,
        envs: Envs,
        recorder: Recorder,
        keys: KeyMap,
        fps: float,
    ) -> None:
        self.pygame, self.env, self.envs, self.recorder = pygame, env, envs, recorder
        self.keys, self.fps = keys, fps
        self.down: list[int] = []
        self.is_open = True
        self.screen: Any = None

    def play(self, episodes: int) -> None:
        clock = self.pygame.time.Clock()
        for number in range(episodes):
            obs = self.envs.reset()
            self.recorder.begin(obs[0])
            gained = 0.0
            while self.is_open:
                self._show(f"{self.env}: episode {number + 1} of {episodes}, return {gained:.6g}")
                clock.tick(self.fps)
                self._listen()
                action = self.keys.action(self.down)
                if action is None or not self.is_open:
                    continue
                space = self.envs.single_action_space
                start = getattr(space, "start", 0)
                step = self.envs.step(_in_space(action, space)[None] - start)
                gained += float(step.reward[0])
                self.recorder.step(
                    step.action[0], step.reward[0], step.next_obs[0],
                    bool(step.terminated[0]), bool(step.truncated[0]),
                )  # fmt: skip
                if step.episodes:
                    break
            if not self.is_open:
                return

    def _listen(self) -> None:
        """Take in which keys are down, and whether the window was closed."""
        pygame = self.pygame
        for event in pygame.event.get():
            if event.type == pygame.QUIT:
                self.is_open = False
            elif event.type == pygame.KEYDOWN:
                if event.key == pygame.K_ESCAPE:
                    self.is_open = False
                self.down.append(event.key)
            elif event.type == pygame.KEYUP and event.key in self.down:
                self.down.remove(event.key)

    def _show(self, title: str) -> None:
        frame = self.envs.render()
        if not isinstance(frame, np.ndarray) or frame.ndim != 3:
            raise UserError(f"environment {self.env!r} can't be drawn: render() gives no picture")
        pygame = self.pygame
        if self.screen is None:
            scale = max(1, -(-LEAST_WIDTH // frame.shape[1]))
            size = (scale * frame.shape[1], scale * frame.shape[0])
            self.screen = pygame.display.set_mode(size, pygame.RESIZABLE)
        picture = pygame.surfarray.make_surface(frame.swapaxes(0, 1))
        self.screen.blit(pygame.transform.scale(picture, self.screen.get_size()), (0, 0))
        pygame.display.set_caption(title)
        pygame.display.flip()


def described(file: str | os.PathLike[str], found: Demonstrations) -> str:
    """Return a line about what was written."""
    returns = ", ".join(f"{episode.episode_return:.6g}" for episode in found.episodes)
    return f"written: {Path(file)} ({len(found.episodes)} episodes, returns {returns})"
