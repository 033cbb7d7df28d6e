"""Action masks: environments that say at every step which actions are allowed.

They say it in the info of reset and step, ``info["action_mask"]``, or with an ``action_mask`` in a
Dict observation. There is a bit for each action; for MultiDiscrete actions, one for each value of
the first choice, then of the second, and so on (or a tuple with a part for each choice, as
gymnasium's ``sample`` takes it). Agents then see `rltune.agents.spaces.AugmentedBox` vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from rltune.agents.envs.waiting import calling
from rltune.agents.errors import UserError
from rltune.agents.spaces import AugmentedBox

Env = gymnasium.Env[Any, Any]
Array = npt.NDArray[Any]
KEY = "action_mask"
HOW = "offer one with every observation, in the info of reset() and step()"


def mask_to_info(env: Env) -> Env:
    """Return the environment with the mask of its Dict observations in the info instead."""
    space = env.observation_space
    return _MaskToInfo(env) if isinstance(space, spaces.Dict) and KEY in space.spaces else env


def offers_masks(env: Env) -> bool:
    """Tell whether an environment offers masks in its info; one that might is reset for it."""
    if not choice_counts(env.action_space):
        return False
    with calling("reset()"):
        result: object = env.reset(seed=0)
    return isinstance(result, tuple) and len(result) == 2 and KEY in (result[1] or {})


def choice_counts(space: gymnasium.Space[Any]) -> list[int]:
    """Return the number of values of each choice of an action; [] where masks have no meaning."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        return [int(n) for n in space.nvec.reshape(-1)]
    return []


def refuse_masks(name: str, space: gymnasium.Space[Any], info: Mapping[str, Any]) -> None:
    """Raise `UserError` for a mask that nothing would heed."""
    if KEY not in info:
        return
    if choice_counts(space):
        raise UserError(f"environment {name!r} offers an action_mask only sometimes; {HOW}")
    raise UserError(
        f"environment {name!r} offers an action_mask for actions in a {type(space).__name__} "
        "space; masks are for Discrete and MultiDiscrete actions"
    )


class Masked(gymnasium.Wrapper[Array, Any, Any, Any]):
    """Appends the mask that stands in the info to the observation, flattened.

    Args:
        name: of the environment, for errors
        env: gives arrays of a Box
        inner: its observation space as agents see it

    Raises:
        UserError: the actions can't be masked, or in reset and step: no mask or a wrong one.
    """

    def __init__(self, name: str, env: Env, inner: spaces.Box) -> None:
        super().__init__(env)
        self._name = name
        self._counts = choice_counts(env.action_space)
        if not self._counts:
            refuse_masks(name, env.action_space, {KEY: None})
        self._starts = np.cumsum([0, *self._counts[:-1]])
        self._n_bits = sum(self._counts)
        self.observation_space = AugmentedBox(inner, self._n_bits)

    def reset(self, **kwargs: Any) -> tuple[Array, dict[str, Any]]:
        """Begin an episode."""
        obs, info = self.env.reset(**kwargs)
        return self._joined(obs, self._bits(info)), _without_mask(info)

    def step(self, action: Any) -> tuple[Array, Any, bool, bool, dict[str, Any]]:
        """Take a step; where an episode terminates, a mask may be absent or empty."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        bits = np.ones(self._n_bits, np.bool_) if terminated else self._bits(info)
        return self._joined(obs, bits), reward, terminated, truncated, _without_mask(info)

    def _joined(self, obs: Array, bits: Array) -> Array:
        dtype = self.observation_space.dtype
        joined: Array = np.concatenate([np.reshape(obs, -1), bits]).astype(dtype)
        return joined

    def _bits(self, info: Mapping[str, Any]) -> Array:
        if info.get(KEY) is None:
            raise UserError(
                f"environment {self._name!r} offers an action_mask only sometimes; {HOW}"
            )
        mask = info[KEY]
        flat = np.concatenate(mask) if isinstance(mask, tuple) else np.reshape(mask, -1)
        bits: Array = flat != 0
        if len(bits) != self._n_bits:
            raise UserError(
                f"environment {self._name!r}: its action_mask has {len(bits)} entries, but "
                f"{self.env.action_space} needs {self._n_bits}, one for each value of each choice"
            )
        if not np.logical_or.reduceat(bits, self._starts).all():
            raise UserError(
                f"environment {self._name!r}: its action_mask forbids every action; allow at "
                "least one (of each choice)"
            )
        return bits


class _MaskToInfo(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Gives the observation without the mask, and the mask in the info."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        rest = {k: v for k, v in cast(spaces.Dict, env.observation_space).items() if k != KEY}
        self._is_single = list(rest) == ["observation"]
        self.observation_space = rest["observation"] if self._is_single else spaces.Dict(rest)

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**kwargs)
        return self._rest(obs), {**info, KEY: obs[KEY]}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self._rest(obs), reward, terminated, truncated, {**info, KEY: obs[KEY]}

    def _rest(self, obs: Mapping[str, Any]) -> Any:
        if self._is_single:
            return obs["observation"]
        return {key: value for key, value in obs.items() if key != KEY}


def _without_mask(info: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in info.items() if key != KEY}
