"""Stable-Baselines3's words for our configurations, every value said.

What `rltune export --to sb3`, `--to zoo` and the agents' benchmark have in common. Nothing is
dropped: what SB3 (and sb3-contrib, for TRPO) has no equal for is refused while it is switched on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from rltune.agents.config import hyperparameters
from rltune.agents.errors import UserError
from rltune.agents.registry import agent_class
from rltune.agents.reward_signals import SIGNALS, RewardSignalConfig
from rltune.agents.schedules import is_schedule, value_at

if TYPE_CHECKING:
    import gymnasium

AGENTS = ("a2c", "dqn", "ddpg", "ppo", "sac", "td3", "trpo")
CONTRIB = ("trpo",)
_ON_POLICY = ("a2c", "ppo", "trpo")
_ACTIVATIONS = {"tanh": "nn.Tanh", "relu": "nn.ReLU", "elu": "nn.ELU", "silu": "nn.SiLU"}
ATARI_FRAMES = 4
_RMSPROP_ALPHA = 0.99  # the only one that A2C's own switch knows
ADAM_BETAS = (0.9, 0.999)  # torch's

# Hyperparameters with the same name and meaning.
_ROLLOUT = ("learning_rate", "n_steps", "gamma", "gae_lambda", "normalize_advantage")
_REPLAY = ("learning_rate", "gamma", "buffer_size", "learning_starts", "batch_size", "tau")
_NOISE = ("noise_type", "noise_std")
_SAME = {
    "a2c": (*_ROLLOUT, "ent_coef", "vf_coef"),
    "ppo": (*_ROLLOUT, "ent_coef", "vf_coef", "n_epochs", "clip_range"),
    "trpo": (
        *(*_ROLLOUT, "batch_size", "cg_max_steps", "cg_damping", "line_search_shrinking_factor"),
        *("line_search_max_iter", "n_critic_updates", "target_kl", "sub_sampling_factor"),
    ),
    "dqn": (
        *(*_REPLAY, "target_update_interval", "exploration_fraction"),
        *("exploration_initial_eps", "exploration_final_eps"),
    ),
    "ddpg": _REPLAY,
    "td3": (*_REPLAY, "policy_delay", "target_policy_noise", "target_noise_clip"),
    "sac": (*_REPLAY, "target_update_interval"),
}
# Said in other words, or elsewhere than among the arguments; `translate` knows how.
_OTHERWISE = {
    *("n_envs", "normalize_observations", "normalize_rewards", "net_arch", "activation"),
    *("weight_init", "log_std_init", "optimizer", "optimizer_eps", "encoder", "frame_stack"),
    *("vectorization", "use_sde", "sde_sample_freq", "train_freq", "gradient_steps", "n_step"),
    *("adam_beta1", "adam_beta2", "n_learners", "num_actors"),
    *("max_policy_lag", "evaluation_actor"),
}
_OTHERWISE_OF = {
    "a2c": {"max_grad_norm"},
    "ppo": {"max_grad_norm", "batch_size", "n_minibatches", "clip_range_vf", "target_kl"},
    "dqn": {"max_grad_norm"},
    "ddpg": {*_NOISE},
    "td3": {*_NOISE},
    "sac": {"ent_coef", "target_entropy"},
}
# Without a meaning as long as these are off.
_HANGS_ON = {
    **dict.fromkeys(
        ("demonstrations", "cloning_steps", "cloning_batch_size", "cloning_updates"), "cloning"
    ),
    **{
        name: f"{signal}_strength"
        for signal in SIGNALS
        for name in RewardSignalConfig.__dataclass_fields__
        if name.startswith(f"{signal}_") and name != f"{signal}_strength"
    },
    **dict.fromkeys(("reward_signal_updates", "reward_signal_batch_size"), "rnd_strength"),
    "shared_value": "rnd_strength",
    "sequence_length": "lstm_size",
    "burn_in": "lstm_size",
    "goal_selection_strategy": "n_sampled_goal",
    "rms_alpha": "optimizer",  # said with it
    "priority_alpha": "prioritised",
    "priority_beta": "prioritised",
    "noisy_sigma": "noisy",
    "n_atoms": "distributional",
    "v_min": "distributional",
    "v_max": "distributional",
    "n_quantiles": "distributional",
}
# What the values must be that SB3 does without, where that is not our default.
_OFF = {"max_grad_norm": 0.0, "ent_coef": 0.0, "vf_coef": 1.0}


Wrapper = tuple[str, dict[str, Any]]  # its class, as module.Class, and its arguments
_FLATTEN: Wrapper = ("gymnasium.wrappers.FlattenObservation", {})


class Code(str):
    """A piece of Python that stands for itself, such as ``nn.Tanh``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True, kw_only=True)
