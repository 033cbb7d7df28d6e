"""Building an algorithm of RLlib's, with sampler and learner in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gymnasium
import torch
from rltune.agents.config import config_dict
from rltune.agents.errors import UserError
from rltune.backends.names import RECORDED
from rltune.backends.rllib.config import MODEL, algorithm_name, defaults, quiet
from rltune.backends.rllib.envs import training_env
from rltune.backends.rllib.internals import _learn_in_turn, _learner, _recorder, _silent

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm import Algorithm

ENV_NAME = "rltune"
# With a GPU, RLlib loads their batches in threads of their own.
_ON_CPU = ("rllib:APPO", "rllib:IMPALA")
# Of an algorithm's sampler, not of its training.
_SAMPLER = ("num_envs_per_env_runner", "rollout_fragment_length")


def build_algorithm(
    algorithm: str,
    env: str,
    config: Any,
    *,
    spaces: tuple[gymnasium.Space[Any], gymnasium.Space[Any]],
    env_kwargs: Mapping[str, Any],
    seed: int,
    device: str,
    episodes: list[tuple[float, int]],
) -> Algorithm:
    """Return an algorithm that is ready to train.

    Args:
        algorithm: "rllib:NAME"
        env: a gymnasium id or ``module:Class``
        config: hyperparameters, of the algorithm's `config_class`
        spaces: the environment's, of observations and actions
        env_kwargs: handed to the environment's constructor
        seed: of RLlib
        device: "cpu", or "cuda" for the learner
        episodes: gets the return and the length of each finished episode

    Raises:
        UserError: what RLlib refuses.
    """
    from ray.rllib.utils.error import UnsupportedSpaceException
    from ray.tune.registry import register_env

    register_env(ENV_NAME, training_env)
    if device != "cpu" and algorithm in _ON_CPU:
        raise UserError(f"{algorithm} learns on the CPU here; leave out --device.")
    if device == "cpu":
        torch.set_num_threads(1)
    values, model, sampler, recorded = _sorted_values(config)
    try:
        told = (
            defaults(algorithm_name(algorithm))
            .environment(ENV_NAME, env_config={"env": env, "kwargs": dict(env_kwargs)})
            .env_runners(num_env_runners=0, **sampler)
            .learners(num_learners=0, num_gpus_per_learner=int(device.startswith("cuda")))
            .rl_module(model_config=model)
            .update_from_dict(values)
            .reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=0)
            .callbacks(on_episode_end=_recorder(episodes))
            .debugging(seed=seed, log_level="ERROR")
        )
        if recorded:
            from rltune.backends.rllib.offline import use_recorded

            use_recorded(told, spaces, **recorded)
        with _silent():
            built = told.build_algo()
    except (ValueError, NotImplementedError, UnsupportedSpaceException) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{algorithm} on {env!r}: {reason}") from error
    quiet()  # again: building sets levels of its own
    _learn_in_turn(_learner(built), seed)
    return built


def _sorted_values(config: Any) -> tuple[dict[str, Any], ...]:
    """Return the settings of training, model, sampler and recorded data, as RLlib sorts them."""
    values = config_dict(config)
    if "grad_clip" in values:
        values["grad_clip"] = values["grad_clip"] or None
    if "actor_lr" in values:
        values["lr"] = None  # RLlib insists on it, and its own default for CQL is a number
    others = [
        {name: values.pop(name) for name in names if name in values}
        for names in (MODEL, _SAMPLER, RECORDED)
    ]
    return values, *others
