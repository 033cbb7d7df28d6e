"""Exports for rl-zoo3 (YAML) and Stable-Baselines3 (a script)."""

from __future__ import annotations

import json
import math
from typing import Any

import yaml
from rltune.agents.envs.make import UNITY, find_spec, is_own, split_limit
from rltune.agents.envs.wrappers import WRAPPER
from rltune.agents.errors import UserError
from rltune.agents.schedules import EXPONENTIAL, is_schedule, parse_schedule
from rltune.backends.names import OTHERS
from rltune.exporting.exportable import Exportable, commented
from rltune.exporting.sb3_words import AGENTS, NOISES, Code, Translation, look_at, translate
from rltune.runs.train_spec import TrainSpec


def check_known(spec: TrainSpec) -> None:
    """Raise `UserError` for agents and environments that only rltune or their author has."""
    if spec.agent.startswith(OTHERS):
        raise UserError(
            f"{spec.agent} is another library's agent already; --to yaml and --to json give its "
            "settings under that library's names."
        )
    if is_own(spec.agent):
        raise UserError(f"others don't know an agent of your own, such as {spec.agent!r}.")
    made_by = spec.env if is_own(spec.env) else str(find_spec(spec.env).entry_point)
    if made_by.startswith((UNITY, "rltune.")):
        raise UserError(f"environment {spec.env!r} comes with rltune; others don't know it.")


def _translated(spec: TrainSpec) -> Translation:
    check_known(spec)
    if spec.agent not in AGENTS:
        raise UserError(f"Stable-Baselines3 has no {spec.agent!r}; it has {', '.join(AGENTS)}.")
    env = look_at(spec.env, spec.env_kwargs, spec.config["frame_stack"])
    return translate(spec.agent, spec.config, env)


def _env_kwargs(spec: TrainSpec, words: Translation) -> dict[str, Any]:
    # AtariWrapper skips frames itself; gymnasium.make knows limits, what the user wrote may not.
    own = is_own(spec.env)
    kwargs = split_limit(spec.env, spec.env_kwargs)[0] if own else spec.env_kwargs
    kwargs = {name: value for name, value in kwargs.items() if not name.startswith(WRAPPER)}
    return {**kwargs, **({"frameskip": 1} if _is_atari(words) else {})}


def _is_atari(words: Translation) -> bool:
    return any(name.endswith("AtariWrapper") for name, _ in words.wrappers)


def _remarks(found: Exportable, words: Translation) -> list[str]:
    """Return remarks on the translation, as lines of a comment."""
    remarks = list(words.notes)
    if found.spec.controls:
        said = ", ".join(f"{name} {value}" for name, value in found.spec.controls.items())
        remarks.append(f"not in it: {said}")
    return remarks


# --------------------------------------------------------------------------------------------- zoo


def as_zoo(found: Exportable) -> str:
    """Return rl-zoo3's YAML, as in its hyperparams folder."""
    spec = found.spec
    if is_own(spec.env):
        raise UserError(
            f"rl-zoo3 knows registered environments alone, not {spec.env!r}; --to sb3 does it."
        )
    words = _translated(spec)
    values: dict[str, Any] = {
        "n_timesteps": spec.total_timesteps,
        "policy": words.policy,
        "n_envs": words.n_envs,
    }
    if kwargs := _env_kwargs(spec, words):
        values["env_kwargs"] = kwargs
    if words.wrappers:
        values["env_wrapper"] = [{name: kw} if kw else name for name, kw in words.wrappers]
    if words.frame_stack:
        values["frame_stack"] = words.frame_stack
    if words.normalize:
        everything = words.normalize == {"norm_obs": True, "norm_reward": True}
        values["normalize"] = everything or python(words.normalize)
    for name, value in words.arguments.items():
        if is_schedule(value) and not parse_schedule(value).falls_to_zero:
            raise UserError(
                f"rl-zoo3 knows lin_X alone, a line to 0, not {name} {value}; --to sb3 does it."
            )
    # None is not for schedules there, and it is the default of whatever may be None.
    values |= {name: value for name, value in words.arguments.items() if value is not None}
    if "replay_buffer_kwargs" in values:
        values["replay_buffer_kwargs"] = python(values["replay_buffer_kwargs"])
    if words.noise is not None:
        values["noise_type"], values["noise_std"] = words.noise
    values["policy_kwargs"] = python(words.policy_kwargs)
    text = yaml.safe_dump({spec.env: values}, sort_keys=False, allow_unicode=True, width=100)
    vectorised = " --vec-env subproc" if spec.config["vectorization"] == "async" else ""
    how = (
        f"python -m rl_zoo3.train --algo {spec.agent} --env {spec.env} --conf-file THIS_FILE "
        f"--seed {spec.seed}{vectorised}"
    )
    return commented([*found.header, *_remarks(found, words), how]) + text


# --------------------------------------------------------------------------------------------- sb3