class EnvFacts:
    """The facts on an environment that decide on the words.

    ``wrappers`` (with their arguments) make of its observations what our agents see of them.
    ``mixed``: images stand beside other numbers, in a Dict; ``boxes`` are the keys of those numbers
    that are a Box. ``flattened``: its observations are no Box by themselves, such as Discrete ones,
    which become one-hot vectors.
    """

    images: bool
    atari: bool
    box_actions: bool
    discrete_actions: bool
    wrappers: tuple[Wrapper, ...] = ()
    masked: bool = False
    mixed: bool = False
    boxes: tuple[str, ...] = ()
    flattened: bool = False


@dataclass(frozen=True, kw_only=True)
class Translation:
    """A configuration in SB3's words.

    Attributes:
        algorithm: name of the class
        module: where it is
        policy: "MlpPolicy", "CnnPolicy" or "MultiInputPolicy"
        n_envs: parallel environments
        normalize: what `VecNormalize` shall normalise; empty: nothing
        arguments: of the class; among them may be schedules (`rltune.agents.schedules`)
        policy_kwargs: of the network; classes of torch are `Code`
        noise: type and standard deviation of what explores; None: there is none
        frame_stack: frames that `VecFrameStack` stacks; 0: none
        wrappers: of each environment
        notes: on what has no equal in SB3's words
    """

    algorithm: str
    module: str
    policy: str
    n_envs: int
    normalize: dict[str, Any]
    arguments: dict[str, Any]
    policy_kwargs: dict[str, Any]
    noise: tuple[str, float] | None = None
    frame_stack: int = 0
    wrappers: tuple[Wrapper, ...] = ()
    notes: tuple[str, ...] = field(default=())


def look_at(
    env: str, env_kwargs: Mapping[str, Any] | None = None, frame_stack: int = 0
) -> EnvFacts:
    """Make the environment once, and return the facts on it.

    Raises:
        UserError: there is no such environment.
    """
    import gymnasium
    from gymnasium import spaces
    from rltune.agents.envs.make import is_atari, make_env
    from rltune.agents.envs.masks import Masked
    from rltune.agents.spaces import InputParts

    seen = make_env(env, env_kwargs=env_kwargs, frame_stack=frame_stack)
    layers: list[Any] = [seen]
    while isinstance(layers[-1], gymnasium.Wrapper):
        layers.append(layers[-1].env)
    parts, actions = InputParts(seen.observation_space), seen.action_space
    seen.close()  # type: ignore[no-untyped-call]
    atari = is_atari(env)
    plain, wrappers = _plain_env(env, env_kwargs or {}, make=not atari)
    images = len(parts.shape) == 3
    mixed = parts.has_images and not images
    boxes: tuple[str, ...] = ()
    flattened = False
    if plain is not None:
        if images and len(plain.shape or ()) != 3:
            raise UserError("Stable-Baselines3 reads images with channels alone, unlike these.")
        if mixed:
            boxes = _numbers_of(plain, frame_stack)
        elif flattened := not isinstance(plain, spaces.Box):
            wrappers.append(_FLATTEN)
        if frame_stack > 1 and not parts.has_images:
            stack = {"stack_size": frame_stack}
            wrappers += [("gymnasium.wrappers.FrameStackObservation", stack), _FLATTEN]
    return EnvFacts(
        images=images,
        atari=atari,
        box_actions=isinstance(actions, spaces.Box),
        discrete_actions=isinstance(actions, spaces.Discrete),
        wrappers=tuple(wrappers),
        masked=any(isinstance(layer, Masked) for layer in layers),
        mixed=mixed,
        boxes=boxes,
        flattened=flattened,
    )


