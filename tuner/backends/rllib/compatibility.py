"""Compatibility of RLlib's algorithms and environments, before an algorithm is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
from rltune.agents.envs.make import make_env
from rltune.agents.errors import UserError
from rltune.agents.spaces import InputParts
from rltune.backends.rllib.config import algorithm_name

# For Discrete actions alone; RLlib's own complaint about others is of something else.
_CHOOSE = ("rllib:DQN",)


def check_fit(
    algorithm: str,
    env: str,
    configs: Sequence[Mapping[str, Any]],
    env_kwargs: Mapping[str, Any],
    *,
    has_data: bool,
) -> None:
    """See `rltune.backends.base.Backend.check_fit`."""
    spaces = fitting_spaces(algorithm, env, env_kwargs)
    for path in {config["input_"] for config in configs if "input_" in config}:
        from rltune.backends.rllib.offline import check_given, read_steps

        check_given(algorithm_name(algorithm), path)
        if has_data:
            read_steps(path, *spaces)


def fitting_spaces(
    algorithm: str, env: str, env_kwargs: Mapping[str, Any]
) -> tuple[gymnasium.Space[Any], gymnasium.Space[Any]]:
    """Return an environment's observation and action space; UserError: not of this algorithm."""
    sample = make_env(env, env_kwargs=env_kwargs)
    observation, action = sample.observation_space, sample.action_space
    sample.close()  # type: ignore[no-untyped-call]
    if InputParts(observation).has_images:
        raise UserError(
            f"{algorithm} sees only vectors here, and {env!r} gives images; "
            "use one of rltune's own agents, such as ppo."
        )
    if algorithm in _CHOOSE and not isinstance(action, gymnasium.spaces.Discrete):
        raise UserError(
            f"{algorithm} chooses among Discrete actions, but those of {env!r} are {action}; "
            "use rllib:PPO, or rllib:SAC for a Box."
        )
    return observation, action
