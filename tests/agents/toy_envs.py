"""Small environments whose best policy is known."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv


class Toy(gymnasium.Env[Any, Any]):
    """Says a random vector of 0s and 1s; the reward says how well the action answered it."""

    def __init__(self, n: int = 2, length: int = 8) -> None:
        self.observation_space = spaces.Box(0, 1, (n,), np.float32)
        self.length = length

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self._next(), {}

    def _next(self) -> Any:
        self.said = self.np_random.integers(0, 2, self.observation_space.shape)
        return self.said.astype(np.float32)

    def step(self, action: Any) -> Any:
        reward = float(self.score(action))
        self.steps += 1
        return self._next(), reward, self.steps >= self.length, False, {}

    def score(self, action: Any) -> float:
        raise NotImplementedError


class Which(Toy):
    """Discrete: name the first bit."""

    action_space = spaces.Discrete(2)

    def score(self, action: Any) -> float:
        return float(action == self.said[0])


class Both(Toy):
    """MultiDiscrete: repeat both bits."""

    action_space = spaces.MultiDiscrete([2, 3])

    def score(self, action: Any) -> float:
        return float(np.mean(action == self.said))


class Counts(Which):
    """MultiDiscrete observations: name the first of two numbers, the one of two values."""

    def __init__(self, length: int = 8) -> None:
        super().__init__(length=length)
        self.observation_space = spaces.MultiDiscrete([2, 3])

    def _next(self) -> Any:
        self.said = self.np_random.integers(0, [2, 3])
        return self.said


class Bits(Toy):
    """MultiBinary: repeat both bits."""

    action_space = spaces.MultiBinary(2)

    def score(self, action: Any) -> float:
        return float(np.mean(action == self.said))


class Aim(Toy):
    """Box: hit 0.5 where the bit is 1 and -0.5 where it is 0."""

    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def score(self, action: Any) -> float:
        return 1 - float(np.abs(action - (self.said - 0.5)).mean())


class Bandit(gymnasium.Env[Any, Any]):
    """One state, one step an episode; the last of three actions is worth most."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.ones(1, np.float32), self.worth(action), True, False, {}

    def worth(self, action: Any) -> float:
        return (0.0, 0.7, 1.0)[action]


class BoxBandit(Bandit):
    """The same where 0.5 is worth most."""

    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def worth(self, action: Any) -> float:
        return 1 - abs(float(action[0]) - 0.5)


