"""A helper of the user's own."""

from __future__ import annotations

import numpy as np


def rewards_to_go(reward, ended, gamma):
    """Return the discounted sum of the rewards that follow; all arrays are (n_steps, n_envs)."""
    total = np.zeros_like(reward)
    running = np.zeros_like(reward[0])
    for t in range(len(reward) - 1, -1, -1):
        running = reward[t] + gamma * running * ~ended[t]
        total[t] = running
    return total
