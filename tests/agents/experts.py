"""The best policies of the toy environments, and demonstrations by them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rltune.agents.demonstrations.files import write
from rltune.agents.demonstrations.recorder import Recorder
from rltune.agents.envs.vector import Envs


def expert(env: str) -> Callable[[Any], Any]:
    """Return the best policy of a toy environment: of one observation, as agents see it."""
    seen = {"sign": 0}

    def remembered(obs: Any) -> Any:
        if obs[0] != 0:
            seen["sign"] = int(obs[0] > 0)
        return seen["sign"]

    return {
        "Which": lambda obs: int(obs[0]),
        "Both": lambda obs: obs.astype(np.int64),
        "Bits": lambda obs: obs.astype(np.int8),
        "Aim": lambda obs: obs - 0.5,
        "Fenced": lambda obs: int(np.flatnonzero(obs[2:])[-1]),
        "Picture": lambda obs: int(obs.mean() > 100),
        "Remember": remembered,
    }[env]


def demonstrate(env: str, file: Path, episodes: int = 30) -> str:
    """Write episodes of the best policy of a toy environment to a file, and return its name."""
    act, name = expert(env), f"toy_envs:{env}"
    envs = Envs(name, 1, seed=7, training=False, autoreset=False)
    recorder = Recorder(name, {}, {}, envs.single_action_space, "an expert")
    for _ in range(episodes):
        obs = envs.reset()
        recorder.begin(obs[0])
        while True:
            action = np.array([act(obs[0])])
            step = envs.step(action)
            recorder.step(
                action[0], step.reward[0], step.next_obs[0], step.terminated[0], step.truncated[0]
            )
            if step.episodes:
                break
            obs = step.obs
    envs.close()
    write(recorder.demonstrations, file, "--record")
    return str(file)
