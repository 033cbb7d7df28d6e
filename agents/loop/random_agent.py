"""Random baseline: an agent that acts uniformly at random."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from rltune.agents.envs.masks import choice_counts
from rltune.agents.loop.evaluation import evaluation_envs, run_episodes
from rltune.agents.loop.results import Evaluation
from rltune.agents.spaces import InputParts

Array = NDArray[Any]


class RandomAgent:
    """Draws every action uniformly, of the allowed ones where there are masks.

    Where a Box has no bounds, as gymnasium's ``sample`` does: of a normal distribution.

    Args:
        env: a gymnasium id or ``module:Class``
        env_kwargs: handed to the environment's constructor
    """

    algorithm_spec = "random actions"
    env_steps = 0

    def __init__(self, env: str, env_kwargs: Mapping[str, Any] | None = None) -> None:
        self.env = env
        self.env_kwargs = dict(env_kwargs or {})

    def evaluate(
        self,
        episodes: int = 10,
        seed: int | None = None,
        max_steps: int | None = None,
        mode: str = "",
    ) -> Evaluation:
        """Run so many episodes; see `rltune.agents.Agent.evaluate`. There is no ``mode``."""
        seed = seed or 0
        envs = evaluation_envs(
            self.env, episodes, seed=seed, env_kwargs=self.env_kwargs, max_steps=max_steps
        )
        space = envs.single_action_space
        n_mask = InputParts(envs.single_observation_space).n_mask
        space.seed(seed)
        rng = np.random.default_rng(seed)
        ends = np.cumsum(choice_counts(space))[:-1]
        # `Envs` counts from 0, whatever the space's start.
        counts = isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
        start: Any = space.start if counts else np.zeros((), space.dtype)  # type: ignore[attr-defined]

        def act(obs: Array, begins: Array) -> Array:
            if not n_mask:
                return np.stack([np.asarray(space.sample()) - start for _ in obs])
            allowed = [np.split(row, ends) for row in obs[:, -n_mask:] > 0]
            drawn = [[rng.choice(np.flatnonzero(bits)) for bits in row] for row in allowed]
            return np.array(drawn)

        return run_episodes(envs, act, episodes)

    def close(self) -> None:
        """Do nothing: environments are made for each evaluation."""
