"""The algorithms' hyperparameters, under Stable-Baselines3's own names and with its defaults."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from rltune.agents.config import MOST_ENVS, WIDEST, hp
from rltune.backends.names import SB3
from rltune.backends.sb3.libraries import algorithm_name, arguments_of
from rltune.backends.sb3.words import ACTIVATIONS

AUTO = "auto"
_POW2: dict[str, Any] = {"scale": "pow2", "minimum": 1}
_KEPT: dict[str, Any] = {"mutable": False}

# Arguments of the classes. The ranges are those of rl-zoo3's samplers; what has none there, none.
_ARGUMENTS: dict[str, dict[str, Any]] = {
    "learning_rate": {
        "low": 1e-5,
        "high": 1e-2,
        "scale": "log",
        "schedule": True,
        "help": "step size of the optimizer",
    },
    "qf_learning_rate": {"scale": "log", "help": "step size of the critics; 0: learning_rate"},
    "n_steps": {
        **_POW2,
        **_KEPT,
        "low": 32,
        "high": 2048,
        "help": "steps of each environment a rollout",
    },
    "buffer_size": {"scale": "log", "minimum": 1, **_KEPT, "help": "transitions that are kept"},
    "learning_starts": {"help": "env steps of random actions before the first update"},
    "batch_size": {**_POW2, "low": 32, "high": 512, "help": "minibatch size"},
    "n_epochs": {"low": 1, "high": 20, "minimum": 1, "help": "passes over each rollout"},
    "tau": {
        "low": 0.001,
        "high": 0.08,
        "scale": "log",
        "maximum": 1,
        "help": "how far an update moves the targets",
    },
    "gamma": {
        "low": 0.9,
        "high": 0.9999,
        "scale": "one_minus_log",
        "maximum": 1,
        "help": "discount factor",
    },
    "gae_lambda": {
        "low": 0.9,
        "high": 0.9999,
        "scale": "one_minus_log",
        "maximum": 1,
        "help": "lambda of the generalised advantage estimate",
    },
    "train_freq": {**_POW2, "help": "steps of all environments between updates"},
    "gradient_steps": {
        "scale": "pow2",
        "minimum": -1,
        "help": "minibatches an update; -1: as many as there were steps",
    },
    "clip_range": {
        "low": 0.1,
        "high": 0.4,
        "schedule": True,
        "help": "clip range of the policy's ratio",
    },
    "clip_range_vf": {"schedule": True, "help": "clip range of the values; 0: no clipping"},
    "normalize_advantage": {"help": "normalise the advantages of each minibatch"},
    "ent_coef": {"low": 1e-8, "high": 0.1, "scale": "log", "help": "weight of the entropy bonus"},
    "vf_coef": {"help": "weight of the value loss"},
    "max_grad_norm": {"low": 0.3, "high": 2.0, "help": "largest global gradient norm"},
    "rms_prop_eps": {**_KEPT, "help": "epsilon of RMSprop"},
    "use_rms_prop": {**_KEPT, "help": "RMSprop instead of Adam"},
    "target_kl": {"scale": "log", "help": "KL divergence that ends an update; 0: none"},
    "cg_max_steps": {"minimum": 1, "help": "iterations of the conjugate gradient"},
    "cg_damping": {"help": "damping of the Hessian's product"},
    "line_search_shrinking_factor": {"maximum": 1, "help": "factor between tries of a step"},
    "line_search_max_iter": {"minimum": 1, "help": "tries of a step"},
    "n_critic_updates": {"minimum": 1, "help": "critic updates for each of the policy"},
    "sub_sampling_factor": {"minimum": 1, "help": "part of the batch for the Hessian, as 1/N"},
    "target_update_interval": {"minimum": 1, "help": "steps between updates of the targets"},
    "exploration_fraction": {"maximum": 1, "help": "part of the training in which epsilon falls"},
    "exploration_initial_eps": {"maximum": 1, "help": "first epsilon"},
    "exploration_final_eps": {"maximum": 1, "help": "last epsilon"},
    "policy_delay": {"minimum": 1, "help": "critic updates for each of the policy"},
    "target_policy_noise": {"help": "noise on the targets' actions"},
    "target_noise_clip": {"help": "clip of that noise"},
    "target_entropy": {"help": "entropy that the temperature is adapted to, or auto"},
    "top_quantiles_to_drop_per_net": {"help": "highest quantiles of each critic that are left out"},
    "use_sde": {**_KEPT, "help": "generalised state-dependent exploration, gSDE (Box actions)"},
    "sde_sample_freq": {"minimum": -1, "help": "steps between gSDE's noises; -1: once a rollout"},
    "use_sde_at_warmup": {"help": "gSDE instead of random actions before learning_starts"},
    "optimize_memory_usage": {
        **_KEPT,
        "help": "keep each observation once; episodes cut by a time limit count as ended then",
    },
}
_FLOATS = ("max_grad_norm", "clip_range_vf", "target_kl", "qf_learning_rate", "learning_rate")
# Learned by default where it is a text.
_TEMPERATURE: dict[str, Any] = {
    "help": "weight of the entropy: auto, auto_0.1 to learn it from 0.1, or a number"
}
_N_STEP: dict[str, Any] = {"minimum": 1, **_KEPT, "help": "steps of a return"}
_TRUST_REGION: dict[str, Any] = {
    "low": 0.001, "high": 0.1, "scale": "log", "help": "largest KL divergence of an update"
}  # fmt: skip
# Arguments of the networks with their defaults, and for which algorithms.
_STOCHASTIC = ("PPO", "A2C", "TRPO")
POLICY: dict[str, tuple[Any, tuple[str, ...], dict[str, Any]]] = {
    "ortho_init": (True, _STOCHASTIC, {"help": "orthogonal initialisation of the weights"}),
    "log_std_init": (
        0.0,
        (*_STOCHASTIC, "SAC", "TQC", "CrossQ"),
        {"minimum": -20, "maximum": 5, "help": "initial log std (Box actions)"},
    ),
    "n_critics": (
        2,
        ("SAC", "TQC", "TD3", "CrossQ"),
        {"minimum": 1, "maximum": 100, "help": "critics"},
    ),
    "n_quantiles": (
        25,
        ("TQC", "QRDQN"),
        {"minimum": 1, "maximum": WIDEST, "help": "quantiles of each critic"},
    ),
}
_OFF_POLICY_LOG_STD = -3.0
_QRDQN_QUANTILES = 200


def _around(agent: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the fields beside the class's arguments: network, noise and environments."""
    name = algorithm_name(agent) if agent.startswith(SB3) else ""  # SBX's networks are others
    fields: dict[str, Any] = {}
    if "action_noise" in arguments:
        fields["noise_type"] = hp(
            "none", choices=("none", "normal", "ornstein-uhlenbeck"), **_KEPT,
            help="noise on the actions",
        )  # fmt: skip
        fields["noise_std"] = hp(0.0, help="standard deviation of that noise")
    if "train_freq" in arguments:
        fields["train_freq_unit"] = hp(
            "step", choices=("step", "episode"), help="what train_freq counts"
        )
    fields["policy"] = hp(
        AUTO, **_KEPT, help="MlpPolicy, CnnPolicy, module:Class of your own; auto: as observed"
    )
    fields["net_arch"] = hp(
        (), minimum=1, maximum=WIDEST, **_KEPT,
        help="hidden layers of each network, as 64,64; empty: the policy's own",
    )  # fmt: skip
    fields["activation_fn"] = hp(
        AUTO, choices=(AUTO, *ACTIVATIONS), **_KEPT, help="activation; auto: the policy's own"
    )
    for field, (default, names, known) in POLICY.items():
        if name in names:
            fields[field] = hp(policy_default(name, field, default), **_KEPT, **known)
    fields["policy_kwargs"] = hp(
        "", **_KEPT, help='other arguments of the policy, as rl-zoo3\'s "dict(share=True)"'
    )
    fields["n_envs"] = hp(
        1, scale="pow2", minimum=1, maximum=MOST_ENVS, **_KEPT, help="parallel environments"
    )
    fields["frame_stack"] = hp(0, **_KEPT, help="observations stacked into one; 0: none")
    fields["normalize"] = hp(False, **_KEPT, help="VecNormalize around the environments")
    fields["norm_obs"] = hp(True, **_KEPT, help="of it: the observations (vectors only)")
    fields["norm_reward"] = hp(True, **_KEPT, help="of it: the rewards")
    fields["env_wrapper"] = hp(
        "", **_KEPT, help="wrappers of each environment: module:Class, module:function(skip=2)"
    )
    fields["callback"] = hp("", **_KEPT, help="callbacks of the training: module:Class")
    return fields


