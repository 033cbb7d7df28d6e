"""Evaluation: whole episodes on environments of their own, and their seeds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rltune.agents.envs.vector import Envs
from rltune.agents.loop.results import Evaluation

Array = NDArray[Any]
# Episodes of an evaluation run side by side, so many at most.
EVALUATION_ENVS = 10


def evaluation_envs(
    env: str,
    episodes: int,
    *,
    seed: int,
    env_kwargs: Mapping[str, Any],
    max_steps: int | None = None,
    **view: Any,
) -> Envs:
    """Return fresh environments for so many episodes.

    Args:
        env: a gymnasium id or ``module:Class``
        episodes: that `run_episodes` shall run
        seed: of the environments
        env_kwargs: handed to the environment's constructor
        max_steps: cut episodes off
        view: the agent's way of looking at observations, such as ``frame_stack``
    """
    return Envs(
        env,
        min(episodes, EVALUATION_ENVS),
        seed=seed,
        env_kwargs=env_kwargs,
        max_episode_steps=max_steps,
        training=False,
        **view,
    )


def run_episodes(
    envs: Envs, act: Callable[[Array, Array], Array], episodes: int, first: int = 0
) -> Evaluation:
    """Run so many episodes and close the environments.

    Args:
        envs: fresh ones; their seed decides about the starts
        act: observations (n_envs, ...), and where they are the first of an episode -> actions
        episodes: how many; the first ones that began, so that short ones are not preferred
        first: the number of the first one

    Raises:
        UserError: the environment answered an action with a reward that is none.
    """
    started = time.perf_counter()
    try:
        done = envs.run(act, range(first, first + episodes))
    finally:
        envs.close()
    return Evaluation(
        returns=[episode.episode_return for episode in done],
        lengths=[episode.length for episode in done],
        seconds=time.perf_counter() - started,
        successes=[episode.success for episode in done if episode.success is not None],
        cut=sum(envs.cuts(episode) for episode in done),
    )


@dataclass
class Seeds:
    """The independent seeds that one seed stands for."""

    algorithm: int
    training: int
    evaluation: int
    cloning: int

    @classmethod
    def of(cls, seed: int) -> Seeds:
        """Return those of ``seed``."""
        state = np.random.SeedSequence(seed).generate_state(4)
        return cls(*(int(word) for word in state))