def _plain_env(
    env: str, env_kwargs: Mapping[str, Any], *, make: bool
) -> tuple[gymnasium.Space[Any] | None, list[Wrapper]]:
    """Return the observation space of an environment itself, and the wrappers around it.

    An Atari game isn't made: SB3 has a wrapper that shows it as ours is shown.
    """
    import gymnasium
    from rltune.agents.envs.make import find_spec, is_own, split_limit
    from rltune.agents.envs.wrappers import named, take_wrappers, wrapped
    from rltune.agents.user_code import factory

    kwargs = dict(env_kwargs)
    around = take_wrappers(kwargs)
    ours = [(name.replace(":", "."), arguments) for name, arguments in named(around)]
    ours = [(name if "." in name else f"gymnasium.wrappers.{name}", a) for name, a in ours]
    if not make:
        return None, [("stable_baselines3.common.atari_wrappers.AtariWrapper", {}), *ours]
    limits: list[Wrapper] = []
    if is_own(env):
        own_kwargs, limit = split_limit(env, kwargs)
        plain = wrapped(factory(env)(**own_kwargs), around)
        if limit is not None:
            limits.append(("gymnasium.wrappers.TimeLimit", {"max_episode_steps": limit}))
    else:
        find_spec(env)
        plain = wrapped(gymnasium.make(env, **kwargs), around)
    space = plain.observation_space
    plain.close()  # type: ignore[no-untyped-call]
    return space, [*limits, *ours]


def _numbers_of(space: gymnasium.Space[Any], frame_stack: int) -> tuple[str, ...]:
    """Return the keys of what is a Box of numbers in a Dict with images that SB3 reads, too.

    Raises:
        UserError: it would see something else than our agents do.
    """
    from gymnasium import spaces
    from rltune.agents.images import image_layout

    parts = space.spaces if isinstance(space, spaces.Dict) else {}
    if not parts or any(isinstance(part, spaces.Dict | spaces.Tuple) for part in parts.values()):
        raise UserError(
            "Stable-Baselines3 reads images beside numbers in a flat Dict alone, unlike these."
        )
    boxes = {name: part for name, part in parts.items() if isinstance(part, spaces.Box)}
    pictures = {name for name, box in boxes.items() if image_layout(box.shape, box.dtype)}
    if any(len(boxes[name].shape) != 3 for name in pictures):
        raise UserError("Stable-Baselines3 reads images with channels alone, unlike these.")
    if frame_stack > 1 and len(boxes) < len(parts):
        raise UserError("Stable-Baselines3 stacks frames of a Dict only where all of it is a Box.")
    return tuple(name for name in boxes if name not in pictures)


def translate(agent: str, config: Mapping[str, Any], env: EnvFacts) -> Translation:
    """Return a whole configuration of one of our agents in SB3's words.

    Raises:
        UserError: SB3 has no such agent, or no equal for what is switched on.
    """
    if agent not in AGENTS:
        raise UserError(f"Stable-Baselines3 has no {agent!r}; it has {', '.join(AGENTS)}.")
    _check(agent, config, env)
    stacked = (config["frame_stack"] or ATARI_FRAMES) if env.atari else config["frame_stack"]
    wanted = {
        "norm_obs": bool(config["normalize_observations"])
        and not env.images
        and (not env.mixed or bool(env.boxes)),
        "norm_reward": bool(config["normalize_rewards"]),
    }
    normalize: dict[str, Any] = wanted if any(wanted.values()) else {}
    if env.mixed and wanted["norm_obs"]:
        normalize["norm_obs_keys"] = list(env.boxes)
    noise = None
    if agent in ("ddpg", "td3") and config["noise_std"] > 0:
        noise = (config["noise_type"], config["noise_std"])
    policy = _policy_kwargs(agent, config, env)
    return Translation(
        algorithm=agent.upper(),
        module="sb3_contrib" if agent in CONTRIB else "stable_baselines3",
        policy="MultiInputPolicy" if env.mixed else "CnnPolicy" if env.images else "MlpPolicy",
        n_envs=config["n_envs"],
        normalize=normalize,
        arguments=_arguments(agent, config, env),
        policy_kwargs=policy,
        noise=noise,
        frame_stack=stacked if (env.images or env.mixed) and stacked > 1 else 0,
        wrappers=env.wrappers,
        notes=tuple(_notes(agent, config, env)),
    )


