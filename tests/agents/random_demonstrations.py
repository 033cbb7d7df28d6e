"""Demonstrations of random numbers, of every kind of action."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces
from rltune.agents.demonstrations.episodes import Demonstration, Demonstrations, describe_actions

SPACES = {
    "Discrete": spaces.Discrete(3, start=5),
    "MultiDiscrete": spaces.MultiDiscrete([2, 4]),
    "MultiBinary": spaces.MultiBinary(3),
    "Box": spaces.Box(-1, 1, (2, 2)),
}


def demonstrations(kind: str = "Discrete", shape: tuple[int, ...] = (4,)) -> Demonstrations:
    rng = np.random.default_rng(0)
    space = SPACES[kind]
    space.seed(0)
    episodes = []
    for length in (1, 7, 3):
        actions = np.stack([space.sample() for _ in range(length)])
        if kind == "Discrete":
            actions = actions - 5
        obs = rng.normal(size=(length + 1, *shape)).astype(np.float32)
        if len(shape) == 3:
            obs = rng.integers(0, 256, (length + 1, *shape)).astype(np.uint8)
        actions = actions.astype(np.float32 if kind == "Box" else np.int64)
        episodes.append(Demonstration(obs, actions, rng.normal(size=length), length == 7))
    return Demonstrations(
        "CartPole-v1", {"sutton_barto_reward": True}, {"frame_stack": 0}, describe_actions(space),
        tuple(episodes), "ppo, greedy",
    )  # fmt: skip
