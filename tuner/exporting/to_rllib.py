"""Exports for RLlib: a script, its own algorithms as they were, ours in its words.

RLlib's PPO, DQN and SAC differ from ours in more than their hyperparameters; what RLlib has no
equal for is refused while it is switched on, and what it does in its own way is said in comments.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Mapping
from typing import Any

from rltune.agents.config import hyperparameters
from rltune.agents.envs.make import is_own, split_limit
from rltune.agents.envs.wrappers import WRAPPER
from rltune.agents.errors import UserError
from rltune.agents.registry import agent_class
from rltune.agents.schedules import EXPONENTIAL, is_schedule, parse_schedule
from rltune.backends.registry import backend_of
from rltune.backends.rllib.backend import RLlibBackend
from rltune.backends.rllib.config import algorithm_name
from rltune.exporting.exportable import Exportable, commented
from rltune.exporting.sb3_words import Code, EnvFacts, look_at
from rltune.exporting.to_sb3 import check_known, python
from rltune.runs.train_spec import TrainSpec

Config = Mapping[str, Any]
Sections = dict[str, dict[str, Any]]  # method of the AlgorithmConfig -> its arguments

AGENTS = ("ppo", "dqn", "sac")
_IMPORTS = {
    "env_to_module_connector": "from ray.rllib.connectors.env_to_module import MeanStdFilter",
}
_METHODS = ("environment", "env_runners", "learners", "training", "exploration", "fault_tolerance")

# Hyperparameters of ours that RLlib has words for.
_SAID = {
    *("n_envs", "gamma", "learning_rate", "max_grad_norm", "net_arch", "activation", "layer_norm"),
    *("normalize_observations", "normalize_rewards", "batch_size"),
}
_SAID_OF = {
    "ppo": {
        *("n_steps", "gae_lambda", "ent_coef", "vf_coef", "n_minibatches", "n_epochs"),
        *("clip_range", "shared_torso", "state_dependent_std"),
    },
    "dqn": {
        *("buffer_size", "learning_starts", "train_freq", "gradient_steps", "tau", "n_step"),
        *("target_update_interval", "exploration_initial_eps", "exploration_final_eps"),
        *("exploration_fraction", "double", "dueling", "prioritised", "priority_alpha"),
        *("priority_beta", "distributional", "n_atoms", "v_min", "v_max", "optimizer_eps"),
    },
    "sac": {
        *("buffer_size", "learning_starts", "train_freq", "gradient_steps", "tau", "n_step"),
        *("ent_coef", "target_entropy", "target_update_interval", "actor_learning_rate"),
        *("critic_learning_rate", "temperature_learning_rate"),
    },
}
# What RLlib does in its own way; said in a comment where ours is otherwise.
_ITS_OWN: Config = {
    "optimizer_eps": 1e-8,
    "weight_init": "torch",
    "log_std_init": 0.0,
    "normalize_advantage": True,
}
_SILENT = {
    *("rms_alpha", "sequence_length", "burn_in", "noisy_sigma", "n_quantiles", "vectorization"),
    *("sde_sample_freq", "frame_stack", "goal_selection_strategy", "n_learners"),
    *("num_actors", "max_policy_lag", "evaluation_actor"),
}


def as_rllib(found: Exportable) -> str:
    """Return a script that trains the agent with RLlib and saves it."""
    spec = found.spec
    remarks = [f"{name} {value} is not in it" for name, value in spec.controls.items()]
    if any(name.startswith(WRAPPER) for name in spec.env_kwargs):
        raise UserError("the script makes environments without wrappers; --to sb3 has them.")
    reward_gamma = None
    if isinstance(backend_of(spec.agent), RLlibBackend):
        algorithm = algorithm_name(spec.agent)
        sections = _as_it_is(spec)
        env = look_at(spec.env, spec.env_kwargs)
    else:
        check_known(spec)
        if spec.agent not in AGENTS:
            raise UserError(
                f"RLlib has no {spec.agent!r} as it is here; it has {', '.join(AGENTS)}."
            )
        env = look_at(spec.env, spec.env_kwargs)
        algorithm = spec.agent.upper()
        sections = _translated(spec, env)
        remarks += _remarks(spec.agent, spec.config, env)
        if spec.config["normalize_rewards"]:
            reward_gamma = spec.config["gamma"]
            remarks.append("the returns that it prints are of normalised rewards")
    wrappers = _wrappers(spec, env, reward_gamma)
    return commented([*found.header, *remarks]) + _script(spec, algorithm, sections, wrappers)


# --------------------------------------------------------------------------------- RLlib's own runs


def _as_it_is(spec: TrainSpec) -> Sections:
    """Return the configuration of ``rllib:NAME``, which is under RLlib's names, as RLlib takes it.

    Raises:
        UserError: a setting is one of rltune's, such as recorded data.
    """
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from rltune.backends.rllib.config import defaults

    config = defaults(algorithm_name(spec.agent))
    model = {field.name for field in dataclasses.fields(DefaultModelConfig)}
    sections: Sections = {"env_runners": {"num_env_runners": 0}, "rl_module": {}, "training": {}}
    for name, value in spec.config.items():
        if name in model:
            sections["rl_module"][name] = value
            continue
        method = next((method for method in _METHODS if _takes(config, method, name)), None)
        if method is None:
            raise UserError(f"--to rllib can't say {name}, which is rltune's own; --to rltune can.")
        value = None if name == "grad_clip" and not value else value
        sections.setdefault(method, {})[name] = value
    if "actor_lr" in spec.config:
        sections["training"]["lr"] = None  # RLlib insists on it
    return sections


def _takes(config: object, method: str, name: str) -> bool:
    """Whether a method of a configuration, its own or inherited, has a parameter."""
    found = [vars(kind).get(method) for kind in type(config).__mro__]
    return any(name in inspect.signature(m).parameters for m in found if m is not None)


# -------------------------------------------------------------------------------------------- ours


def _translated(spec: TrainSpec, env: EnvFacts) -> Sections:
    agent, config = spec.agent, spec.config
    if missing := _without_equal(agent, config, env):
        shown = ", ".join(f"{name} ({config[name]} here)"[:60] for name in missing)
        raise UserError(f"RLlib's {agent.upper()} has no equal for {shown}.")
    if env.images or env.mixed:
        raise UserError("--to rllib is for environments with vectors, not with images.")
    if env.masked:
        raise UserError("--to rllib knows no action masks, and this environment offers them.")
    if agent == "sac" and not env.box_actions:
        raise UserError("--to rllib knows SAC for Box actions alone.")
    runners: dict[str, Any] = {"num_env_runners": 0, "num_envs_per_env_runner": config["n_envs"]}
    if config["normalize_observations"]:
        runners["env_to_module_connector"] = Code("lambda env, spaces, device: MeanStdFilter()")
    model: dict[str, Any] = {
        "fcnet_hiddens": list(config["net_arch"]),
        "fcnet_activation": config["activation"],
        "fcnet_use_layernorm": config["layer_norm"],
        "head_fcnet_hiddens": [],
    }
    training: dict[str, Any] = {
        "gamma": config["gamma"],
        "grad_clip": config["max_grad_norm"] or None,
        "grad_clip_by": "global_norm",
    }
    if agent == "ppo":
        training |= _ppo(spec)
        model["vf_share_layers"] = config["shared_torso"]
        if env.box_actions:
            model["free_log_std"] = not config["state_dependent_std"]
    else:
        runners["rollout_fragment_length"] = max(1, config["train_freq"] // config["n_envs"])
        training |= _replay(config)
        training |= _dqn(spec) if agent == "dqn" else _sac(spec)
        if config.get("dueling") and len(config["net_arch"]) > 1:  # ours is split before the last
            model["fcnet_hiddens"] = list(config["net_arch"][:-1])
            model["head_fcnet_hiddens"] = [config["net_arch"][-1]]
            model["head_fcnet_activation"] = config["activation"]
    sections: Sections = {"env_runners": runners, "rl_module": model, "training": training}
    if agent == "ppo" and env.box_actions:  # ours are clipped, too, not squashed
        sections["environment"] = {"normalize_actions": False, "clip_actions": True}
    return sections


def _without_equal(agent: str, config: Config, env: EnvFacts) -> list[str]:
    """Return the hyperparameters that RLlib has no equal for, as far as they are switched on."""
    known = hyperparameters(agent_class(agent).Config)
    said = {*_SAID, *_SAID_OF[agent], *_SILENT, *_ITS_OWN}
    found = [n for n in known if n not in said and config[n] not in (known[n].default, "mlp")]
    if config["frame_stack"] > 1:
        found.append("frame_stack")
    if agent == "dqn" and config["distributional"] == "qr":
        found.append("distributional")
    if agent == "ppo" and is_schedule(config["clip_range"]):
        found.append("clip_range")
    return found


def _rate(spec: TrainSpec, name: str = "learning_rate") -> Any:
    """Return RLlib's learning rate: a number, or points of straight lines."""
    value = spec.config[name] or spec.config["learning_rate"]
    schedule = parse_schedule(value)
    if schedule.kind == EXPONENTIAL:
        raise UserError(f"RLlib knows straight lines alone, not {name} {value}.")
    if not schedule.kind:
        return schedule.initial
    points = [[round(part * spec.total_timesteps), number] for part, number in schedule.points]
    return points if points[0][0] == 0 else [[0, schedule.initial], *points]


