"""Trainer files of Unity's ML-Agents, in rltune's words.

Both styles are read: today's, with `behaviors:` and sections of each behavior, and the older one,
with flat sections and a `default` that each overrides. What a setting means is taken from
ML-Agents' docs/Training-Configuration-File.md, and so are defaults.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rltune.importing.mlagents_signals import cloning, signals
from rltune.importing.settings import Reader, Settings, Translation
from rltune.space.yaml_lines import SourceText, read_yaml

TRAINERS = ("ppo", "sac")
# Sections of today's style, whose settings are those of the behavior.
SECTIONS = ("hyperparameters", "network_settings")
ENCODERS = {"simple": "small_cnn", "nature_cnn": "nature_cnn", "resnet": "impala_resnet"}
SHARED: Settings = {
    "learning_rate": 3e-4, "max_steps": 500_000, "time_horizon": 64, "normalize": False,
    "hidden_units": 128, "num_layers": 2, "vis_encode_type": "simple", "memory_size": 128,
    "sequence_length": 64, "use_recurrent": False,
}  # fmt: skip
DEFAULTS: dict[str, Settings] = {
    "ppo": {
        **SHARED, "batch_size": 1024, "buffer_size": 10_240, "learning_rate_schedule": "linear",
        "beta": 5e-3, "epsilon": 0.2, "lambd": 0.95, "num_epoch": 3,
    },
    "sac": {
        **SHARED, "batch_size": 128, "buffer_size": 50_000, "learning_rate_schedule": "constant",
        "buffer_init_steps": 0, "init_entcoef": 1.0, "tau": 0.005, "steps_per_update": 1,
    },
}  # fmt: skip
# What has no equal, and why or what stands for it.
WITHOUT_EQUAL = {
    "summary_freq": "evaluations are asked for with --eval-freq",
    "keep_checkpoints": "the last and the best are kept",
    "checkpoint_interval": "checkpoints come with evaluations",
    "even_checkpoints": "checkpoints come with evaluations",
    "save_replay_buffer": "a checkpoint always has the replay memory",
    "threaded": "steps and updates take turns",
    "init_path": "--weights RUN begins with the networks of another training",
    "shared_critic": "shared_torso is about hidden layers; here actor and critic are apart",
    "self_play": "one agent is trained alone",
    "goal_conditioning_type": "goals are part of the observation",
    "conditioning_type": "goals are part of the observation",
    "deterministic": "evaluations are greedy, training explores",
}
FOREIGN = {"poca": "groups of agents", "online_bc": "a teacher", "offline_bc": "a recording alone"}


def import_trainer(
    file: Path, behavior: str | None = None, *, visual: bool = False, demonstrations: str = ""
) -> Translation:
    """Return a behavior of a trainer file in rltune's words.

    Args:
        file: the trainer file
        behavior: which one; None: the only one that it has
        visual: whether observations are images
        demonstrations: a file as `rltune record` writes it, in place of a `.demo`

    Raises:
        UserError: there is no such file or behavior, a trainer without a counterpart, or a setting
            that is not what it should be.
    """
    data, source = read_yaml(file)
    name, settings, place = _behavior(data, source, behavior)
    trainer = str(settings.pop("trainer_type", settings.pop("trainer", "ppo")))
    if trainer in FOREIGN:
        raise source.error(
            place, f"trainer {trainer!r} learns from {FOREIGN[trainer]}; rltune has ppo and sac"
        )
    if trainer not in TRAINERS:
        raise source.error(place, f"unknown trainer {trainer!r}; write ppo or sac")
    reader = Reader(settings, DEFAULTS[trainer], source, place)
    found = Translation(name, trainer, reader.whole("max_steps", least=1))
    _shared(reader, found, visual)
    (_ppo if trainer == "ppo" else _sac)(reader, found)
    _memory(reader, found)
    signals(reader, found, demonstrations)
    cloning(reader, found, demonstrations)
    for key in sorted(reader.left):
        reason = WITHOUT_EQUAL.get(key, "ML-Agents' documentation does not name it")
        found.notes.append(f"{key}: {reason}")
    return found


# ------------------------------------------------------------------------------------ both styles


def _behavior(
    data: Any, source: SourceText, wanted: str | None
) -> tuple[str, Settings, tuple[str, ...]]:
    """Return a behavior's name, its settings without sections, and where they stand."""
    if not isinstance(data, Mapping):
        raise source.error((), "is no trainer file: it has no names with settings")
    is_new = "behaviors" in data
    behaviors = data["behaviors"] if is_new else data
    common = (data.get("default_settings") if is_new else data.get("default")) or {}
    if not isinstance(behaviors, Mapping) or not isinstance(common, Mapping):
        raise source.error((), "is no trainer file: behaviors need names with settings")
    names = [str(name) for name in behaviors if is_new or name != "default"]
    if wanted is None:
        if len(names) != 1:
            which = ", ".join(names) or "none"
            raise source.error((), f"which behavior? Give --behavior, one of {which}")
        wanted = names[0]
    if wanted not in names and not (wanted == "default" and common):
        close = difflib.get_close_matches(wanted, names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(names)}"
        raise source.error((), f"has no behavior {wanted!r}; {hint}")
    place = ("behaviors", wanted) if is_new else (wanted,)
    own = behaviors.get(wanted) or {}
    if not isinstance(own, Mapping):
        raise source.error(place, "needs settings by name")
    return wanted, {**_flat(common), **_flat(own)}, place