class Unseen(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Observations of no number at all."""

    observation_space = spaces.Box(0, 1, (0,), np.float32)

    def reset(self, **kwargs: Any) -> Any:
        super().reset(**kwargs)
        return np.zeros(0, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(0, np.float32), *super().step(action)[1:]


def unseen_bandit() -> Any:
    return Unseen(Bandit())


def unseen_box_bandit() -> Any:
    return Unseen(BoxBandit())


class Chain(gymnasium.Env[Any, Any]):
    """Five steps to the right are worth 1; each step to the left 0.02, and it leads back."""

    observation_space = spaces.Box(0, 1, (5,), np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.steps = 0, 0
        return self._look(), {}

    def _look(self) -> Any:
        return np.eye(5, dtype=np.float32)[min(self.place, 4)]

    def step(self, action: Any) -> Any:
        self.steps += 1
        right = bool(action == 1)
        self.place = self.place + 1 if right else 0
        won = self.place == 5
        reward = float(won) if right else 0.02
        return self._look(), reward, won, self.steps >= 12 and not won, {}


class BoxChain(Chain):
    """The same where a positive number leads to the right."""

    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def step(self, action: Any) -> Any:
        return super().step(int(action[0] > 0))


class Forever(gymnasium.Env[Any, Any]):
    """One state, reward 1 a step, for ever: only a time limit ends an episode."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(2)

    def __init__(self, limit: int = 4, terminates: bool = False) -> None:
        self.limit, self.terminates = limit, terminates

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        over = self.steps >= self.limit
        terminated, truncated = over and self.terminates, over and not self.terminates
        return np.ones(1, np.float32), 1.0, terminated, truncated, {}


class BoxForever(Forever):
    """The same with a number as action."""

    action_space = spaces.Box(-1, 1, (1,), np.float32)


class Broken(Forever):
    """Gives a NaN reward after a while."""

    def step(self, action: Any) -> Any:
        obs, _, terminated, truncated, info = super().step(action)
        return obs, float("nan"), terminated, truncated, info


class Picture(gymnasium.Env[Any, Any]):
    """A bright or a dark image; name it."""

    observation_space = spaces.Box(0, 255, (36, 36, 1), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self._next(), {}

    def _next(self) -> Any:
        self.bright = int(self.np_random.integers(2))
        return np.full((36, 36, 1), 200 * self.bright + 20, np.uint8)

    def step(self, action: Any) -> Any:
        reward = float(action == self.bright)
        self.steps += 1
        return self._next(), reward, self.steps >= 8, False, {}


class Fenced(Toy):
    """Take the last allowed action (of each choice); a forbidden one is an error.

    Args:
        where: "info" or "dict": where the masks stand
        counts: values of each choice; one choice is a Discrete space
    """

    def __init__(self, where: str = "info", counts: tuple[int, ...] = (4,), **others: Any) -> None:
        super().__init__(**others)
        self.where, self.counts = where, counts
        is_one = len(counts) == 1
        self.action_space = spaces.Discrete(counts[0]) if is_one else spaces.MultiDiscrete(counts)
        bits = spaces.MultiBinary(sum(counts))
        if where == "dict":
            parts = {"observation": self.observation_space, "action_mask": bits}
            self.observation_space = spaces.Dict(parts)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        gymnasium.Env.reset(self, seed=seed)
        self.steps = 0
        return self._look()

    def _look(self) -> Any:
        said = self.np_random.integers(0, 2, (2,)).astype(np.float32)
        self.masks = [self.np_random.integers(0, 2, n, np.int8) for n in self.counts]
        for mask in self.masks:
            mask[self.np_random.integers(len(mask))] = 1
        bits = np.concatenate(self.masks)
        if self.where == "dict":
            return {"observation": said, "action_mask": bits}, {}
        return said, {"action_mask": bits}

    def step(self, action: Any) -> Any:
        actions = np.reshape(action, -1)
        if not all(mask[a] for mask, a in zip(self.masks, actions, strict=True)):
            raise AssertionError(f"{action} is forbidden by {self.masks}")
        best = [np.flatnonzero(mask)[-1] for mask in self.masks]
        self.steps += 1
        obs, info = self._look()
        return obs, float(np.mean(actions == best)), False, self.steps >= self.length, info


class FencedPicture(Picture):
    """The same image task with a third action, which is sometimes forbidden."""

    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        obs, _ = super().reset(seed=seed)
        return obs, self._info()

    def _info(self) -> Any:
        self.mask = np.array([1, 1, self.np_random.integers(2)], np.int8)
        return {"action_mask": self.mask}

    def step(self, action: Any) -> Any:
        assert self.mask[action]
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, terminated, truncated, self._info()


class Remember(gymnasium.Env[Any, Any]):
    """Shows a sign in the first step; the last of ``length`` actions has to name it."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, length: int = 4) -> None:
        self.length = length

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        self.sign = int(self.np_random.integers(2))
        return np.array([2 * self.sign - 1, 0], np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        over = self.steps == self.length
        reward = float(over and action == self.sign)
        return np.array([0, self.steps == self.length - 1], np.float32), reward, over, False, {}


class Still(CartPoleEnv):
    """CartPole without velocities: two numbers, position and angle, as in a photograph."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        space = self.observation_space
        assert isinstance(space, spaces.Box)
        self.observation_space = spaces.Box(space.low[::2], space.high[::2])

    def reset(self, **kwargs: Any) -> Any:
        obs, info = super().reset(**kwargs)
        self.steps = 0
        return obs[::2], info

    def step(self, action: Any) -> Any:
        obs, reward, terminated, _, info = super().step(action)
        self.steps += 1
        return obs[::2], reward, terminated, self.steps >= 500, info


class Camera(gymnasium.Env[Any, Any]):
    """A picture beside a number: the action is the picture's, turned round by the number.

    Args:
        side: of the picture, in pixels
        box: actions are a number, whose sign is the choice
        masked: the info says that both actions are allowed
    """

    def __init__(self, side: int = 36, box: bool = False, masked: bool = False) -> None:
        self.side, self.masked = side, masked
        self.observation_space = spaces.Dict(
            picture=spaces.Box(0, 255, (side, side, 3), np.uint8),
            turn=spaces.Box(-1, 1, (1,), np.float32),
            kind=spaces.Discrete(2),
        )
        self.action_space = spaces.Box(-1, 1, (1,)) if box else spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self._look(), self._info()

    def _info(self) -> Any:
        return {"action_mask": np.ones(2, np.int8)} if self.masked else {}

    def _look(self) -> Any:
        self.bright, self.turn = (int(bit) for bit in self.np_random.integers(2, size=2))
        return {
            "picture": np.full((self.side, self.side, 3), 200 * self.bright + 20, np.uint8),
            "turn": np.array([2 * self.turn - 1], np.float32),
            "kind": self.steps % 2,
        }

    def step(self, action: Any) -> Any:
        chosen = (
            int(np.ravel(action)[0] > 0)
            if isinstance(self.action_space, spaces.Box)
            else int(action)
        )
        reward = float(chosen == self.bright ^ self.turn)
        self.steps += 1
        return self._look(), reward, self.steps >= 8, False, self._info()


class Signs(gymnasium.Env[Any, Any]):
    """Two signs are answered at every step; the best return is 1, and guessing is worth 0.5.

    Args:
        actions: "box": a number near each sign's; "choices": each sign (MultiDiscrete); "masked":
            the first sign, with a third action that is never right and sometimes forbidden
        picture: the signs are halves of an image, not numbers
        recall: they are shown in the first step alone, and asked in all others
        length: of an episode
    """

    def __init__(
        self,
        actions: str = "choices",
        picture: bool = False,
        recall: bool = False,
        length: int = 4,
    ) -> None:
        self.actions, self.picture, self.recall, self.length = actions, picture, recall, length
        self.action_space = {
            "box": spaces.Box(-1, 1, (2,), np.float32),
            "choices": spaces.MultiDiscrete([2, 3]),
            "masked": spaces.Discrete(3),
        }[actions]
        self.observation_space = (
            spaces.Box(0, 255, (6, 6, 1), np.uint8)
            if picture
            else spaces.Box(-1, 1, (2,), np.float32)
        )

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        self.signs = self.np_random.integers(0, 2, 2)
        return self._look(), self._info()

    def _look(self) -> Any:
        shown = 2 * self.signs - 1 if self.steps == 0 or not self.recall else np.zeros(2)
        if not self.picture:
            return shown.astype(np.float32)
        halves = np.repeat((100 + 100 * shown).astype(np.uint8), 3)
        return np.tile(halves, (6, 1))[..., None]

    def _info(self) -> Any:
        self.mask = np.array([1, 1, self.np_random.integers(2)], np.int8)
        return {"action_mask": self.mask} if self.actions == "masked" else {}

    def step(self, action: Any) -> Any:
        asked = self.steps > 0 or not self.recall
        worth = self._worth(action) / (self.length - self.recall) if asked else 0.0
        self.steps += 1
        if not self.recall:
            self.signs = self.np_random.integers(0, 2, 2)
        return self._look(), worth, self.steps == self.length, False, self._info()

    def _worth(self, action: Any) -> float:
        if self.actions == "box":
            return 1 - float(np.abs(action - (self.signs - 0.5)).mean())
        if self.actions == "choices":
            return float(np.mean(action == self.signs))
        assert self.mask[action]
        return float(action == self.signs[0])
