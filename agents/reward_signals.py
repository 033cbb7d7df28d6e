"""The hyperparameters of reward signals, and how ``reward_signals`` spells them.

``reward_signals: {rnd: {strength: 0.1, gamma: 0.99}}`` means ``rnd_strength: 0.1`` and
``rnd_gamma: 0.99``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rltune.agents.errors import UserError, unknown
from rltune.agents.hyperparameters import hp, prefix
from rltune.agents.plugins import PluginGroup

OURS = ("curiosity", "rnd", "gail")
CUSTOM = "custom"  # stands for the one that `custom_signal` names
SIGNALS = (*OURS, CUSTOM)
EXTRINSIC = "extrinsic"
NESTED = "reward_signals"
PLUGINS = PluginGroup("reward_signals", "reward signal", (EXTRINSIC, *SIGNALS))
# Names of ML-Agents that mean one of ours.
_ALIASES = {"encoding_size": "size", "hidden_units": "size"}


@dataclass(frozen=True, kw_only=True)
class RewardSignalConfig:
    """The hyperparameters of reward signals, which every agent has.

    Those without a range are not searched by default.
    """

    extrinsic_strength: float = hp(
        1.0, scale="log", help="what the environment's reward is multiplied with, beside signals"
    )
    curiosity_strength: float = hp(
        0.0, scale="log", mutable=False, help="weight of the reward for what is not foreseen; 0: no"
    )
    curiosity_gamma: float = hp(
        0.0, scale="one_minus_log", maximum=1, help="its discount factor; 0: gamma"
    )
    curiosity_learning_rate: float = hp(3e-4, scale="log", help="step size of its networks")
    curiosity_size: int = hp(
        128, scale="pow2", minimum=1, mutable=False, help="numbers that encode an observation"
    )
    rnd_strength: float = hp(
        0.0, scale="log", mutable=False, help="weight of the reward for what is new (RND); 0: none"
    )
    rnd_gamma: float = hp(
        0.0, scale="one_minus_log", maximum=1, help="its discount factor; 0: gamma"
    )
    rnd_learning_rate: float = hp(3e-4, scale="log", help="step size of its network")
    rnd_size: int = hp(
        128, scale="pow2", minimum=1, mutable=False, help="numbers that encode an observation"
    )
    gail_strength: float = hp(
        0.0,
        scale="log",
        mutable=False,
        help="weight of the reward for acting like the demonstrations (GAIL); 0: none",
    )
    gail_gamma: float = hp(
        0.0, scale="one_minus_log", maximum=1, help="its discount factor; 0: gamma"
    )
    gail_learning_rate: float = hp(3e-4, scale="log", help="step size of the discriminator")
    gail_size: int = hp(
        128, scale="pow2", minimum=1, mutable=False, help="width of the discriminator"
    )
    gail_use_actions: bool = hp(
        False, mutable=False, help="the discriminator sees actions, not observations alone"
    )
    gail_use_vail: bool = hp(
        False, mutable=False, help="a variational bottleneck in the discriminator (VAIL)"
    )
    gail_gradient_penalty: float = hp(
        10.0, scale="log", help="weight of the discriminator's gradient penalty; 0: none"
    )
    custom_signal: str = hp(
        "", mutable=False, help="a reward signal of a plug-in by name, or module:Class of your own"
    )
    custom_strength: float = hp(0.0, scale="log", mutable=False, help="weight of its reward; 0: no")
    custom_gamma: float = hp(
        0.0, scale="one_minus_log", maximum=1, help="its discount factor; 0: gamma"
    )
    custom_learning_rate: float = hp(3e-4, scale="log", help="step size of its networks")
    custom_size: int = hp(128, scale="pow2", minimum=1, mutable=False, help="width of its networks")
    reward_signal_updates: int = hp(
        0, scale="pow2", help="minibatches of the signals behind an update; 0: one pass"
    )
    reward_signal_batch_size: int = hp(
        256, scale="pow2", minimum=1, help="steps in a minibatch of the signals"
    )

    def check_signals(self) -> None:
        """Check that the signals agree with the rest of the configuration.

        Raises:
            UserError: they don't.
        """
        active = signals_of(self)
        if "gail" in active and not getattr(self, "demonstrations", ""):
            raise UserError("gail needs demonstrations; name a file: --demonstrations FILE")
        if CUSTOM in active and not self.custom_signal:
            raise UserError(
                "custom_strength needs a signal; name one of a plug-in, or your own: "
                "--custom-signal my_module:MySignal"
            )
        if active and getattr(self, "n_step", 1) > 1:
            raise UserError(
                f"{active[0]}_strength needs n_step 1: signals reward single steps; give --n-step 1"
            )
        for name in active if value_streams(self) == 1 else ():
            if gamma := getattr(self, f"{name}_gamma"):
                raise UserError(
                    f"{name}_gamma is {gamma:g}, but one value function for all rewards has one "
                    f"discount factor; leave {name}_gamma out"
                )


def signals_of(config: RewardSignalConfig) -> list[str]:
    """Return the names of the signals that a configuration asks for, in the order of SIGNALS."""
    return [name for name in SIGNALS if getattr(config, f"{name}_strength") > 0]


def has_signals(config: RewardSignalConfig) -> bool:
    """Tell whether an agent learns from other rewards than the environment's as they are."""
    return bool(signals_of(config)) or config.extrinsic_strength != 1