def without_equal(agent: str, config: Mapping[str, Any], env: EnvFacts) -> list[str]:
    """Return the hyperparameters that SB3 has no equal for, as far as they are switched on."""
    known = hyperparameters(agent_class(agent).Config)
    said = {*_SAME[agent], *_OTHERWISE, *_OTHERWISE_OF.get(agent, ()), *_HANGS_ON}
    found = []
    for name in known.keys() - said:
        off = known[name].default if name not in _OFF else _OFF[name]
        if config[name] != off and not (name == "state_dependent_std" and not env.box_actions):
            found.append(name)
    rules = {"orthogonal", "torch"} if agent in _ON_POLICY else {"torch"}
    if config["weight_init"] not in rules:
        found.append("weight_init")
    if config["encoder"] not in ("auto", "nature_cnn" if env.images or env.mixed else "mlp"):
        found.append("encoder")
    if agent == "dqn" and env.images and config["activation"] != "relu":
        found.append("activation")
    return sorted(found)


def _check(agent: str, config: Mapping[str, Any], env: EnvFacts) -> None:
    if missing := without_equal(agent, config, env):
        shown = ", ".join(f"{name} ({_shown(config[name])} here)" for name in missing)
        raise UserError(f"Stable-Baselines3's {agent.upper()} has no equal for {shown}.")
    if env.masked:
        raise UserError("Stable-Baselines3 has no action masks, and this environment offers them.")
    if agent == "sac" and not env.box_actions:
        raise UserError("Stable-Baselines3's SAC is for Box actions alone.")


def _arguments(agent: str, config: Mapping[str, Any], env: EnvFacts) -> dict[str, Any]:
    """Return the arguments of the class, without policy, network and noise."""
    found = {name: config[name] for name in _SAME[agent]}
    if agent in _ON_POLICY or agent == "sac":
        found["use_sde"] = bool(config["use_sde"]) and env.box_actions
        found["sde_sample_freq"] = config["sde_sample_freq"] or -1
    if "max_grad_norm" in _OTHERWISE_OF.get(agent, ()):
        found["max_grad_norm"] = config["max_grad_norm"] or math.inf
    if agent in _ON_POLICY:
        if agent == "ppo":
            found |= _ppo(config)
        elif agent == "a2c":
            found["use_rms_prop"] = config["optimizer"] == "rmsprop"
            found["rms_prop_eps"] = config["optimizer_eps"]
        return found
    every, steps = updates(config["train_freq"], config["gradient_steps"], config["n_envs"])
    found |= {"train_freq": every, "gradient_steps": steps, "n_steps": config["n_step"]}
    if agent == "sac":
        found["ent_coef"] = _number(config["ent_coef"])
        found["target_entropy"] = _number(config["target_entropy"])
    if env.images and config["n_step"] == 1:  # keep each picture once, as ours does
        found |= {
            "optimize_memory_usage": True,
            "replay_buffer_kwargs": {"handle_timeout_termination": False},
        }
    return found