def as_sb3(found: Exportable) -> str:
    """Return a script that trains the agent with Stable-Baselines3 and saves it."""
    spec = found.spec
    words = _translated(spec)
    name = f"{spec.agent}-{spec.env.split(':')[-1].split('/')[-1]}"
    body = [*_make_envs(spec, words), *_make_model(words), "model.learn(TIMESTEPS)"]
    body.append(f"model.save({python(name)})")
    if words.normalize:
        body.append(
            f"env.save({python(name + '-normalization.pkl')})  # VecNormalize.load reads it"
        )
    head = [f"TIMESTEPS = {spec.total_timesteps:_}", f"SEED = {spec.seed}"]
    used = [value.partition("(")[0] for value in map(python, words.arguments.values())]
    linear = [
        line for name, text in _SCHEDULES.items() if name in used for line in text.splitlines()
    ]
    main = ['if __name__ == "__main__":', *(f"    {line}" if line else "" for line in body)]
    lines = [*_imports(spec, words), "", *head, "", "", *linear, *main]
    return commented([*found.header, *_remarks(found, words)]) + "\n".join(lines) + "\n"


def _imports(spec: TrainSpec, words: Translation) -> list[str]:
    code = repr(words.policy_kwargs)
    first = ["import numpy as np"] if words.noise is not None else []
    if "th." in code:
        first.append("import torch as th")
    for module in sorted({name.rpartition(".")[0] for name, _ in words.wrappers}):
        names = sorted({n.rpartition(".")[2] for n, _ in words.wrappers if n.startswith(module)})
        first.append(f"from {module} import {', '.join(names)}")
    first.append(f"from {words.module} import {words.algorithm}")
    first.append("from stable_baselines3.common.env_util import make_vec_env")
    if words.noise is not None:
        first.append(f"from stable_baselines3.common.noise import {NOISES[words.noise[0]]}")
    kinds = [
        *(["SubprocVecEnv"] if spec.config["vectorization"] == "async" else []),
        *(["VecFrameStack"] if words.frame_stack else []),
        *(["VecNormalize"] if words.normalize else []),
    ]
    if kinds:
        first.append(f"from stable_baselines3.common.vec_env import {', '.join(kinds)}")
    first.append("from torch import nn")
    if is_own(spec.env):
        module, _, name = spec.env.partition(":")
        first.append(f"from {module} import {name}")
    elif _is_atari(words):
        first = ["import ale_py", "import gymnasium", *first, "", "gymnasium.register_envs(ale_py)"]
    return first


def _make_envs(spec: TrainSpec, words: Translation) -> list[str]:
    env = spec.env.partition(":")[2] if is_own(spec.env) else python(spec.env)
    options = [f"n_envs={words.n_envs}", "seed=SEED"]
    if kwargs := _env_kwargs(spec, words):
        options.append(f"env_kwargs={python(kwargs)}")
    if spec.config["vectorization"] == "async":
        options.append("vec_env_cls=SubprocVecEnv")
    lines = []
    if words.wrappers:
        lines.append("def wrapped(env):")
        for name, arguments in words.wrappers:
            given = "".join(f", {key}={python(value)}" for key, value in arguments.items())
            lines.append(f"    env = {name.rpartition('.')[2]}(env{given})")
        lines += ["    return env", ""]
        options.append("wrapper_class=wrapped")
    lines.append(f"env = make_vec_env({env}, {', '.join(options)})")
    if words.normalize:
        given = ", ".join(f"{name}={value}" for name, value in words.normalize.items())
        lines.append(f"env = VecNormalize(env, {given}, gamma={spec.config['gamma']!r})")
    if words.frame_stack:
        lines.append(f"env = VecFrameStack(env, {words.frame_stack})")
    return lines


def _make_model(words: Translation) -> list[str]:
    lines = []
    values = {name: python(value) for name, value in words.arguments.items()}
    if words.noise is not None:
        kind, std = words.noise
        lines.append("n = env.action_space.shape")
        values["action_noise"] = f"{NOISES[kind]}(np.zeros(n), np.full(n, {std!r}))"
    arguments = [f"    {name}={value}," for name, value in values.items()]
    policy = [f"        {name}={python(value)}," for name, value in words.policy_kwargs.items()]
    return [
        *lines,
        f"model = {words.algorithm}(",
        f"    {python(words.policy)},",
        "    env,",
        *arguments,
        *("    policy_kwargs=dict(", *policy, "    ),"),
        "    seed=SEED,",
        ")",
    ]


# Functions of a script: each gives one of what remains of the training.
_SCHEDULES = {
    "linear": """\
def linear(start):
    return lambda remaining: remaining * start


""",
    "exponential": """\
def exponential(start, end):
    return lambda remaining: end * (start / end) ** remaining


""",
    "piecewise": """\
def piecewise(points):
    def value(remaining):
        done, before = 1 - remaining, points[0]
        for after in points:
            if done < after[0] > before[0]:
                rest = (after[0] - done) / (after[0] - before[0])
                return after[1] + (before[1] - after[1]) * min(1, rest)
            before = after
        return before[1]

    return value


""",
}


def _schedule(text: str) -> str:
    schedule = parse_schedule(text)
    if schedule.falls_to_zero:
        return f"linear({schedule.initial!r})"
    if schedule.kind == EXPONENTIAL:
        return f"exponential({schedule.initial!r}, {schedule.values[-1]!r})"
    return f"piecewise({list(schedule.points)!r})"


def python(value: Any) -> str:
    """Return a value as Python; dicts as calls of dict, since that is how rl-zoo3 writes them."""
    if isinstance(value, dict):
        return f"dict({', '.join(f'{name}={python(part)}' for name, part in value.items())})"
    if is_schedule(value):
        return _schedule(value)
    if isinstance(value, str) and not isinstance(value, Code):
        return json.dumps(value)
    return 'float("inf")' if value == math.inf else repr(value)
