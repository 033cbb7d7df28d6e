"""Returns and advantages of rollouts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def generalised_advantages(
    reward: NDArray[np.float32],
    value: NDArray[np.float32],
    next_value: NDArray[np.float32],
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    gamma: float,
    gae_lambda: float,
) -> NDArray[np.float32]:
    """Return the generalised advantage estimates (Schulman et al. 2016, arXiv:1506.02438).

    Every array has the shape (n_steps, n_envs). ``next_value`` is the value of the true successor:
    an episode that a time limit cuts short bootstraps from its final observation, one that
    terminates does not bootstrap at all.
    """
    delta = reward + gamma * next_value * ~terminated - value
    decay = (gamma * gae_lambda * ~(terminated | truncated)).astype(np.float32)
    advantage = np.empty_like(delta)
    running = np.zeros_like(delta[0])
    for t in range(len(delta) - 1, -1, -1):
        running = delta[t] + decay[t] * running
        advantage[t] = running
    return advantage
