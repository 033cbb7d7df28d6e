"""Building an algorithm of Stable-Baselines3's or SBX's, with its environments."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from rltune.agents.config import config_dict, hyperparameters, make_config
from rltune.agents.envs.make import is_atari, make_env
from rltune.agents.envs.masks import Masked
from rltune.agents.envs.wrappers import WRAPPER
from rltune.agents.errors import UserError
from rltune.agents.schedules import is_schedule, value_at
from rltune.agents.spaces import InputParts, Mixed
from rltune.agents.user_code import import_object
from rltune.backends.finite import Finite
from rltune.backends.names import SBX
from rltune.backends.sb3.config import AUTO, POLICY, config_class
from rltune.backends.sb3.internals import refused, silent
from rltune.backends.sb3.libraries import (
    BOX,
    CHOICES,
    algorithm_class,
    algorithm_name,
    arguments_of,
    library_of,
)
from rltune.backends.sb3.words import (
    activation,
    read_arguments,
    read_wrappers,
    resolved,
    spelled,
)
from stable_baselines3.common import noise
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize

Env = gymnasium.Env[Any, Any]
_NOISES = {
    "normal": noise.NormalActionNoise,
    "ornstein-uhlenbeck": noise.OrnsteinUhlenbeckActionNoise,
}
# What observations of a Dict become one vector for here.
_FOR_VECTORS = ("MlpPolicy", "MultiInputPolicy")
_OWN_ATARI = "AtariWrapper"  # SB3's; games are preprocessed here in any case
_NUMBERS = ("ent_coef", "target_entropy")  # that may be a text


def with_wrappers(env: str, env_kwargs: Mapping[str, Any], wrapper: str) -> dict[str, Any]:
    """Return the arguments of an environment with the wrappers that a configuration names."""
    found = dict(env_kwargs)
    for name, arguments in read_wrappers(wrapper, "env_wrapper"):
        if not (name.endswith(_OWN_ATARI) and is_atari(env)):
            found[f"{WRAPPER}{name}"] = True
            found |= {f"{WRAPPER}{name}.{key}": value for key, value in arguments.items()}
    return found


def fitting_spaces(
    agent: str, env: str, env_kwargs: Mapping[str, Any], frame_stack: int
) -> tuple[gymnasium.Space[Any], gymnasium.Space[Any]]:
    """Return the spaces as the algorithm sees them; UserError: they are not for it."""
    sample = make_env(env, env_kwargs=env_kwargs, frame_stack=frame_stack)
    observation, action = sample.observation_space, sample.action_space
    masked = isinstance(sample, Masked) or InputParts(observation).n_mask
    sample.close()  # type: ignore[no-untyped-call]
    name, library = algorithm_name(agent), library_of(agent)
    if masked:
        raise UserError(f"{agent} has no action masks, and {env!r} offers them; use ppo.")
    if isinstance(observation, Mixed):
        raise UserError(
            f"{agent} sees vectors or images here, and {env!r} gives images beside numbers; use "
            "one of rltune's own agents, such as ppo."
        )
    if library.prefix == SBX and InputParts(observation).has_images and name != "DQN":
        raise UserError(f"{agent} sees only vectors, and {env!r} gives images; use sb3:{name}.")
    if name in CHOICES and not isinstance(action, spaces.Discrete):
        raise UserError(
            f"{agent} chooses among Discrete actions, but those of {env!r} are {action}; use "
            f"{library.prefix}PPO, or {library.prefix}SAC for a Box."
        )
    if name in BOX and not isinstance(action, spaces.Box):
        raise UserError(
            f"{agent} is for Box actions, but those of {env!r} are {action}; use "
            f"{library.prefix}PPO or {library.prefix}DQN."
        )
    if isinstance(action, spaces.Box) and not action.is_bounded("both"):
        raise UserError(
            f"{agent} needs finite bounds of the actions, and {env!r} has {action}; wrap it in "
            "gymnasium.wrappers.RescaleAction, or use ppo."
        )
    return observation, action


def training_env(env: str, env_kwargs: Mapping[str, Any], frame_stack: int) -> Env:
    """Return an environment as our own agents see it, which counts its episodes."""
    made: Env = Finite(make_env(env, env_kwargs=env_kwargs, frame_stack=frame_stack))
    shape, dtype = made.observation_space.shape, made.observation_space.dtype
    if dtype != np.float32 and not (dtype == np.uint8 and len(shape or ()) == 3):
        made = gymnasium.wrappers.DtypeObservation(made, np.float32)
    made = _from_zero(made)
    made = Monitor(made)
    if is_atari(env):  # as SB3's AtariWrapper: a lost life and a reward's sign
        from stable_baselines3.common.atari_wrappers import ClipRewardEnv, EpisodicLifeEnv

        made = ClipRewardEnv(EpisodicLifeEnv(made))
    return made


def _from_zero(env: Env) -> Env:
    """Return the environment with choices that count from 0."""
    space = env.action_space
    start = getattr(space, "start", 0)
    if not np.any(start):
        return env
    counted: gymnasium.Space[Any]
    if isinstance(space, spaces.Discrete):
        counted = spaces.Discrete(int(space.n))
    else:
        counted = spaces.MultiDiscrete(space.nvec)  # type: ignore[attr-defined]
    return gymnasium.wrappers.TransformAction(env, lambda action: action + start, counted)


def _venv(env: str, env_kwargs: Mapping[str, Any], config: Any) -> VecEnv:
    made = partial(training_env, env, env_kwargs, config.frame_stack)
    venv: VecEnv = DummyVecEnv([made for _ in range(config.n_envs)])
    images = len(venv.observation_space.shape or ()) == 3
    norm_obs = config.norm_obs and not images
    if config.normalize and (norm_obs or config.norm_reward):
        venv = VecNormalize(
            venv, norm_obs=norm_obs, norm_reward=config.norm_reward, gamma=config.gamma
        )
    return venv


def build(
    agent: str,
    env: str,
    config: Any,
    *,
    env_kwargs: Mapping[str, Any],
    seed: int,
    device: str,
    acts_only: bool = False,
) -> BaseAlgorithm:
    """Return an algorithm that is ready to train.

    Args:
        agent: "sb3:NAME" or "sbx:NAME"
        env: a gymnasium id or ``module:Class``
        config: hyperparameters, of the agent's `config_class`
        env_kwargs: handed to the environment's constructor, wrappers included
        seed: of everything that is drawn
        device: of PyTorch
        acts_only: with a replay buffer of the smallest size

    Raises:
        UserError: what the library refuses.
    """
    if device == "cpu":
        torch.set_num_threads(1)
    made, arguments = algorithm_class(agent), _arguments(agent, config)
    if acts_only and "buffer_size" in arguments:
        arguments["buffer_size"] = config.n_envs
    venv = _venv(env, env_kwargs, config)
    try:
        if getattr(config, "noise_type", "none") != "none" and config.noise_std > 0:
            arguments["action_noise"] = _noise(config, venv.action_space.shape)
        with silent():
            return made(  # type: ignore[no-any-return]
                _policy(config.policy, len(venv.observation_space.shape or ()) == 3),
                venv,
                **arguments,
                policy_kwargs=_policy_kwargs(agent, config),
                seed=seed,
                device=device,
                verbose=0,
            )
    except UserError:
        venv.close()
        raise
    except (AssertionError, ValueError, TypeError) as error:
        venv.close()
        raise refused(error, f"{agent} on {env!r}") from error


def _arguments(agent: str, config: Any) -> dict[str, Any]:
    """Return the arguments of the class that a configuration gives."""
    known = arguments_of(agent)
    found = {name: value for name, value in config_dict(config).items() if name in known}
    found.pop("policy_kwargs", None)
    for name, value in found.items():
        if is_schedule(value):
            found[name] = _scheduled(value)
        elif known[name] is None and not value:
            found[name] = None  # 0 says that it is off
        elif name in _NUMBERS and not str(value).startswith(AUTO):
            found[name] = _number(name, value)
    if getattr(config, "train_freq_unit", "step") == "episode":
        found["train_freq"] = (config.train_freq, "episode")
    if found.get("optimize_memory_usage"):
        found["replay_buffer_kwargs"] = {"handle_timeout_termination": False}
    return found


def _scheduled(value: str) -> Any:
    """Return a schedule as a function of what remains of the training."""
    return lambda remaining: value_at(value, 1 - remaining)


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except ValueError:
        raise UserError(f"{name} is {value!r}, but must be auto or a number") from None


def _noise(config: Any, shape: Any) -> Any:
    return _NOISES[config.noise_type](np.zeros(shape), np.full(shape, config.noise_std))


def _policy(name: str, images: bool) -> Any:
    """Return the policy's name as the class knows it, or the user's own."""
    own = spelled(name)
    if ":" in own:
        found = import_object(own, "policy")
        if not (inspect.isclass(found) and issubclass(found, BasePolicy)):
            raise UserError(f"policy {own!r} is no class of stable_baselines3's BasePolicy")
        return found
    if name == AUTO:
        return "CnnPolicy" if images else "MlpPolicy"
    if (name in _FOR_VECTORS) == images and name in (*_FOR_VECTORS, "CnnPolicy"):
        fits = "CnnPolicy" if images else "MlpPolicy"
        raise UserError(f"policy {name} does not fit these observations; write {fits}, or auto")
    return "MlpPolicy" if name == "MultiInputPolicy" else name


def _policy_kwargs(agent: str, config: Any) -> dict[str, Any]:
    """Return the arguments of the policy: those written as Python, and the hyperparameters."""
    where = "policy_kwargs"
    activations: Any = importlib.import_module(
        "flax.linen" if agent.startswith(SBX) else "torch.nn"
    )
    found: dict[str, Any] = resolved(
        read_arguments(config.policy_kwargs, where), activations, where
    )
    own: dict[str, Any] = {}
    if config.net_arch:
        own["net_arch"] = list(config.net_arch)
    if config.activation_fn != AUTO:
        own["activation_fn"] = activation(config.activation_fn, activations)
    known = hyperparameters(type(config))
    for name in POLICY:
        if name in known and getattr(config, name) != known[name].default:
            own[name] = getattr(config, name)
    if twice := [name for name in own if name in found]:
        raise UserError(f"{twice[0]} is given twice, by itself and in {where}; keep one")
    return {**found, **own}


def callbacks_of(config: Any) -> list[BaseCallback]:
    """Return new callbacks of the user's own."""
    found = []
    for name in filter(None, (part.strip() for part in config.callback.split(","))):
        own = spelled(name)
        made = import_object(own, "callback")
        if not (inspect.isclass(made) and issubclass(made, BaseCallback)):
            raise UserError(f"callback {own!r} is no class of stable_baselines3's BaseCallback")
        try:
            found.append(made())
        except TypeError as error:
            raise refused(error, f"callback {own!r} is made without arguments") from error
    return found


def check_fit(
    agent: str, env: str, configs: Sequence[Mapping[str, Any]], env_kwargs: Mapping[str, Any]
) -> None:
    """See `rltune.backends.base.Backend.check_fit`; it makes environments and networks once."""
    for values in configs:
        config = make_config(config_class(agent), values)
        kwargs = with_wrappers(env, env_kwargs, config.env_wrapper)
        fitting_spaces(agent, env, kwargs, config.frame_stack)
        callbacks_of(config)
        model = build(agent, env, config, env_kwargs=kwargs, seed=0, device="cpu", acts_only=True)
        assert model.env is not None
        model.env.close()
