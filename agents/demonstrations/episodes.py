"""Recorded episodes: what was seen, done and rewarded, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Demonstration:
    """One recorded episode of T steps.

    Attributes:
        obs: (T + 1, ...), as agents see them before they are normalised; the last one ends it
        actions: (T, ...), as an algorithm gives them: whole numbers count from 0
        rewards: (T,), of the environment
        terminated: whether it ended by itself; else it was cut off
    """

    obs: Array
    actions: Array
    rewards: npt.NDArray[np.float64]
    terminated: bool

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self.rewards)

    @property
    def episode_return(self) -> float:
        """The sum of its rewards."""
        return float(self.rewards.sum())


@dataclass(frozen=True)
class Demonstrations:
    """Episodes of one environment, and where they come from.

    Attributes:
        env: gymnasium id or "module:Class"
        env_kwargs: its arguments
        view: how observations were made of the environment's, such as ``frame_stack``
        actions: the kind and the size of actions; see `describe_actions`
        episodes: the episodes
        source: who acted, in words
    """

    env: str
    env_kwargs: Mapping[str, Any]
    view: Mapping[str, Any]
    actions: Mapping[str, Any]
    episodes: tuple[Demonstration, ...]
    source: str = ""
    steps: int = field(init=False)

    def __post_init__(self) -> None:
        """Count the steps."""
        object.__setattr__(self, "steps", sum(map(len, self.episodes)))


def describe_actions(space: gymnasium.Space[Any]) -> dict[str, Any]:
    """Return a space of actions as plain data: its kind, and how many values or numbers.

    ``choices``: of each choice of a Discrete, MultiDiscrete or MultiBinary action; ``shape``: of a
    Box.
    """
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "choices": [int(space.n)]}
    if isinstance(space, spaces.MultiDiscrete):
        return {"kind": "MultiDiscrete", "choices": [int(n) for n in space.nvec.reshape(-1)]}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "MultiBinary", "choices": [2] * int(np.prod(space.shape))}
    return {"kind": "Box", "shape": list(cast("tuple[int, ...]", space.shape))}
