"""RLlib's algorithms and their hyperparameters, under RLlib's own names."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import logging
import math
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rltune.agents.config import hp
from rltune.agents.errors import UserError
from rltune.backends.names import RECORDED, RLLIB

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

_RATE: dict[str, Any] = {"low": 1e-5, "high": 1e-2, "scale": "log"}
_SIZE: dict[str, Any] = {"scale": "pow2", "minimum": 1}

# What RLlib's documentation says of them, in short; the defaults are RLlib's own.
_KNOWN: dict[str, dict[str, Any]] = {
    "lr": {**_RATE, "help": "step size of the optimizer"},
    "actor_lr": {**_RATE, "help": "step size of the actor"},
    "critic_lr": {**_RATE, "help": "step size of the critics"},
    "value_lr": {**_RATE, "help": "step size of the value network"},
    "alpha_lr": {**_RATE, "help": "step size of the temperature"},
    "world_model_lr": {**_RATE, "help": "step size of the world model"},
    "gamma": {
        "low": 0.9,
        "high": 0.9999,
        "scale": "one_minus_log",
        "maximum": 1,
        "help": "discount factor",
    },
    "lambda_": {
        "low": 0.8,
        "high": 0.999,
        "scale": "one_minus_log",
        "maximum": 1,
        "help": "lambda of the generalised advantage estimate",
    },
    "clip_param": {"low": 0.05, "high": 0.4, "help": "clip range of the policy's ratio"},
    "entropy_coeff": {"low": 1e-8, "high": 0.1, "scale": "log", "help": "weight of the entropy"},
    "vf_loss_coeff": {"low": 0.1, "high": 1.0, "help": "weight of the value loss"},
    "vf_clip_param": {"help": "largest squared error of a value that counts"},
    "use_kl_loss": {"help": "penalise the KL divergence from the old policy"},
    "kl_coeff": {"help": "initial weight of that penalty"},
    "kl_target": {"help": "KL divergence that the weight is adapted to"},
    "grad_clip": {"low": 0.3, "high": 40.0, "scale": "log", "help": "gradient norm; 0: no clip"},
    "minibatch_size": {**_SIZE, "low": 32, "high": 1024, "help": "minibatch size"},
    "num_epochs": {"low": 1, "high": 30, "minimum": 1, "help": "passes over each batch"},
    "train_batch_size_per_learner": {
        **_SIZE,
        "low": 32,
        "high": 4096,
        "help": "PPO, APPO, IMPALA: env steps between updates, all environments together; else: "
        "minibatch size",
    },
    "num_envs_per_env_runner": {"minimum": 1, "help": "parallel environments"},
    "rollout_fragment_length": {
        **_SIZE,
        "low": 16,
        "high": 128,
        "help": "steps of each environment between two looks at the batch",
    },
    "vtrace_clip_rho_threshold": {"help": "clip of V-trace's weights of the values"},
    "vtrace_clip_pg_rho_threshold": {"help": "clip of V-trace's weights of the policy gradient"},
    "target_worker_clipping": {"help": "largest ratio of the sampling to the target policy"},
    "circular_buffer_num_batches": {"minimum": 1, "help": "batches that wait for the learner"},
    "circular_buffer_iterations_per_batch": {
        "low": 1,
        "high": 8,
        "minimum": 1,
        "help": "updates with each batch",
    },
    "target_network_update_freq": {
        "help": "env steps between updates of the targets; APPO: circular buffers of trained steps"
    },
    "tau": {
        "low": 0.001,
        "high": 1.0,
        "scale": "log",
        "maximum": 1,
        "help": "how far an update moves the targets",
    },
    "n_step": {"minimum": 1, "help": "steps of a return"},
    "num_steps_sampled_before_learning_starts": {"help": "env steps before the first update"},
    "double_q": {"help": "double Q-learning"},
    "dueling": {"help": "apart: the value and the advantages"},
    "num_atoms": {"minimum": 1, "help": "atoms of a distributional Q-function; 1: plain"},
    "v_min": {"minimum": -math.inf, "help": "lowest atom"},
    "v_max": {"minimum": -math.inf, "help": "highest atom"},
    "adam_epsilon": {"help": "epsilon in Adam's denominator"},
    "initial_alpha": {"help": "first temperature"},
    "n_quantiles": {"low": 10, "high": 50, "minimum": 1, "help": "quantiles of each critic"},
    "n_critics": {"low": 2, "high": 5, "minimum": 1, "help": "critics"},
    "top_quantiles_to_drop_per_net": {
        "low": 0,
        "high": 5,
        "help": "highest quantiles of each critic that are left out",
    },
    "model_size": {
        "choices": ("nano", "micro", "mini", "XXS", "XS", "S", "M", "L", "XL"),
        "help": "size of all networks; nano to mini are RLlib's, the others the paper's",
    },
    "training_ratio": {
        "low": 32,
        "high": 1024,
        "scale": "log",
        "minimum": 1,
        "help": "replayed steps for each env step",
    },
    "batch_size_B": {**_SIZE, "low": 4, "high": 32, "help": "sequences in a batch"},
    "batch_length_T": {**_SIZE, "low": 16, "high": 64, "help": "steps of a sequence"},
    "horizon_H": {"low": 5, "high": 30, "minimum": 1, "help": "steps of a dream"},
    "gae_lambda": {
        "low": 0.8,
        "high": 0.999,
        "scale": "one_minus_log",
        "maximum": 1,
        "help": "lambda of the dreamed returns",
    },
    "entropy_scale": {"low": 1e-5, "high": 1e-2, "scale": "log", "help": "weight of the entropy"},
    "return_normalization_decay": {"maximum": 1, "help": "decay of the returns' running scale"},
    "world_model_grad_clip_by_global_norm": {"help": "gradient norm of the world model"},
    "actor_grad_clip_by_global_norm": {"help": "gradient norm of the actor"},
    "critic_grad_clip_by_global_norm": {"help": "gradient norm of the critic"},
    "beta": {
        "low": 0.05,
        "high": 1.0,
        "help": "MARWIL: weight of the advantages, 0 to 1; IQL: temperature of the advantages",
    },
    "vf_coeff": {"low": 0.1, "high": 1.0, "help": "weight of the value loss"},
    "bc_logstd_coeff": {"help": "weight of the actions' spread"},
    "bc_iters": {"help": "updates that only imitate, at the beginning"},
    "min_q_weight": {"low": 0.5, "high": 10.0, "scale": "log", "help": "how conservative it is"},
    "temperature": {"help": "of the log-sum-exp of the Q-values"},
    "num_actions": {"minimum": 1, "help": "sampled actions that the Q-values are compared with"},
    "lagrangian": {"help": "adapt the weight of conservatism"},
    "lagrangian_thresh": {"help": "what it is adapted to"},
    "expectile": {"low": 0.5, "high": 0.95, "maximum": 1, "help": "of the value's regression"},
    "twin_q": {"help": "two critics"},
    "input_": {"help": "folder or file of the recorded data (Parquet)"},
    "actions_in_input_normalized": {"help": "whether its actions go from -1 to 1, as RLlib's own"},
    "fcnet_hiddens": {"minimum": 1, "help": "hidden layers, as 64,64"},
    "fcnet_activation": {"choices": ("tanh", "relu", "swish"), "help": "activation"},
    "vf_share_layers": {"help": "one encoder for policy and value"},
}
_BATCH = ("gamma", "grad_clip", "train_batch_size_per_learner")
_ALL = (*_BATCH, "num_envs_per_env_runner")
_TARGETS = ("tau", "target_network_update_freq")
_REPLAY = (*_TARGETS, "n_step", "num_steps_sampled_before_learning_starts")
_TEMPERED = ("actor_lr", "critic_lr", "alpha_lr", "initial_alpha")
_KL = ("use_kl_loss", "kl_coeff", "kl_target")
_NET = ("fcnet_hiddens", "fcnet_activation")
MODEL = (*_NET, "vf_share_layers")
_IMPALA = (
    *("lr", "entropy_coeff", "vf_loss_coeff", "rollout_fragment_length"),
    *("vtrace_clip_rho_threshold", "vtrace_clip_pg_rho_threshold"),
    *_ALL,
    *MODEL,
)
_ONLINE: dict[str, tuple[str, ...]] = {
    "PPO": (
        *("lr", "lambda_", "clip_param", "entropy_coeff", "vf_loss_coeff", "vf_clip_param"),
        *("minibatch_size", "num_epochs", *_KL, *_ALL, *MODEL),
    ),
    "APPO": (
        *("clip_param", "target_worker_clipping", "circular_buffer_num_batches"),
        *("circular_buffer_iterations_per_batch", *_KL, *_TARGETS, *_IMPALA),
    ),
    "IMPALA": _IMPALA,
    "DQN": (
        *("lr", "adam_epsilon", "double_q", "dueling", "num_atoms", "v_min", "v_max"),
        *(*_ALL, *_REPLAY, *_NET),
    ),
    "SAC": (*_TEMPERED, *_ALL, *_REPLAY, *_NET),
    "TQC": (
        *("n_quantiles", "n_critics", "top_quantiles_to_drop_per_net"),
        *(*_TEMPERED, *_ALL, *_REPLAY, *_NET),
    ),
    "DreamerV3": (
        *("model_size", "training_ratio", "world_model_lr", "actor_lr", "critic_lr", "gamma"),
        *("batch_size_B", "batch_length_T", "horizon_H", "gae_lambda", "entropy_scale"),
        *("return_normalization_decay", "world_model_grad_clip_by_global_norm"),
        *("actor_grad_clip_by_global_norm", "critic_grad_clip_by_global_norm"),
        "num_envs_per_env_runner",
    ),
}
# They learn from recorded data; what says where it is comes before the hyperparameters.
_OFFLINE: dict[str, tuple[str, ...]] = {
    "BC": (*RECORDED, "lr", "bc_logstd_coeff", *_BATCH, *_NET),
    "MARWIL": (
        *(*RECORDED, "lr", "beta", "lambda_", "vf_coeff", "bc_logstd_coeff"),
        *(*_BATCH, *MODEL),
    ),
    "CQL": (
        *(*RECORDED, "min_q_weight", "bc_iters", "temperature", "num_actions", "lagrangian"),
        *("lagrangian_thresh", *_TEMPERED, *_TARGETS, *_BATCH, *_NET),
    ),
    "IQL": (
        *(*RECORDED, "beta", "expectile", "actor_lr", "critic_lr", "value_lr", "twin_q"),
        *(*_TARGETS, *_BATCH, *_NET),
    ),
}
NAMES = _ONLINE | _OFFLINE


def algorithm_name(agent: str) -> str:
    """Return RLlib's name of the algorithm ``rllib:NAME``.

    Raises:
        UserError: RLlib has no such algorithm.
    """
    name = agent.removeprefix(RLLIB)
    if name in NAMES:
        return name
    names = ", ".join(RLLIB + known for known in NAMES)
    raise UserError(f"agent {agent!r} can't be run; of RLlib's, choose one of: {names}.")


def defaults(name: str) -> AlgorithmConfig:
    """Return RLlib's own configuration of an algorithm.

    Raises:
        UserError: this version of Ray has no such algorithm, or a package is missing.
    """
    quiet()
    # Not every algorithm is in RLlib's registry.
    try:
        module = importlib.import_module(f"ray.rllib.algorithms.{name.lower()}")
    except ImportError as error:
        raise UserError(f"{RLLIB}{name} can't be run with this version of Ray: {error}.") from error
    return getattr(module, name).get_default_config()


@functools.cache
def config_class(agent: str) -> type[Any]:
    """Return the configuration class of ``rllib:NAME``: RLlib's names with RLlib's defaults.

    Raises:
        UserError: RLlib has no such algorithm, or one that cannot be run here.
    """
    name = algorithm_name(agent)
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    config = defaults(name)
    model = {**dataclasses.asdict(DefaultModelConfig()), **config.model_config}
    fields = []
    for field in NAMES[name]:
        default = model[field] if field in MODEL else getattr(config, field)
        if field == "grad_clip":
            default = float(default or 0)
        elif field == "input_":
            default = ""
        default = tuple(default) if isinstance(default, list) else default
        fields.append((field, type(default), hp(default, **_KNOWN[field])))
    # Only our agents stack frames; the screens ask each agent.
    namespace = {"frame_stack": 0, "__post_init__": _find_input}
    return dataclasses.make_dataclass(
        f"RLlib{name}Config", fields, frozen=True, kw_only=True, namespace=namespace
    )


def _find_input(config: Any) -> None:
    """Write out where recorded data lie: workers may run elsewhere."""
    if path := getattr(config, "input_", ""):
        object.__setattr__(config, "input_", str(Path(path).absolute()))


def quiet() -> None:
    """Keep RLlib's warnings, of its own deprecations mostly, off the screen.

    What it logs as an error it raises, too.
    """
    for name, level in (
        ("ray.rllib", logging.CRITICAL),
        ("ray.tune", logging.ERROR),
        ("ray._common", logging.ERROR),
    ):
        logging.getLogger(name).setLevel(level)
    warnings.filterwarnings("ignore", module=r"ray\.|gymnasium\.")
