"""rl-zoo3's settings, read from its YAML as hyperparameters of ``sb3:`` agents.

Such a file may come from anywhere. What is written as Python in it is read by
`rltune.backends.sb3.words` and never evaluated; classes are only named here, not imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rltune.agents.config import config_dict, hyperparameters, make_config
from rltune.agents.envs.make import is_atari
from rltune.agents.errors import UserError, unknown
from rltune.backends.base import KnownGood
from rltune.backends.sb3.config import config_class
from rltune.backends.sb3.words import ACTIVATIONS, Name, read_arguments, spelled, written
from rltune.space.yaml_lines import read_yaml

_LENGTH = "n_timesteps"
_MERGED = "<<"
_DEEPEST = 20
_ATARI = "atari"
# Settings without a counterpart, and what to do instead.
_NOT_HERE = {
    "env_kwargs": "give --env-kwargs",
    "replay_buffer_class": "SB3's own replay buffer is used",
    "vec_env_wrapper": "wrap each environment: env_wrapper",
    "vec_env_class": "the environments are stepped in one process",
    "monitor_kwargs": "leave it out",
    "noise_std_final": "the noise does not change",
    "rollout_buffer_class": "SB3's own rollout buffer is used",
}
_TIMEOUTS = {"handle_timeout_termination": False}


def read_zoo(file: str | Path, agent: str, env: str) -> KnownGood:
    """Return the settings for an environment.

    Args:
        file: such as rl-zoo3's hyperparams/ppo.yml
        agent: such as "sb3:PPO"
        env: a key of the file; for Atari games that are none, "atari"

    Raises:
        UserError: no such file or environment, or a setting that has no counterpart here.
    """
    data, source = read_yaml(Path(file).expanduser())
    if not isinstance(data, dict) or not all(isinstance(v, dict) for v in data.values()):
        raise source.error((), "is no file of rl-zoo3: it needs environments with their settings")
    key = env if env in data or not (_ATARI in data and is_atari(env)) else _ATARI
    if key not in data:
        raise UserError(str(unknown("environment", env, data, str(file))))
    where = f"{source.name}: {key}"
    settings = _merged(data[key], where, 0)
    length = settings.pop(_LENGTH, None)
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= _TRANSLATE.get(name, _plain)(name, value, f"{where}: {name}")
    found = _own_fields(agent, found, f"{where}: policy_kwargs")
    made = config_dict(make_config(config_class(agent), found, where))
    return KnownGood({name: made[name] for name in found}, _steps(length, f"{where}: {_LENGTH}"))


def _merged(settings: Mapping[str, Any], where: str, depth: int) -> dict[str, Any]:
    """Return settings with those that ``<<: *defaults`` takes over."""
    before = settings.get(_MERGED, {})
    if not isinstance(before, dict) or depth > _DEEPEST:
        raise UserError(f"{where}: {_MERGED} must name the settings of another environment")
    own = {name: value for name, value in settings.items() if name != _MERGED}
    return {**(_merged(before, where, depth + 1) if before else {}), **own}


def _steps(value: Any, where: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value < 1e15:
        raise UserError(f"{where} is {value!r:.40}, but must be a number of env steps")
    return int(value)


def _plain(name: str, value: Any, where: str) -> dict[str, Any]:
    if name in _NOT_HERE:
        raise UserError(f"{where} has no counterpart here: {_NOT_HERE[name]}, and leave it out")
    if isinstance(value, (dict, list)):
        raise UserError(f"{where} must be one value, not {str(value)[:60]}")
    return {name: value}


def _normalize(_: str, value: Any, where: str) -> dict[str, Any]:
    if isinstance(value, str):
        wanted = read_arguments(value, where)
    elif isinstance(value, dict):
        wanted = value
    else:
        return {"normalize": value}
    if others := wanted.keys() - {"norm_obs", "norm_reward"}:
        raise UserError(f"{where}: {min(others)} has no counterpart here; leave it out")
    return {"normalize": True, **wanted}


def _train_freq(_: str, value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, list):
        return {"train_freq": value}
    if len(value) != 2:
        raise UserError(f'{where} must be a number, or such as [1, "episode"]')
    return {"train_freq": value[0], "train_freq_unit": value[1]}


def _noise_type(_: str, value: Any, __: str) -> dict[str, Any]:
    return {"noise_type": "none" if value is None else value}


def _wrappers(_: str, value: Any, where: str) -> dict[str, Any]:
    parts = []
    for item in value if isinstance(value, list) else [value]:
        named = {item: {}} if isinstance(item, str) else item
        if not isinstance(named, dict) or not all(
            isinstance(arguments, (dict, type(None))) for arguments in named.values()
        ):
            raise UserError(f"{where} must be wrappers such as module.Class, or {{name: {{}}}}")
        for name, arguments in named.items():
            said = ", ".join(f"{key}={value!r}" for key, value in (arguments or {}).items())
            parts.append(spelled(name) + (f"({said})" if said else ""))
    return {"env_wrapper": ", ".join(parts)}


def _callbacks(_: str, value: Any, where: str) -> dict[str, Any]:
    names = value if isinstance(value, list) else [value]
    if not all(isinstance(name, str) for name in names):
        raise UserError(f"{where} must be callbacks such as module.Class, made without arguments")
    return {"callback": ", ".join(map(spelled, names))}


def _replay_arguments(_: str, value: Any, where: str) -> dict[str, Any]:
    found = read_arguments(value, where) if isinstance(value, str) else value
    if found != _TIMEOUTS:
        raise UserError(
            f"{where} may only be dict(handle_timeout_termination=False), with "
            "optimize_memory_usage; leave it out"
        )
    return {}


def _policy_arguments(name: str, value: Any, where: str) -> dict[str, Any]:
    text = value if isinstance(value, str) else written(value)
    return {name: read_arguments(text, where)}


_TRANSLATE: dict[str, Callable[[str, Any, str], dict[str, Any]]] = {
    "normalize": _normalize,
    "train_freq": _train_freq,
    "noise_type": _noise_type,
    "env_wrapper": _wrappers,
    "callback": _callbacks,
    "replay_buffer_kwargs": _replay_arguments,
    "policy_kwargs": _policy_arguments,
}


def _own_fields(agent: str, found: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the settings with the policy's arguments under names of their own, where they have."""
    rest: dict[str, Any] = dict(found.pop("policy_kwargs", {}))
    known = hyperparameters(config_class(agent))
    for name in [name for name in rest if name in known]:
        value = rest[name]
        if name == "net_arch":
            value = _one_net_arch(value)
        elif name == "activation_fn":
            value = _activation(value)
        if value is None:
            continue
        if name in found:
            raise UserError(f"{where}: {name} is given twice; keep one")
        found[name] = value
        del rest[name]
    return {**found, "policy_kwargs": written(rest)} if rest else found


def _one_net_arch(value: Any) -> list[int] | None:
    """Return the layers where all networks have the same; None: they differ, or there are none."""
    if isinstance(value, dict) and value and len({str(part) for part in value.values()}) == 1:
        value = next(iter(value.values()))
    is_plain = isinstance(value, list) and value and all(type(n) is int for n in value)
    return value if is_plain else None


def _activation(value: Any) -> str | None:
    own = {f"nn.{theirs}": ours for ours, theirs in ACTIVATIONS.items()}
    return own.get(value) if isinstance(value, Name) else None