def policy_default(name: str, field: str, default: Any) -> Any:
    """Return the library's default of an argument of an algorithm's networks."""
    if field == "log_std_init" and name not in _STOCHASTIC:
        return _OFF_POLICY_LOG_STD
    return _QRDQN_QUANTILES if (field, name) == ("n_quantiles", "QRDQN") else default


@functools.cache
def config_class(agent: str) -> type[Any]:
    """Return the configuration class of an agent.

    Raises:
        UserError: there is no such algorithm, or its library is not installed.
    """
    name, arguments = algorithm_name(agent), arguments_of(agent)
    fields = {}
    for field, default in arguments.items():
        if field not in _ARGUMENTS:
            continue
        known = _ARGUMENTS[field]
        if field == "ent_coef" and isinstance(default, str):
            known = _TEMPERATURE
        elif field == "n_steps" and "buffer_size" in arguments:
            known = _N_STEP
        elif field == "target_kl" and name == "TRPO":
            known = _TRUST_REGION
        if field in _FLOATS:
            default = float(default or 0)
        fields[field] = hp(default, **known)
    fields |= _around(agent, arguments)
    return dataclasses.make_dataclass(
        f"{name}Config",
        [(field, type(made.default), made) for field, made in fields.items()],
        frozen=True,
        kw_only=True,
    )