def _flat(settings: Mapping[str, Any]) -> Settings:
    """Return the settings of all sections side by side."""
    found: Settings = {}
    for key, value in settings.items():
        if key in SECTIONS and isinstance(value, Mapping):
            found |= _flat(value)
        elif key == "memory" and isinstance(value, Mapping):
            found |= {"use_recurrent": True, **value}
        else:
            found[str(key)] = value
    return found


# ---------------------------------------------------------------------------------- the settings


def _shared(reader: Reader, found: Translation, visual: bool) -> None:
    units, layers = reader.whole("hidden_units", 1), reader.whole("num_layers", 1)
    found.config |= {
        "learning_rate": reader.decaying("learning_rate", "learning_rate_schedule"),
        "batch_size": reader.whole("batch_size", 1),
        "net_arch": [units] * layers,
        "activation": "silu",
        "max_grad_norm": 0.0,
        "optimizer_eps": 1e-8,
        "normalize_observations": bool(reader.value("normalize")),
        "normalize_rewards": False,
    }
    encoder = str(reader.value("vis_encode_type"))
    if visual and encoder in ENCODERS:
        found.config["encoder"] = ENCODERS[encoder]
    elif encoder not in ENCODERS:
        found.notes.append(f"vis_encode_type: there is no encoder like {encoder}")
    elif reader.has("vis_encode_type"):
        equal = ENCODERS[encoder]
        found.notes.append(
            f"vis_encode_type: with --visual, for images, it becomes encoder: {equal}"
        )


def _ppo(reader: Reader, found: Translation) -> None:
    size, horizon = reader.whole("buffer_size", 1), reader.whole("time_horizon", 1)
    n_envs = max(1, round(size / horizon))
    schedule = reader.value("learning_rate_schedule")
    reader.otherwise(beta_schedule=schedule, epsilon_schedule=schedule)
    clip = reader.decaying("epsilon", "epsilon_schedule")
    if isinstance(reader.decaying("beta", "beta_schedule"), str):
        found.notes.append("beta: it falls to 1e-5 there, and stays here")
    found.config |= {
        "n_envs": n_envs,
        "n_steps": max(1, size // n_envs),
        "n_epochs": reader.whole("num_epoch", 1),
        "gae_lambda": reader.number("lambd"),
        "clip_range": clip,
        "clip_range_vf": clip,
        "ent_coef": reader.number("beta"),
        "vf_coef": 0.5,
    }
    found.notes.append(
        f"n_envs: {n_envs} environments of {found.config['n_steps']} steps are a buffer_size of "
        f"{size} in parts of time_horizon {horizon}; there, the scene decides on the number"
    )


def _sac(reader: Reader, found: Translation) -> None:
    freq, steps = 1, 1
    if reader.has("train_interval") or reader.has("num_update"):  # before steps_per_update
        reader.otherwise(train_interval=1, num_update=1)
        freq, steps = reader.whole("train_interval", 1), reader.whole("num_update", 1)
    else:
        ratio = reader.number("steps_per_update")
        if ratio <= 0:
            raise reader.error("steps_per_update", "needs a number above 0")
        freq, steps = (round(ratio), 1) if ratio >= 1 else (1, round(1 / ratio))
    found.config |= {
        "buffer_size": reader.whole("buffer_size", 1),
        "learning_starts": reader.whole("buffer_init_steps"),
        "ent_coef": f"auto_{reader.number('init_entcoef'):g}",
        "tau": reader.number("tau"),
        "train_freq": freq,
        "gradient_steps": steps,
    }
    if reader.has("time_horizon"):
        reader.value("time_horizon")
        found.notes.append("time_horizon: the replay memory takes every step as it comes")


def _memory(reader: Reader, found: Translation) -> None:
    sizes = reader.whole("memory_size", 2), reader.whole("sequence_length", 1)
    if not reader.value("use_recurrent"):
        return
    found.config |= {"lstm_size": sizes[0] // 2, "sequence_length": sizes[1]}
    if "n_steps" in found.config:  # a rollout is a whole number of sequences
        found.config["n_steps"] = math.ceil(found.config["n_steps"] / sizes[1]) * sizes[1]
    found.notes.append(f"memory_size: {sizes[0]} are two states, an LSTM of {sizes[0] // 2} here")
