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
    ratio: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """Return the generalised advantage estimates (Schulman et al. 2016, arXiv:1506.02438).

    With ``ratio``, pi / mu of the actions that an earlier policy mu took, they are corrected as in
    V-trace (Espeholt et al. 2018, arXiv:1802.01561), whose two limits are 1: an advantage times
    ``min(1, ratio)`` is what the value is off by.

    Every array has the shape (n_steps, n_envs). ``next_value`` is the value of the true successor:
    an episode that a time limit cuts short bootstraps from its final observation, one that
    terminates does not bootstrap at all.
    """
    delta = reward + gamma * next_value * ~terminated - value
    decay = (gamma * gae_lambda * ~(terminated | truncated)).astype(np.float32)
    advantage = np.empty_like(delta)
    running = np.zeros_like(delta[0])
    if ratio is not None:
        # What follows counts as far as its actions are the policy's own.
        decay[:-1] *= np.minimum(ratio[1:], 1)
    for t in range(len(delta) - 1, -1, -1):
        running = delta[t] + decay[t] * running
        advantage[t] = running
    return advantage
