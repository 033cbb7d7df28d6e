"""Acting: a policy asked for actions, with the recurrent state that it carries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from rltune.agents.algorithm import Algorithm
from rltune.agents.config import C
from rltune.agents.spaces import Spaces

Array = NDArray[Any]


class RecurrentActing:
    """Acts with an algorithm and carries its recurrent state, if any, from step to step."""

    def __init__(self, algorithm: Algorithm[Any]) -> None:
        self.algorithm = algorithm
        self._state: Array = np.zeros((1, algorithm.state_size), np.float32)

    def first(self, obs: Array) -> Array:
        """Return the algorithm's inputs for the first observations (n, ...) of episodes."""
        if not self.algorithm.state_size:
            return obs
        self._state = np.zeros((len(obs), self.algorithm.state_size), np.float32)
        return self.inputs(obs, np.ones(len(obs), np.bool_))

    def act(self, inputs: Array, *, explore: bool) -> Array:
        """Return actions (n, ...)."""
        if self.algorithm.state_size:
            self._state = self.algorithm.next_state(inputs)
        return self.algorithm.act(inputs, explore=explore)

    def inputs(self, obs: Array, begins: Array) -> Array:
        """Return the algorithm's inputs for the observations that follow the last `act`.

        Args:
            obs: (n, ...)
            begins: where they are the first ones of episodes: bool (n,)
        """
        if not self.algorithm.state_size:
            return obs
        n = len(obs)
        state = np.where(begins[:, None], 0, self._state)
        return np.concatenate([obs.reshape(n, -1), begins[:, None], state], 1, dtype=np.float32)


def exploring_copy(
    algorithm: Algorithm[C], config: C, spaces: Spaces, seed: int, device: str
) -> Algorithm[C]:
    """Return a copy of the algorithm whose noise is drawn from a seed of its own.

    Args:
        algorithm: the original, which was made from ``config`` for ``spaces``
        config: its configuration
        spaces: those of the environment
        seed: of the noise
        device: of the copy
    """
    copy = type(algorithm)(config, spaces, seed=seed, device=device)
    copy.use_engine(algorithm.engine)
    copy.load_state_dict(algorithm.state_dict())
    copy.restart_exploration()
    copy.generator.manual_seed(seed)
    return copy