def _ppo(spec: TrainSpec) -> dict[str, Any]:
    config = spec.config
    rows = config["n_steps"] * config["n_envs"]
    size = config["batch_size"]
    if config["n_minibatches"]:
        size = max(1, rows // config["n_minibatches"])
    return {
        "lr": _rate(spec),
        "train_batch_size_per_learner": rows,
        "minibatch_size": min(size, rows),
        "num_epochs": config["n_epochs"],
        "lambda_": config["gae_lambda"],
        "clip_param": float(config["clip_range"]),
        "vf_clip_param": math.inf,
        "vf_loss_coeff": config["vf_coef"],
        "entropy_coeff": config["ent_coef"],
        "use_kl_loss": False,
    }


def _replay(config: Config) -> dict[str, Any]:
    steps = config["gradient_steps"]
    updates = 1.0 if steps < 0 else steps / config["train_freq"]  # an env step
    return {
        "train_batch_size_per_learner": config["batch_size"],
        "training_intensity": config["batch_size"] * updates,
        "num_steps_sampled_before_learning_starts": config["learning_starts"],
        "tau": config["tau"],
        "n_step": config["n_step"],
    }


def _dqn(spec: TrainSpec) -> dict[str, Any]:
    config = spec.config
    end = max(1, round(config["exploration_fraction"] * spec.total_timesteps))
    first, last = config["exploration_initial_eps"], config["exploration_final_eps"]
    replay: dict[str, Any] = {"type": "EpisodeReplayBuffer", "capacity": config["buffer_size"]}
    if config["prioritised"]:
        replay["type"] = "PrioritizedEpisodeReplayBuffer"
        replay |= {"alpha": config["priority_alpha"], "beta": config["priority_beta"]}
    return {
        "lr": _rate(spec),
        "adam_epsilon": config["optimizer_eps"],
        "target_network_update_freq": config["target_update_interval"],
        "epsilon": [[0, first], [end, last]],
        "double_q": config["double"],
        "dueling": config["dueling"],
        "num_atoms": config["n_atoms"] if config["distributional"] == "c51" else 1,
        "v_min": config["v_min"],
        "v_max": config["v_max"],
        "replay_buffer_config": replay,
    }


def _sac(spec: TrainSpec) -> dict[str, Any]:
    config = spec.config
    text, target = config["ent_coef"], config["target_entropy"]
    learned = text.startswith("auto")
    start = "1" if text == "auto" else text.removeprefix("auto_")
    # RLlib counts env steps, ours updates.
    every = config["target_update_interval"]
    if every > 1:
        steps = config["gradient_steps"]
        every = max(1, round(every * (1 if steps < 0 else config["train_freq"] / steps)))
    return {
        "lr": None,  # RLlib insists on it
        "actor_lr": _rate(spec, "actor_learning_rate"),
        "critic_lr": _rate(spec, "critic_learning_rate"),
        "alpha_lr": _rate(spec, "temperature_learning_rate") if learned else 0.0,
        "initial_alpha": float(start),
        "target_entropy": target if target == "auto" else float(target),
        "target_network_update_freq": every if every > 1 else 0,
        "twin_q": True,
        "replay_buffer_config": {
            "type": "EpisodeReplayBuffer",
            "capacity": config["buffer_size"],
        },
    }


def _remarks(agent: str, config: Config, env: EnvFacts) -> list[str]:
    """Return a line on each thing that RLlib does in its own way."""
    remarks = []
    for name, there in _ITS_OWN.items():
        if name not in config or config[name] == there or name in _SAID_OF[agent]:
            continue
        if name == "log_std_init" and (agent == "sac" or not env.box_actions):
            continue
        here = str(config[name]).lower() if isinstance(config[name], bool) else config[name]
        remarks.append(f"RLlib cannot set {name}: {here} here, {str(there).lower()} there")
    if agent == "ppo":
        remarks.append("RLlib normalises the advantages of a whole batch; ours, of each minibatch")
    return remarks


# ------------------------------------------------------------------------------------------ script


_TRAINING = """\
if __name__ == "__main__":
    algorithm = config.build_algo()
    steps = 0
    while steps < TIMESTEPS:
        result = algorithm.train()
        steps = result["num_env_steps_sampled_lifetime"]
        print(int(steps), result["env_runners"].get("episode_return_mean"))
    print(algorithm.save_to_path())
    algorithm.stop()
"""


def _script(spec: TrainSpec, algorithm: str, sections: Sections, wrappers: list[str]) -> str:
    """Return the script; ``wrappers``: expressions that make another environment of ``env``."""
    own = is_own(spec.env)
    makes_env = own or bool(wrappers)
    lines = [
        *_imports(spec, algorithm, sections, wrappers),
        "",
        f"TIMESTEPS = {spec.total_timesteps:_}",
        f"SEED = {spec.seed}",
        "",
        *(_env_function(spec, wrappers) if makes_env else []),
        "config = (",
        f"    {algorithm}Config()",
        *_calls(_completed(spec, sections, "env" if makes_env else spec.env)),
        ")",
        "",
        _TRAINING,
    ]
    return "\n".join(lines)


def _imports(spec: TrainSpec, algorithm: str, sections: Sections, wrappers: list[str]) -> list[str]:
    imports = [f"from {_folder(algorithm)} import {algorithm}Config"]
    if "env_to_module_connector" in sections.get("env_runners", {}):
        imports.append(_IMPORTS["env_to_module_connector"])
    if is_own(spec.env) or wrappers:
        imports = ["import gymnasium", *imports, "from ray.tune.registry import register_env"]
    if any("np." in wrapper for wrapper in wrappers):
        imports.insert(1, "import numpy as np")
    if is_own(spec.env):
        module, _, name = spec.env.partition(":")
        imports.append(f"from {module} import {name}")
    return imports


def _completed(spec: TrainSpec, sections: Sections, env: str) -> Sections:
    """Return the arguments of all methods, in the order of their calls."""
    values = {name: arguments for name, arguments in sections.items() if arguments}
    kwargs = split_limit(spec.env, spec.env_kwargs)[0] if is_own(spec.env) else spec.env_kwargs
    environment = {"env": env, **({"env_config": kwargs} if kwargs else {})}
    values = {"environment": {**environment, **values.pop("environment", {})}, **values}
    values["learners"] = {"num_learners": 0, **values.get("learners", {})}
    if "rl_module" in values:
        values["rl_module"] = {"model_config": values["rl_module"]}
    # An iteration is a second long, so that the last one does not go far beyond the budget.
    shortest = {"min_time_s_per_iteration": 1, "min_sample_timesteps_per_iteration": 0}
    return {**values, "reporting": shortest, "debugging": {"seed": Code("SEED")}}


def _calls(values: Sections) -> list[str]:
    """Return the calls of methods, one behind the other."""
    lines = []
    for method, arguments in values.items():
        if method == "environment":
            first = python(arguments["env"])
            rest = [f"{n}={_literal(value)}" for n, value in arguments.items() if n != "env"]
            lines.append(f"    .environment({', '.join([first, *rest])})")
            continue
        lines.append(f"    .{method}(")
        lines += [f"        {name}={_literal(value)}," for name, value in arguments.items()]
        lines.append("    )")
    return lines


def _folder(algorithm: str) -> str:
    """Return the module of an algorithm's configuration."""
    from ray.rllib.algorithms.registry import ALGORITHMS

    module = type(ALGORITHMS[algorithm]()[1]).__module__
    return module.rpartition(".")[0]  # the package has it, too


def _wrappers(spec: TrainSpec, env: EnvFacts, gamma: float | None) -> list[str]:
    """Return the wrappers of each environment as expressions; ``gamma``: of normalised rewards."""
    found = []
    if is_own(spec.env) and (limit := split_limit(spec.env, spec.env_kwargs)[1]) is not None:
        found.append(f"TimeLimit(env, {limit})")
    if env.flattened:  # one-hot where it is Discrete, as our agents see it
        found += ["FlattenObservation(env)", "DtypeObservation(env, np.float32)"]
    if gamma is not None:
        found.append(f"NormalizeReward(env, gamma={gamma!r})")
        clip = "lambda reward: max(-10.0, min(10.0, float(reward)))"
        found.append(f"TransformReward(env, {clip})")
    return found


def _env_function(spec: TrainSpec, wrappers: list[str]) -> list[str]:
    made = f"gymnasium.make({python(spec.env)}, **settings)"
    if is_own(spec.env):
        made = f"{spec.env.partition(':')[2]}(**settings)"
    lines = ["", "def make_env(settings):", f"    env = {made}"]
    lines += [f"    env = gymnasium.wrappers.{wrapper}" for wrapper in wrappers]
    return [*lines, "    return env", "", "", 'register_env("env", make_env)', ""]


def _literal(value: Any) -> str:
    """Return a value as Python; dicts with braces, since RLlib takes them as they are."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{python(k)}: {_literal(v)}" for k, v in value.items()) + "}"
    return python(list(value) if isinstance(value, tuple) else value)
