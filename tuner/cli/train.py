"""`rltune train`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import UserError
from rltune.agents.registry import HELP as AGENTS
from rltune.cli.flags import parse_flags, parse_mapping
from rltune.cli.run import add_trackers
from rltune.scales import HELP as ENVS

if TYPE_CHECKING:
    from rltune.agents.config import Hyperparameter

TRAIN_HELP = """\
Train one agent.

  rltune train ppo --env CartPole-v1 -n 1e5 --learning-rate 3e-4
  rltune train td3 --env Pendulum-v1 -n 2e4 --preset zoo
  rltune train ppo --env CartPole-v1 --config runs/my-search/best/config.yaml
  rltune train ppo --config exported.yaml
  rltune train my_module:MyAgent --env my_module:MyEnv

Every hyperparameter of the agent is a flag: rltune train ppo --help lists them, and the presets.
"""
CONTROLS = (
    "target_reward",
    "reward_buffer_size",
    "plateau_patience",
    "plateau_factor",
    "early_stop_patience",
    "monitor_from",
)


class _Help(argparse.Action):
    """Print the help, with the hyperparameters of the agent if one is named before it."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: Any
    ) -> None:
        parser.print_help()
        agent = getattr(namespace, "agent", None)
        if agent:
            print(hyperparameter_help(agent))
        parser.exit()


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    train = subparsers.add_parser(
        "train",
        help="train one agent",
        description=TRAIN_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    train.set_defaults(main=main)
    train.add_argument("-h", "--help", action=_Help, nargs=0, help="show this and stop")
    train.add_argument("agent", help=AGENTS)
    what = train.add_argument_group("what is trained")
    what.add_argument("--env", help=ENVS)
    what.add_argument("--env-kwargs", metavar="YAML", help='such as "{continuous: true}"')
    what.add_argument(
        "-n",
        "--total-timesteps",
        "--n-timesteps",
        "--max-steps",
        "--budget",
        type=_number,
        metavar="STEPS",
        help="env_steps of the whole training; default: 1e5",
    )
    what.add_argument("--seed", type=_number, help="default: 0")
    what.add_argument(
        "--config",
        metavar="FILE",
        help="hyperparameters in YAML, or what rltune export --to yaml wrote; flags override",
    )
    what.add_argument(
        "--preset", metavar="NAME", help="known-good hyperparameters for --env; flags override"
    )
    what.add_argument(
        "--schedule",
        metavar="FILE",
        help="hyperparameters that change on the way, in YAML: a list of {env_steps, config}",
    )
    what.add_argument("--device", default="auto", help="cpu, cuda or auto (default)")
    watch = train.add_argument_group("evaluation")
    watch.add_argument(
        "--eval-freq", type=_number, metavar="STEPS", help="default: a 20th of the training"
    )
    watch.add_argument(
        "--eval-episodes", type=_number, default=10, metavar="N", help="greedy ones; default: 10"
    )
    rules = train.add_argument_group("when it ends early, when the learning rate falls")
    rules.add_argument("--target-reward", type=float, help="end when the mean reward reaches it")
    rules.add_argument(
        "--reward-buffer-size", type=_number, metavar="N", help="episodes in it; default: 100"
    )
    rules.add_argument(
        "--plateau-patience",
        "--plateau-reduce-patience",
        type=_number,
        metavar="N",
        help="lower the learning rate after so many episodes without a new best mean reward",
    )
    rules.add_argument(
        "--plateau-factor", "--plateau-reduce-factor",
        type=float, help="by this factor; default: 0.9",
    )  # fmt: skip
    rules.add_argument(
        "--early-stop-patience", type=_number, metavar="N", help="end after so many reductions"
    )
    rules.add_argument(
        "--monitor-from", "--divergence-monitoring-steps",
        type=_number, metavar="STEPS", help="none of this before; default: 0",
    )  # fmt: skip
    files = train.add_argument_group("files and tracking")
    files.add_argument("--name", help="of the run; default: agent, environment, date")
    files.add_argument("--storage-path", "--storage", metavar="DIR", help="default: runs")
    files.add_argument(
        "--wandb", default="auto", metavar="MODE", help="auto (default), online, offline or off"
    )
    files.add_argument("--track", dest="wandb", action="store_const", const="online")
    files.add_argument("--wandb-project", "--wandb-project-name", metavar="NAME")
    files.add_argument("--wandb-entity", metavar="NAME")
    files.add_argument("--wandb-group", metavar="NAME")
    add_trackers(files)
    files.add_argument("--plain", action="store_true", help="lines instead of a progress bar")


def _number(text: str) -> int:
    value = float(text)
    if value != int(value):
        raise ValueError
    return int(value)


_number.__name__ = "whole number"


def main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Train."""
    from rltune.agents.config import hyperparameters
    from rltune.learners import config_class
    from rltune.presets import preset
    from rltune.rundir import STORAGE
    from rltune.train import TrainSpec, print_result, train

    if args.preset is not None and args.config is not None:
        raise UserError("--preset and --config both give all hyperparameters; keep one of them")
    known = hyperparameters(config_class(args.agent))
    config = read_flags(parse_flags(args, extra, known), args.agent, known)
    given = read_training(args.config, args.agent)
    env = args.env or given.get("env")
    if env is None:
        raise UserError("which environment? Give --env, or --config with an exported file.")
    if args.preset is not None:
        config = preset(args.agent, env, args.preset, config)
    else:
        config = {**given["config"], **config}
    controls = {name: getattr(args, name) for name in CONTROLS if getattr(args, name) is not None}
    spec = TrainSpec(
        agent=args.agent,
        env=env,
        total_timesteps=_first(args.total_timesteps, given.get("budget"), 100_000),
        config=config,
        schedule=read_schedule(args.schedule, args.agent) or given.get("schedule", []),
        env_kwargs=parse_mapping("--env-kwargs", args.env_kwargs or "{}")
        or given.get("env_kwargs", {}),
        seed=_first(args.seed, given.get("seed"), 0),
        device=args.device,
        eval_freq=args.eval_freq,
        eval_episodes=args.eval_episodes,
        controls={**given.get("controls", {}), **controls},
        wandb=args.wandb,
        wandb_project=args.wandb_project,
        wandb_entity=args.wandb_entity,
        wandb_group=args.wandb_group,
        tensorboard=bool(args.tensorboard),
        mlflow=args.mlflow,
    )
    storage = args.storage_path or STORAGE
    result = train(spec, name=args.name, storage_path=storage, plain=args.plain)
    print_result(result)
    return result.exit_code


def _first(*values: Any) -> Any:
    """Return the first value that there is."""
    return next(value for value in values if value is not None)


def read_training(file: str | None, agent: str) -> dict[str, Any]:
    """Return what a YAML file says of a training, its ``config`` under our own names.

    The file is a mapping of hyperparameters, or what `rltune export --to yaml` writes: then there
    may be env, env_kwargs, budget, seed, schedule and controls beside the configuration.

    Raises:
        UserError: there is no such file, it is of another agent, or what is wrong with a value.
    """
    if file is None:
        return {"config": {}}
    from pathlib import Path

    from rltune.agents.config import config_dict, make_config
    from rltune.learners import config_class
    from rltune.recipes import as_recipe
    from rltune.yaml_lines import read_yaml

    data, _ = read_yaml(Path(file))
    if not isinstance(data, dict):
        raise UserError(f"{file}: not a mapping of hyperparameters to values")
    given = as_recipe(data, file) or {"config": data}
    if given.get("agent", agent).lower() != agent.lower():
        raise UserError(f"{file} is of the agent {given['agent']!r}, not of {agent!r}")
    if "schedule" in given:
        given["schedule"] = checked_schedule(given["schedule"], agent, file)
    return {**given, "config": config_dict(make_config(config_class(agent), given["config"], file))}


def read_schedule(file: str | None, agent: str) -> list[dict[str, Any]]:
    """Return the changes of the hyperparameters in a YAML file, under our own names.

    Raises:
        UserError: the file is no list of changes, or one of them can't be made.
    """
    if file is None:
        return []
    from pathlib import Path

    from rltune.yaml_lines import read_yaml

    return checked_schedule(read_yaml(Path(file))[0], agent, file)


def checked_schedule(data: Any, agent: str, file: str) -> list[dict[str, Any]]:
    """Return the changes in the data of a file; see `read_schedule`."""
    from rltune.agents.config import canonical_name, hyperparameters
    from rltune.dimensions import checked_value
    from rltune.learners import config_class

    kind = config_class(agent)
    known = hyperparameters(kind)
    changes: list[dict[str, Any]] = []
    for change in data if isinstance(data, list) else [data]:
        if not (
            isinstance(change, dict)
            and isinstance(change.get("env_steps"), int)
            and isinstance(change.get("config"), dict)
        ):
            raise UserError(f"{file}: not a list of {{env_steps: N, config: {{name: value}}}}")
        own = {canonical_name(kind, name, file): value for name, value in change["config"].items()}
        for name in own:
            if not known[name].mutable and change["env_steps"] > 0:
                raise UserError(f"{file}: {name} can't change in a training that has begun")
        values = {name: checked_value(known[name], value) for name, value in own.items()}
        changes.append({"env_steps": change["env_steps"], "config": values})
    return sorted(changes, key=lambda change: change["env_steps"])


def read_flags(
    flags: Mapping[str, Sequence[str]], agent: str, known: dict[str, Hyperparameter]
) -> dict[str, Any]:
    """Return the hyperparameters given as flags, under our own names.

    ``--use-sde`` alone means true, ``--no-use-sde`` false.
    """
    from rltune.agents.config import canonical_name, coerce
    from rltune.learners import config_class

    values: dict[str, Any] = {}
    for flag, words in flags.items():
        negated = flag.startswith("no-") or flag.startswith("no_")
        name = canonical_name(config_class(agent), flag[3:] if negated else flag, f"--{flag}")
        parameter = known[name]
        if parameter.type == "bool" and not words:
            words = ["false" if negated else "true"]
        elif negated or not words:
            raise UserError(f"--{flag} needs a value")
        if len(words) > 1 and parameter.type != "ints":
            raise UserError(
                f"--{flag} {' '.join(words)}: a training takes one value; several are a search: "
                f"rltune run {agent}"
            )
        values[name] = coerce(parameter, ",".join(words), f"--{flag}")
    return values


def hyperparameter_help(agent: str) -> str:
    """Return the help of an agent's hyperparameters and presets."""
    import textwrap

    from rltune.agents.config import hyperparameters
    from rltune.learners import config_class
    from rltune.presets import environments, presets

    lines = [f"\nhyperparameters of {agent}, with their defaults and sensible ranges:"]
    for parameter in hyperparameters(config_class(agent)).values():
        flag = f"  --{parameter.name.replace('_', '-')} {_shown(parameter.default)}"
        facts = f"{parameter.help} {_range(parameter)}".strip()
        lines += textwrap.wrap(facts, 100, initial_indent=f"{flag:<34}", subsequent_indent=" " * 34)
    known = environments(presets(agent))
    if known:
        lines.append(f"\npresets of {agent}, and the environments that they are for:")
    for name, text in known.items():
        head = f"  --preset {name}"
        lines += textwrap.wrap(text, 100, initial_indent=f"{head:<34}", subsequent_indent=" " * 34)
    return "\n".join(lines)


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _range(parameter: Hyperparameter) -> str:
    if parameter.choices is not None:
        return f"[{', '.join(map(str, parameter.choices))}]"
    if parameter.low is None or parameter.high is None:
        return ""
    scale = "" if parameter.scale == "uniform" else f", {parameter.scale}"
    schedule = "; or lin_X: linear to 0" if parameter.schedule else ""
    return f"[{parameter.low:g} to {parameter.high:g}{scale}{schedule}]"
