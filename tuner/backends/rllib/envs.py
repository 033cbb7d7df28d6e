"""Training environments of RLlib's algorithms, as our own agents see them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from rltune.agents.envs.make import make_env
from rltune.backends.finite import Finite


def training_env(config: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """Return an environment as our own agents see it, which counts its episodes."""
    made: gymnasium.Env[Any, Any] = Finite(make_env(config["env"], env_kwargs=config["kwargs"]))
    if made.observation_space.dtype != np.float32:
        made = gymnasium.wrappers.DtypeObservation(made, np.float32)
    return gymnasium.wrappers.RecordEpisodeStatistics(made)