def value_streams(config: RewardSignalConfig) -> int:
    """Return how many values an agent learns: that of the environment's reward, and the signals'.

    1: one value for all, which agents have that know no ``shared_value``.
    """
    own = not getattr(config, "shared_value", True)
    return 1 + len(signals_of(config)) if own else 1


def spelled_out(
    values: Mapping[str, Any], where: str = "", strength: float | None = 1.0
) -> dict[str, Any]:
    """Return hyperparameters with those in ``reward_signals`` under their own names.

    Args:
        values: hyperparameters by name; dashes are accepted
        where: what the errors start with
        strength: of a signal that is named and doesn't say it; None: it has none then

    Raises:
        UserError: ``reward_signals`` is no mapping of signals, or a signal has no such setting.
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        if str(name).replace("-", "_") != NESTED:
            found[name] = value
            continue
        for own, setting in _signals(value, where, strength).items():
            if own in values:
                raise UserError(f"{prefix(where)}{NESTED} and {own} are the same; keep one")
            found[own] = setting
    return found


def _signals(signals: object, where: str, strength: float | None) -> dict[str, Any]:
    example = "{rnd: {strength: 0.1}}"
    if not isinstance(signals, Mapping):
        raise UserError(f"{prefix(where)}{NESTED} is {signals!r}, but must be such as {example}")
    found: dict[str, Any] = {}
    for signal, settings in signals.items():
        settings = {} if settings is None else settings
        known = (EXTRINSIC, *SIGNALS)
        custom = "" if signal in known else str(signal)
        if custom and ":" not in custom and custom not in PLUGINS.usable:
            raise unknown("reward signal", custom, (*known, *PLUGINS.usable), where)
        if not isinstance(settings, Mapping):
            raise UserError(
                f"{prefix(where)}{NESTED}.{signal} is {settings!r}, but must be such as "
                "{strength: 0.1}"
            )
        if signal != EXTRINSIC and strength is not None:
            settings = {"strength": strength, **settings}
        if custom and found.setdefault("custom_signal", custom) != custom:
            raise UserError(
                f"{prefix(where)}{NESTED} has {found['custom_signal']} and {custom}; an agent has "
                "one signal beside rltune's own"
            )
        for key, value in settings.items():
            found[_own_name(CUSTOM if custom else str(signal), str(key), where)] = value
    return found


def _own_name(signal: str, key: str, where: str) -> str:
    if (signal, key) == (EXTRINSIC, "gamma"):
        return "gamma"
    known = {
        name.removeprefix(f"{signal}_"): name
        for name in RewardSignalConfig.__dataclass_fields__
        if name.startswith(f"{signal}_")
    }
    key = _ALIASES.get(key, key)
    if key not in known:
        takes = (*known, "gamma") if signal == EXTRINSIC else known
        raise unknown(f"setting of {NESTED}.{signal}", key, takes, where)
    return known[key]
