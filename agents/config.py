"""Configurations: every hyperparameter is declared once, with default, range, scale and help.

An agent's configuration is a frozen dataclass whose fields are made by `hp`. The command line, the
YAML files and the search spaces read the same declarations through `hyperparameters`.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from rltune.agents.aliases import ALIASES as ALIASES
from rltune.agents.aliases import own_name as own_name
from rltune.agents.errors import UserError, unknown
from rltune.agents.hyperparameters import Hyperparameter as Hyperparameter
from rltune.agents.hyperparameters import coerce as coerce
from rltune.agents.hyperparameters import fixed as fixed
from rltune.agents.hyperparameters import hp as hp
from rltune.agents.hyperparameters import prefix
from rltune.agents.model_files import Model, read_model
from rltune.agents.reward_signals import RewardSignalConfig, spelled_out

# Larger numbers are refused at once: no machine holds them, and making them takes time.
MOST_ENVS = 65_536
MOST_LEARNERS = 256
WIDEST = 16_384
MOST_ACTORS = 1_024
# A model file takes the place of these.
NETWORK_FIELDS = (
    "net_arch",
    "activation",
    "weight_init",
    "encoder",
    "layer_norm",
    "shared_torso",
)


@dataclass(frozen=True, kw_only=True)
class _CommonConfig:
    """The hyperparameters that every agent has, but for those of reward signals."""

    n_envs: int = hp(
        8,
        low=1,
        high=64,
        scale="pow2",
        minimum=1,
        maximum=MOST_ENVS,
        mutable=False,
        help="parallel environments",
    )
    gamma: float = hp(
        0.99, low=0.9, high=0.9999, scale="one_minus_log", maximum=1, help="discount factor"
    )
    learning_rate: float | str = hp(
        3e-4, low=1e-5, high=1e-2, scale="log", schedule=True, help="step size of the optimizer"
    )
    max_grad_norm: float = hp(
        0.5, low=0.3, high=5.0, scale="log", help="largest global gradient norm; 0: no clipping"
    )
    # Without a range: what has one is searched by default, with agents of the user's own.
    max_grad_value: float = hp(
        0.0, scale="log", help="largest size of each number of a gradient; 0: no clipping"
    )
    optimizer: str = hp("adam", choices=("adam", "rmsprop"), mutable=False, help="optimizer")
    adam_beta1: float = hp(
        0.9, scale="one_minus_log", maximum=0.9999, help="Adam's smoothing of the gradient"
    )
    adam_beta2: float = hp(
        0.999, scale="one_minus_log", maximum=0.999999, help="Adam's smoothing of its square"
    )
    optimizer_eps: float = hp(
        1e-5, low=1e-8, high=1e-3, scale="log", help="epsilon in the optimizer's denominator"
    )
    rms_alpha: float = hp(
        0.99, low=0.9, high=0.999, scale="one_minus_log", maximum=1, help="RMSprop's smoothing"
    )
    net_arch: tuple[int, ...] = hp(
        (64, 64),
        minimum=1,
        maximum=WIDEST,
        mutable=False,
        help="hidden layers of actor and of critic, as 64,64 (not for images)",
    )
    activation: str = hp(
        "tanh", choices=("tanh", "relu", "elu", "silu"), mutable=False, help="activation"
    )
    weight_init: str = hp(
        "orthogonal",
        choices=("orthogonal", "xavier", "torch"),
        mutable=False,
        help="initialisation of the weights; torch: its layers' own",
    )
    encoder: str = hp(
        "auto",
        choices=("auto", "mlp", "nature_cnn", "small_cnn", "impala_resnet"),
        mutable=False,
        help="what reads the observations; auto: nature_cnn for images",
    )
    layer_norm: bool = hp(
        False, mutable=False, help="normalise the hidden layers, before their activation"
    )
    frame_stack: int = hp(
        0, low=0, high=4, mutable=False, help="observations stacked into one; 0: none"
    )
    normalize_observations: bool = hp(
        False, mutable=False, help="running normalisation of the observations (vectors only)"
    )
    normalize_rewards: bool = hp(False, mutable=False, help="running scaling of the rewards")
    vectorization: str = hp(
        "sync",
        choices=("sync", "async", "native", "envpool"),
        mutable=False,
        help="how the environments are stepped; native, envpool: not bit-equal when resumed",
    )
    # Without a range: the result is the same, and a trial takes as many CPUs.
    n_learners: int = hp(
        1,
        minimum=1,
        maximum=MOST_LEARNERS,
        mutable=False,
        help="processes that compute each update together, on CPUs or on as many GPUs",
    )

    num_actors: int = hp(
        0,
        minimum=0,
        maximum=MOST_ACTORS,
        mutable=False,
        help="Ray actors that step the environments, n_envs divided among them; 0: none",
    )
    max_policy_lag: int = hp(
        0,
        minimum=0,
        mutable=False,
        help="updates that actors may run ahead; 0: they wait for each",
    )

    evaluation_actor: bool = hp(
        False, mutable=False, help="one more actor evaluates the newest policy beside the training"
    )

    demonstrations: str = hp("", mutable=False, help="file of demonstrations, for cloning and GAIL")
    cloning: float = hp(
        0.0, scale="log", minimum=0, help="step size of cloning, times learning_rate; 0: none"
    )
    cloning_steps: int = hp(
        0, minimum=0, help="env steps in which cloning fades away; 0: it does not"
    )
    cloning_batch_size: int = hp(
        128, scale="pow2", minimum=1, help="demonstrated steps in a minibatch of cloning"
    )
    cloning_updates: int = hp(
        1, scale="pow2", minimum=1, help="minibatches of cloning behind each update"
    )


@dataclass(frozen=True, kw_only=True)
class AgentConfig(RewardSignalConfig, _CommonConfig):  # whose fields come first
    """The hyperparameters that every agent has."""

    def __post_init__(self) -> None:
        """Make paths independent of the folder; check that the parts of the network agree.

        Model files are replaced by their content.

        Raises:
            UserError: they don't, a file is wrong, or there are no demonstrations to learn from.
        """
        if self.demonstrations:
            object.__setattr__(self, "demonstrations", os.path.abspath(self.demonstrations))
        elif self.cloning > 0:
            raise UserError("cloning needs demonstrations; name a file: --demonstrations FILE")
        self.check_signals()
        if self.evaluation_actor and not self.num_actors:
            raise UserError("evaluation_actor is beside other actors; give num_actors, too")
        if self.num_actors and self.n_envs % self.num_actors:
            raise UserError(
                f"n_envs {self.n_envs} can't be divided among num_actors {self.num_actors}; "
                f"give a multiple, such as n_envs {self.num_actors}"
            )
        fields = dataclasses.fields(self)
        known = [field.name for field in fields if field.metadata.get("outputs")]
        given = [name for name in known if getattr(self, name)]
        if not given:
            return
        for name, model in self.models().items():
            object.__setattr__(self, name, model.text())
        missing = [name for name in known if name not in given]
        if missing:
            raise UserError(f"{given[0]} is given, but {missing[0]} is not; give both or none")
        for field in fields:
            if field.name in NETWORK_FIELDS and getattr(self, field.name) != field.default:
                default = str(field.default).strip("()")
                raise UserError(
                    f"{given[0]} and {field.name} both describe the network; drop one of them "
                    f"({field.name}'s default is {default})"
                )

    def models(self) -> dict[str, Model]:
        """Return the model files that are given, by field: ``model``, or actor's and critic's."""
        return {
            field.name: read_model(getattr(self, field.name), field.metadata["outputs"])
            for field in dataclasses.fields(self)
            if field.metadata.get("outputs") and getattr(self, field.name)
        }

    def reads_small_images(self) -> bool:
        """Tell whether the network is made for images, whatever their size."""
        layers = [layer for model in self.models().values() for layer in model.layers]
        convolves = any(layer.kind == "convolutional" for layer in layers)
        return convolves or self.encoder not in ("auto", "mlp", "nature_cnn")


@dataclass(frozen=True, kw_only=True)
class OnPolicyConfig(AgentConfig):
    """The hyperparameters of agents that learn from fresh rollouts."""

    # On for these agents: without it Pendulum is not learned at all, and Acrobot not always.
    normalize_observations: bool = hp(
        True, mutable=False, help="running normalisation of the observations (vectors only)"
    )
    normalize_rewards: bool = hp(True, mutable=False, help="running scaling of the rewards")
    n_steps: int = hp(
        128, low=8, high=2048, scale="pow2", minimum=1, help="steps of each environment a rollout"
    )
    gae_lambda: float = hp(
        0.95,
        low=0.8,
        high=0.999,
        scale="one_minus_log",
        maximum=1,
        help="lambda of the generalised advantage estimate",
    )
    ent_coef: float = hp(0.0, low=1e-8, high=0.1, scale="log", help="weight of the entropy bonus")
    vf_coef: float = hp(0.5, low=0.1, high=1.0, help="weight of the value loss")
    log_std_init: float = hp(
        0.0,
        low=-3.0,
        high=1.0,
        minimum=-20,
        maximum=5,
        mutable=False,
        help="initial log std (Box actions)",
    )
    state_dependent_std: bool = hp(
        False, mutable=False, help="the network gives the std too (Box actions)"
    )
    use_sde: bool = hp(
        False, mutable=False, help="generalised state-dependent exploration, gSDE (Box actions)"
    )
    sde_sample_freq: int = hp(
        0, low=0, high=256, help="new gSDE noise every so many steps; 0: once a rollout"
    )
    shared_value: bool = hp(
        False, mutable=False, help="one value for all rewards, none for each reward signal"
    )


@dataclass(frozen=True, kw_only=True)
class OffPolicyConfig(AgentConfig):
    """The hyperparameters of agents that learn from replayed transitions."""

    n_envs: int = hp(
        1,
        low=1,
        high=64,
        scale="pow2",
        minimum=1,
        maximum=MOST_ENVS,
        mutable=False,
        help="parallel environments",
    )
    max_policy_lag: int = hp(
        100,
        minimum=0,
        mutable=False,
        help="updates that actors may run ahead; 0: they wait for each",
    )
    net_arch: tuple[int, ...] = hp(
        (256, 256),
        minimum=1,
        maximum=WIDEST,
        mutable=False,
        help="hidden layers of each network, as 256,256",
    )
    activation: str = hp(
        "relu", choices=("tanh", "relu", "elu", "silu"), mutable=False, help="activation"
    )
    weight_init: str = hp(
        "torch",
        choices=("orthogonal", "xavier", "torch"),
        mutable=False,
        help="initialisation of the weights; torch: its layers' own",
    )
    max_grad_norm: float = hp(
        0.0, low=0.3, high=10.0, scale="log", help="largest global gradient norm; 0: no clipping"
    )
    optimizer_eps: float = hp(
        1e-8, low=1e-8, high=1e-3, scale="log", help="epsilon in the optimizer's denominator"
    )
    batch_size: int = hp(256, low=32, high=1024, scale="pow2", minimum=1, help="minibatch size")
    buffer_size: int = hp(
        100_000,
        low=10_000,
        high=1_000_000,
        scale="log",
        minimum=1,
        mutable=False,
        help="transitions that are kept, whatever the number of environments",
    )
    learning_starts: int = hp(
        1000,
        low=0,
        high=10_000,
        mutable=False,
        help="env steps of random actions before the first update",
    )
    train_freq: int = hp(
        1, low=1, high=256, scale="pow2", minimum=1, help="env steps between updates"
    )
    gradient_steps: int = hp(
        1, low=1, high=256, scale="pow2", minimum=1, help="minibatches an update"
    )
    tau: float = hp(
        0.005, low=0.001, high=0.1, scale="log", maximum=1, help="how fast the targets follow"
    )


@dataclass(frozen=True, kw_only=True)
class HindsightConfig(OffPolicyConfig):
    """The hyperparameters of replay agents that can learn from goals chosen in hindsight."""

    # Without a range: most environments have no goals.
    n_sampled_goal: int = hp(
        0,
        minimum=0,
        maximum=WIDEST,
        mutable=False,
        help="replayed steps with a goal reached later, for each with its own; 0: none",
    )
    goal_selection_strategy: str = hp(
        "future",
        choices=("future", "final", "episode"),
        help="which goals: reached later, in the end, or at any time of the episode",
    )

    def __post_init__(self) -> None:
        """Check that goals can be replaced in what the memory holds.

        Raises:
            UserError: they can't, or as in `AgentConfig`.
        """
        super().__post_init__()
        if not self.n_sampled_goal:
            return
        if self.normalize_observations or self.normalize_rewards:
            wrong = "observations" if self.normalize_observations else "rewards"
            raise UserError(
                f"n_sampled_goal puts goals and rewards in the environment's units into the memory,"
                f" and normalize_{wrong} gives them others; leave one out"
            )
        if getattr(self, "lstm_size", 0):
            raise UserError(
                "n_sampled_goal replaces the goals of single steps, and an LSTM learns from "
                "sequences; leave one out"
            )
        if self.vectorization not in ("sync", "async"):
            raise UserError(
                f"n_sampled_goal can't ask environments stepped by {self.vectorization} for their "
                "goals; use vectorization sync or async"
            )


C = TypeVar("C", bound=AgentConfig)

# None: what has no default is of the type that it is given.
_TYPES = {bool: "bool", int: "int", float: "float", str: "str", tuple: "ints", type(None): "any"}


def hyperparameters(config_class: type[AgentConfig]) -> dict[str, Hyperparameter]:
    """Return the hyperparameters of a configuration class by name, in the order of definition."""
    return dict(_known(config_class))


def _declared(config_class: type[AgentConfig]) -> dict[str, Hyperparameter]:
    return {
        field.name: Hyperparameter(
            name=field.name,
            type="float" if field.metadata["schedule"] else _TYPES[type(field.default)],
            default=field.default,
            **field.metadata,
        )
        for field in dataclasses.fields(config_class)
        if "scale" in field.metadata
    }


# An agent's start asks for them a dozen times.
_known = cast(
    "Callable[[type[AgentConfig]], dict[str, Hyperparameter]]", functools.cache(_declared)
)


def canonical_name(config_class: type[AgentConfig], name: str, where: str = "") -> str:
    """Return our name for a hyperparameter written as ``name``: dashes and aliases are accepted.

    Raises:
        UserError: the agent has no such hyperparameter.
    """
    known = hyperparameters(config_class)
    own = own_name(name, known)
    if own is None:
        raise unknown("hyperparameter", name, known, where)
    return own


def make_config(config_class: type[C], values: Mapping[str, object], where: str = "") -> C:
    """Build a configuration from plain values, as they come from YAML, flags or a search.

    Aliases are accepted, texts are coerced (``"1e6"`` is a number), None means the default.

    Args:
        config_class: the agent's configuration class
        values: hyperparameters by name; absent ones keep their default
        where: what the errors start with, such as a file and line

    Raises:
        UserError: an unknown name, a wrong type, a value out of range, a name given twice.
    """
    known = hyperparameters(config_class)
    values = spelled_out(values, where)
    spelled: dict[str, str] = {}
    for name in values:
        own = canonical_name(config_class, name, where)
        if own in spelled:
            raise UserError(f"{prefix(where)}{spelled[own]} and {name} are the same; keep one")
        spelled[own] = name
    return config_class(
        **{
            own: coerce(known[own], values[name], where)
            for own, name in spelled.items()
            if values[name] is not None
        }
    )


def changed_config(config: C, values: Mapping[str, object]) -> C:
    """Build the configuration with which a training that has begun goes on.

    Args:
        config: the one so far
        values: hyperparameters by name; absent ones have their defaults

    Raises:
        UserError: as `make_config`; or a hyperparameter that a training keeps would change.
    """
    made = make_config(type(config), values)
    old, new = config_dict(config), config_dict(made)
    for name, known in hyperparameters(type(made)).items():
        if not known.mutable and new[name] != old[name]:
            raise UserError(
                f"{name} is {old[name]}, and a training that has begun can't change it to "
                f"{new[name]}"
            )
    return made


def config_dict(config: AgentConfig) -> dict[str, Any]:
    """Return a configuration as plain JSON-able values under our own names."""
    chosen = {field.name for field in dataclasses.fields(config) if field.init}  # not `fixed`
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in dataclasses.asdict(config).items()
        if name in chosen
    }


def config_hash(values: Mapping[str, object]) -> str:
    """Return 12 hex digits that name a configuration: the same for the same values in any order."""

    def plain(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return [plain(item) for item in value]
        if isinstance(value, float) and value.is_integer():
            return int(value)
        return value

    text = json.dumps({name: plain(value) for name, value in values.items()}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
