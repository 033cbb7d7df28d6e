"""Goal environments: where their goals stand in observations, and their rewards for other goals.

The interface is gymnasium-robotics' ``GoalEnv``: Dict observations with ``observation``,
``achieved_goal`` and ``desired_goal``, and ``compute_reward(achieved_goal, desired_goal, info)``
for rows of goals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from rltune.agents.config import AgentConfig
from rltune.agents.envs.make import as_made
from rltune.agents.envs.masks import mask_to_info
from rltune.agents.envs.waiting import calling
from rltune.agents.errors import UserError
from rltune.agents.images import image_layout
from rltune.agents.spaces import Goals

Array = npt.NDArray[Any]
ACHIEVED, DESIRED = "achieved_goal", "desired_goal"


def goals_of(
    config: AgentConfig, env: str, env_kwargs: Mapping[str, Any] | None = None
) -> Goals | None:
    """Return the goals of an environment, whose rewards an instance computes that never steps.

    Args:
        config: of the agent; None is returned where it does not ask for goals
        env: a gymnasium id, or ``module:Class`` of the user's own
        env_kwargs: handed to the environment's constructor

    Raises:
        UserError: it is no goal environment, or can't compute rewards for rows of goals.
    """
    if not getattr(config, "n_sampled_goal", 0):
        return None
    with calling("constructor"):
        made, _ = as_made(env, env_kwargs=env_kwargs)
    space = mask_to_info(made).observation_space
    achieved, desired, width = _places(env, space, config.reads_small_images())
    reward = _Reward(env, made, cast(spaces.Dict, space))
    frames = np.arange(max(1, config.frame_stack))[:, None] * width
    return Goals(achieved + int(frames[-1, 0]), desired + frames, reward, made.close)


def _places(env: str, space: gymnasium.Space[Any], small: bool) -> tuple[Array, Array, int]:
    """Return the indices of both goals in one frame, and how many numbers that has."""
    parts = space.spaces if isinstance(space, spaces.Dict) else {}
    if missing := [name for name in (ACHIEVED, DESIRED) if name not in parts]:
        raise UserError(
            f"environment {env!r} is no goal environment: n_sampled_goal needs Dict observations "
            f"with {' and '.join(missing)}; use n_sampled_goal 0"
        )
    found, start = {}, 0
    for name, part in parts.items():
        sizes = list(_sizes(part, small))
        if name in (ACHIEVED, DESIRED):
            if not isinstance(part, spaces.Box | spaces.MultiBinary) or 0 in sizes:
                raise UserError(
                    f"environment {env!r}: {name} is {part}, but goals that are replaced must be "
                    "a Box of numbers or MultiBinary; use n_sampled_goal 0"
                )
            found[name] = np.arange(start, start + sum(sizes))
        start += sum(sizes)
    if parts[ACHIEVED].shape != parts[DESIRED].shape:
        raise UserError(
            f"environment {env!r}: achieved_goal has the shape {parts[ACHIEVED].shape}, but "
            f"desired_goal {parts[DESIRED].shape}; give both the same"
        )
    return found[ACHIEVED], found[DESIRED], start


def _sizes(space: gymnasium.Space[Any], small: bool) -> list[int]:
    """Return how many numbers each part of a space has; images have none: they stand behind."""
    if isinstance(space, spaces.Dict):
        return [size for part in space.spaces.values() for size in _sizes(part, small)]
    if isinstance(space, spaces.Tuple):
        return [size for part in space.spaces for size in _sizes(part, small)]
    if isinstance(space, spaces.Box) and image_layout(space.shape, space.dtype, small):
        return [0]
    return [spaces.flatdim(space)]


class _Reward:
    """Computes rewards for rows of goals, as the environment takes them.

    Args:
        env: its name
        made: an instance
        space: of its observations
    """

    def __init__(self, env: str, made: Any, space: spaces.Dict) -> None:
        self._name, self._made = env, made
        self._compute = self._found(made)
        self._forms = [
            (cast("tuple[int, ...]", space[name].shape), space[name].dtype)
            for name in (ACHIEVED, DESIRED)
        ]
        rows = np.zeros((2, spaces.flatdim(space[ACHIEVED])), np.float32)
        try:
            self(rows, rows)
        except UserError:
            raise
        except Exception as error:
            raise UserError(
                f"environment {env!r}: compute_reward() failed for rows of goals: "
                f"{type(error).__name__}: {error}"
            ) from error

    def _found(self, made: Any) -> Callable[..., Any]:
        """Return the outermost ``compute_reward``: wrappers may have one of their own."""
        while not hasattr(made, "compute_reward"):
            if not isinstance(made, gymnasium.Wrapper):
                raise UserError(
                    f"environment {self._name!r} has goals, but no compute_reward(achieved_goal, "
                    "desired_goal, info); n_sampled_goal needs it"
                )
            made = made.env
        return cast("Callable[..., Any]", made.compute_reward)

    def __call__(self, achieved: Array, desired: Array) -> npt.NDArray[np.float32]:
        """Return the rewards (n,) of achieved and desired goals (n, size)."""
        n = len(achieved)
        goals = [
            rows.reshape(n, *shape).astype(dtype)
            for rows, (shape, dtype) in zip((achieved, desired), self._forms, strict=True)
        ]
        reward = np.asarray(self._compute(*goals, [{} for _ in range(n)]), np.float32)
        if reward.shape != (n,):
            raise UserError(
                f"environment {self._name!r}: compute_reward() gave rewards of shape "
                f"{reward.shape} for {n} rows of goals; give one for each row"
            )
        return reward
