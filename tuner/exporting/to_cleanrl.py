"""Exports for CleanRL (vwxyzjn/cleanrl, state of April 2026): the command line of a script.

The scripts have fixed networks and optimizers, and no switch for much else; values of a
configuration that they cannot be told stand in comments above the command.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from typing import Any

from rltune.agents.config import hyperparameters
from rltune.agents.envs.make import is_own
from rltune.agents.errors import UserError
from rltune.agents.registry import agent_class
from rltune.agents.schedules import is_schedule, parse_schedule
from rltune.common.plain import plain
from rltune.exporting.exportable import Exportable, commented
from rltune.exporting.sb3_words import EnvFacts, look_at
from rltune.exporting.to_sb3 import check_known

Config = Mapping[str, Any]
Flags = dict[str, Any]  # True and False become --flag and --no-flag

SCRIPTS = {
    "ppo": "ppo.py",
    "dqn": "dqn.py",
    "ddpg": "ddpg_continuous_action.py",
    "td3": "td3_continuous_action.py",
    "sac": "sac_continuous_action.py",
}
# What the scripts do, whatever one says.
_PPO: Config = {
    "net_arch": [64, 64],
    "activation": "tanh",
    "weight_init": "orthogonal",
    "optimizer_eps": 1e-5,
    "log_std_init": 0.0,
}
_REPLAY: Config = {
    "n_envs": 1,
    "net_arch": [256, 256],
    "activation": "relu",
    "weight_init": "torch",
    "optimizer_eps": 1e-8,
    "max_grad_norm": 0.0,
    "train_freq": 1,
    "gradient_steps": 1,
    "target_entropy": "auto",
    "noise_type": "normal",
}
_DQN: Config = {**_REPLAY, "net_arch": [120, 84], "n_step": 1}
# Without a meaning as long as what they belong to is off or said.
_SILENT = {
    *("sequence_length", "burn_in", "rms_alpha", "priority_alpha", "priority_beta", "n_atoms"),
    *("noisy_sigma", "v_min", "v_max", "n_quantiles", "vectorization", "sde_sample_freq"),
    *("encoder", "n_minibatches", "goal_selection_strategy", "n_learners"),
    *("num_actors", "max_policy_lag", "evaluation_actor"),
}


def as_cleanrl(found: Exportable) -> str:
    """Return the command, to be run in CleanRL's folder."""
    spec = found.spec
    check_known(spec)
    if spec.agent not in SCRIPTS:
        raise UserError(f"CleanRL has no {spec.agent!r} here; it has {', '.join(SCRIPTS)}.")
    if is_own(spec.env) or spec.env_kwargs:
        raise UserError("CleanRL's scripts make registered environments alone, without arguments.")
    env = look_at(spec.env)
    script = _script(spec.agent, env)
    flags: Flags = {
        "env_id": spec.env,
        "total_timesteps": spec.total_timesteps,
        "seed": spec.seed,
        "gamma": spec.config["gamma"],
    }
    said, fixed = {"gamma"}, dict(_REPLAY)
    if spec.agent == "ppo":
        flags |= _ppo(spec.config)
        said |= _PPO_SAID
        normal = env.box_actions
        fixed = {**_PPO, "normalize_observations": normal, "normalize_rewards": normal}
    else:
        if spec.agent == "dqn":
            flags |= _dqn(spec.config)
            fixed = dict(_DQN)
        else:
            flags |= _actor_critic(spec.agent, spec.config)
        said |= _REPLAY_SAID
        said |= _SAC_SAID if spec.agent == "sac" else set()
    remarks = _remarks(spec.agent, spec.config, fixed, said, env)
    words = ["python", f"cleanrl/{script}"]
    for name, value in flags.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", str(value)]
    controls = [f"{name} {value} is not in it" for name, value in spec.controls.items()]
    return commented([*found.header, *remarks, *controls]) + shlex.join(words) + "\n"


def _script(agent: str, env: EnvFacts) -> str:
    if env.images or env.mixed:
        raise UserError("of CleanRL, only the scripts for vectors are known here, not for images.")
    if env.flattened:
        raise UserError(
            "CleanRL's scripts read observations of a Box alone, and these have to be made vectors "
            "first; --to sb3 and --to rllib do that."
        )
    if agent == "ppo" and env.box_actions:
        return "ppo_continuous_action.py"
    if agent in ("ppo", "dqn") and not env.discrete_actions:
        raise UserError(f"CleanRL's {SCRIPTS[agent]} is for discrete actions alone.")
    if agent not in ("ppo", "dqn") and not env.box_actions:
        raise UserError(f"CleanRL's {SCRIPTS[agent]} is for Box actions alone.")
    return SCRIPTS[agent]


# --------------------------------------------------------------------------------- what can be said

_PPO_SAID = {
    *("learning_rate", "n_envs", "n_steps", "gae_lambda", "batch_size", "n_epochs", "clip_range"),
    *("normalize_advantage", "clip_range_vf", "ent_coef", "vf_coef", "max_grad_norm", "target_kl"),
}
_REPLAY_SAID = {
    *("learning_rate", "buffer_size", "learning_starts", "batch_size", "tau", "noise_std"),
    *("exploration_initial_eps", "exploration_final_eps", "exploration_fraction", "policy_delay"),
    *("target_update_interval", "target_policy_noise", "target_noise_clip", "ent_coef"),
}
_SAC_SAID = {"actor_learning_rate", "critic_learning_rate", "temperature_learning_rate"}


