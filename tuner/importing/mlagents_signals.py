"""Reward signals and cloning of ML-Agents' trainer files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rltune.agents.reward_signals import EXTRINSIC, OURS
from rltune.importing.settings import Reader, Translation

NO_DEMO = (
    "a .demo file can't be read; record demonstrations (rltune record, rltune play --record) and "
    "give --demonstrations FILE"
)
# Signals whose rewards rltune divides by their running deviation, which ML-Agents does not.
SCALED = ("curiosity", "rnd")


def signals(reader: Reader, found: Translation, demonstrations: str) -> None:
    """Translate the reward signals, and how often they learn."""
    given = reader.section("reward_signals")
    for name, about in given.items():
        if not isinstance(about, Mapping):
            raise reader.error("reward_signals", f"{name} needs settings by name")
        if name in OURS:
            _signal(reader, found, str(name), about, demonstrations)
        elif name != EXTRINSIC:
            found.notes.append(f"reward_signals.{name}: rltune has {', '.join(OURS)}")
    own = reader.within(given.get(EXTRINSIC) or {}, {"strength": 1.0, "gamma": 0.99})
    strength = own.number("strength")
    found.config["gamma"] = reader.number("gamma") if reader.has("gamma") else own.number("gamma")
    if strength != 1.0:
        found.config["extrinsic_strength"] = strength
    _updates(reader, found)


def _signal(
    reader: Reader, found: Translation, name: str, about: Mapping[str, Any], demonstrations: str
) -> None:
    if name == "gail" and not demonstrations:
        found.notes.append(f"reward_signals.gail: {NO_DEMO}")
        return
    defaults = {"strength": 1.0, "gamma": 0.99, "learning_rate": 3e-4}
    own = reader.within(about, defaults)
    for key in defaults:
        found.config[f"{name}_{key}"] = own.number(key)
    network = own.within(own.section("network_settings"), {"hidden_units": 128})
    own.otherwise(encoding_size=network.whole("hidden_units", 1))
    found.config[f"{name}_size"] = own.whole("encoding_size", 1)
    if name == "gail":
        found.config["demonstrations"] = demonstrations
        found.config["gail_use_actions"] = bool(own.value("use_actions"))
        found.config["gail_use_vail"] = bool(own.value("use_vail"))
    if name in SCALED:
        found.notes.append(
            f"reward_signals.{name}.strength: of rewards that are divided by their running "
            "deviation, which they are not there"
        )
    left = {*own.left, *(f"network_settings.{key}" for key in network.left)} - {"demo_path"}
    found.notes += [f"reward_signals.{name}.{key}: has no counterpart" for key in sorted(left)]


def _updates(reader: Reader, found: Translation) -> None:
    """Translate how many minibatches the signals learn from behind an update of the policy."""
    config, size = found.config, found.config["batch_size"]
    if not any(f"{name}_strength" in config for name in OURS):
        for key in ("reward_signal_num_update", "reward_signal_steps_per_update"):
            reader.value(key)
        return
    if found.agent == "ppo":
        updates = config["n_epochs"] * math.ceil(config["n_envs"] * config["n_steps"] / size)
    elif reader.has("reward_signal_num_update"):
        updates = reader.whole("reward_signal_num_update", 1)
    else:
        reader.otherwise(reward_signal_steps_per_update=config["train_freq"])
        every = reader.number("reward_signal_steps_per_update")
        updates = max(1, round(config["train_freq"] / max(every, 1e-9)))
    config |= {"reward_signal_updates": updates, "reward_signal_batch_size": size}


def cloning(reader: Reader, found: Translation, demonstrations: str) -> None:
    """Translate behavioural cloning, which needs demonstrations in rltune's own format."""
    for key in ("behavioral_cloning", "pretraining"):
        about = dict(reader.section(key))
        if not about:
            continue
        if not demonstrations:
            found.notes.append(f"{key}: {NO_DEMO}")
            return
        own = reader.within(about, {"strength": 1.0, "steps": 0})
        found.config |= {
            "demonstrations": demonstrations,
            "cloning": own.number("strength"),
            "cloning_steps": own.whole("steps"),
            "cloning_batch_size": own.whole("batch_size", 1)
            if own.has("batch_size")
            else found.config["batch_size"],
            "cloning_updates": found.config.get("n_epochs", 1),
        }
        left = own.left - {"demo_path"}
        found.notes += [
            f"{key}.{name}: cloning_updates counts minibatches" for name in sorted(left)
        ]
