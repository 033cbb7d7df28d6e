"""Every agent that learns in an environment, at its smallest, with one of its own."""

from __future__ import annotations

from typing import Any

OFF = {"learning_starts": 16, "batch_size": 8, "net_arch": [16, 16], "buffer_size": 500}
ON = {"n_envs": 2, "n_steps": 16, "net_arch": [16, 16]}
AGENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "a2c": ("CartPole-v1", ON),
    "acer": ("CartPole-v1", {**ON, "replay_start": 20}),
    "ddpg": ("Pendulum-v1", OFF),
    "dqn": ("CartPole-v1", OFF),
    "ppo": ("CartPole-v1", ON),
    "sac": ("Pendulum-v1", OFF),
    "td3": ("Pendulum-v1", OFF),
    "trpo": ("CartPole-v1", {**ON, "cg_max_steps": 3}),
}