def _ppo(config: Config) -> Flags:
    rate = parse_schedule(config["learning_rate"])
    flags: Flags = {
        "learning_rate": rate.initial,
        "anneal_lr": rate.falls_to_zero,
        "num_envs": config["n_envs"],
        "num_steps": config["n_steps"],
        "gae_lambda": config["gae_lambda"],
        "num_minibatches": _minibatches(config),
        "update_epochs": config["n_epochs"],
        "norm_adv": bool(config["normalize_advantage"]),
        "clip_coef": parse_schedule(config["clip_range"]).initial,
        "clip_vloss": parse_schedule(config["clip_range_vf"]).initial > 0,
        "ent_coef": config["ent_coef"],
        "vf_coef": 2 * config["vf_coef"],  # CleanRL halves the value loss
        "max_grad_norm": config["max_grad_norm"] or math.inf,
    }
    if config["target_kl"]:
        flags["target_kl"] = 1.5 * config["target_kl"]  # ours ends beyond 1.5 times it
    return flags


def _minibatches(config: Config) -> int:
    rows = config["n_steps"] * config["n_envs"]
    return int(config["n_minibatches"] or max(1, round(rows / config["batch_size"])))


def _replay(config: Config) -> Flags:
    names = ("buffer_size", "learning_starts", "batch_size", "tau")
    return {name: config[name] for name in names}


def _dqn(config: Config) -> Flags:
    return {
        "learning_rate": parse_schedule(config["learning_rate"]).initial,
        **_replay(config),
        "target_network_frequency": config["target_update_interval"],
        "start_e": config["exploration_initial_eps"],
        "end_e": config["exploration_final_eps"],
        "exploration_fraction": config["exploration_fraction"],
        "train_frequency": max(1, round(_steps_an_update(config))),
    }


def _steps_an_update(config: Config) -> float:
    """Return the env steps to each gradient step."""
    steps = config["gradient_steps"]
    return 1.0 if steps < 0 else float(config["train_freq"] / max(1, steps))


def _actor_critic(agent: str, config: Config) -> Flags:
    rate = parse_schedule(config["learning_rate"]).initial
    if agent == "sac":
        text = config["ent_coef"]
        learned = text.startswith("auto")
        actor, critic = (
            parse_schedule(config[f"{name}_learning_rate"] or config["learning_rate"]).initial
            for name in ("actor", "critic")
        )
        return {
            **{"policy_lr": actor, "q_lr": critic, **_replay(config), "policy_frequency": 1},
            "target_network_frequency": config["target_update_interval"],
            "autotune": learned,
            **({} if learned else {"alpha": float(text)}),
        }
    flags = {"learning_rate": rate, **_replay(config), "exploration_noise": config["noise_std"]}
    if agent == "ddpg":
        return {**flags, "policy_frequency": 1}
    return {
        **flags,
        "policy_frequency": config["policy_delay"],
        "policy_noise": config["target_policy_noise"],
        "noise_clip": config["target_noise_clip"],
    }


# ------------------------------------------------------------------------------- what can't be said


def _remarks(agent: str, config: Config, fixed: Config, said: set[str], env: EnvFacts) -> list[str]:
    """Return a line on each value that the script has otherwise."""
    known = hyperparameters(agent_class(agent).Config)
    remarks = []
    for name, parameter in known.items():
        if name in said or name in _SILENT:
            continue
        if name == "log_std_init" and (agent == "sac" or not env.box_actions):
            continue
        if agent == "dqn" and name in ("train_freq", "gradient_steps"):
            continue
        there = fixed.get(name, plain(parameter.default))
        if plain(config[name]) != there:
            remarks.append(f"CleanRL cannot set {name}: {_text(config[name])} here, {_text(there)}")
            remarks[-1] += " there"
    remarks += _schedules(config, agent)
    remarks += _ppo_remarks(config) if agent == "ppo" else []
    if agent == "dqn":
        remarks.append("CleanRL's loss is the squared error; here it is Huber's")
        if config["train_freq"] != 1 or config["gradient_steps"] not in (1, -1):
            every = _steps_an_update(config)
            remarks.append(
                "CleanRL makes one update at a time: here, an update each "
                f"{every:.6g} env steps comes in bursts each {config['train_freq']}"
            )
    if agent == "sac" and config["ent_coef"].startswith("auto"):
        shared = config["learning_rate"]
        rate = config["temperature_learning_rate"] or shared
        if rate != (config["critic_learning_rate"] or shared):
            remarks.append(f"CleanRL's temperature learns at --q-lr; here its rate is {rate}")
    if agent == "sac" and config["ent_coef"].startswith("auto_"):
        remarks.append(f"CleanRL's temperature begins at 1; here ent_coef is {config['ent_coef']}")
    return remarks


def _schedules(config: Config, agent: str) -> list[str]:
    names = ["clip_range", "clip_range_vf"] if agent == "ppo" else ["learning_rate"]
    if agent == "sac":
        names += ["actor_learning_rate", "critic_learning_rate"]
    changing = {name: config[name] for name in names if is_schedule(config[name])}
    rate = config["learning_rate"]
    if agent == "ppo" and is_schedule(rate) and not parse_schedule(rate).falls_to_zero:
        changing["learning_rate"] = rate
    return [
        f"CleanRL keeps {name} at its first value; here it is {value}"
        for name, value in changing.items()
    ]


def _ppo_remarks(config: Config) -> list[str]:
    remarks = []
    rows, n = config["n_steps"] * config["n_envs"], _minibatches(config)
    if not config["n_minibatches"] and rows != n * config["batch_size"]:
        size = rows // n
        remarks.append(f"CleanRL's minibatches have {size} rows; batch_size is here ")
        remarks[-1] += str(config["batch_size"])
    clip = config["clip_range_vf"]
    if clip:
        remarks.append(f"CleanRL clips values by --clip-coef; here clip_range_vf is {clip}")
    return remarks


def _text(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return ",".join(map(str, value))
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text.replace("\n", " ")[:40] or "none"