def _ppo(config: Mapping[str, Any]) -> dict[str, Any]:
    rows = config["n_steps"] * config["n_envs"]
    batch_size = config["batch_size"]
    if config["n_minibatches"]:
        batch_size = max(1, rows // config["n_minibatches"])
    return {
        "batch_size": batch_size,
        "clip_range_vf": config["clip_range_vf"] or None,
        "target_kl": config["target_kl"] or None,
    }


def updates(train_freq: int, gradient_steps: int, n_envs: int) -> tuple[int, int]:
    """Return SB3's ``train_freq`` and ``gradient_steps``.

    Ours counts env steps, SB3 steps of all environments at once: so many updates an env step it is
    with both.
    """
    every = math.lcm(train_freq, n_envs)
    steps = gradient_steps if gradient_steps < 0 else gradient_steps * every // train_freq
    return every // n_envs, steps


def _policy_kwargs(agent: str, config: Mapping[str, Any], env: EnvFacts) -> dict[str, Any]:
    from rltune.agents.images import CNN_FEATURES

    # Our agents on images have hidden layers of their own behind them only as actor and critics.
    bare = env.images and agent in (*_ON_POLICY, "dqn")
    found: dict[str, Any] = {
        "net_arch": [] if bare else list(config["net_arch"]),
        "activation_fn": Code(_ACTIVATIONS[config["activation"]]),
    }
    if env.mixed:
        found["features_extractor_kwargs"] = {"cnn_output_dim": CNN_FEATURES}
    if config["optimizer"] == "adam":
        found["optimizer_kwargs"] = {"eps": config["optimizer_eps"], **_betas(config)}
    elif agent != "a2c" or config["rms_alpha"] != _RMSPROP_ALPHA:
        found["optimizer_class"] = Code("th.optim.RMSprop")
        found["optimizer_kwargs"] = {
            "alpha": config["rms_alpha"],
            "eps": config["optimizer_eps"],
        }
    if agent in _ON_POLICY:
        found["ortho_init"] = config["weight_init"] == "orthogonal"
    if agent in _ON_POLICY or agent == "sac":
        found["log_std_init"] = config["log_std_init"]
    return found


def _betas(config: Mapping[str, Any]) -> dict[str, Any]:
    betas = config["adam_beta1"], config["adam_beta2"]
    return {} if betas == ADAM_BETAS else {"betas": betas}


def _notes(agent: str, config: Mapping[str, Any], env: EnvFacts) -> list[str]:
    notes = []
    if env.mixed and config["normalize_observations"]:
        notes.append("SB3 normalises what is a Box; here, what is Discrete was normalised, too")
    learned = agent == "sac" and str(config["ent_coef"]).startswith("auto")
    plain = config["optimizer"] == "adam" and config["optimizer_eps"] == 1e-8
    if learned and not (plain and not _betas(config)):
        notes.append("SB3's temperature is learned by Adam with eps 1e-8, whatever the optimizer")
    if config["vectorization"] in ("native", "envpool"):
        notes.append(f"the environments were stepped by {config['vectorization']}")
    return notes


# ------------------------------------------------------------------------------------------ objects


def arguments(
    translation: Translation, action_space: gymnasium.Space[Any]
) -> tuple[type[Any], dict[str, Any]]:
    """Return SB3's class, and what it is called with beside policy, environments and seed."""
    import importlib

    found = {name: _scheduled(value) for name, value in translation.arguments.items()}
    if translation.noise is not None:
        found["action_noise"] = _noise(*translation.noise, action_space.shape)
    policy = {name: _object(value) for name, value in translation.policy_kwargs.items()}
    made = getattr(importlib.import_module(translation.module), translation.algorithm)
    return made, {**found, "policy_kwargs": policy}


def _scheduled(value: Any) -> Any:
    """Return SB3's form of a schedule: a function of what remains of the training."""
    return (lambda remaining: value_at(value, 1 - remaining)) if is_schedule(value) else value


def _object(value: Any) -> Any:
    import torch

    if isinstance(value, Code):
        return attrgetter(value.removeprefix("th."))(torch)
    return value


def _noise(kind: str, std: float, shape: Any) -> Any:
    import numpy as np
    from stable_baselines3.common import noise

    made = getattr(noise, NOISES[kind])
    return made(np.zeros(shape), np.full(shape, std))


NOISES = {"normal": "NormalActionNoise", "ornstein-uhlenbeck": "OrnsteinUhlenbeckActionNoise"}


def _number(text: Any) -> Any:
    """Return a text as the number that it is; "auto" and "auto_0.1" stay."""
    try:
        return float(text)
    except ValueError:
        return text


def _shown(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 40 else "a file"
