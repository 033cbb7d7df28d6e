"""`rltune train`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rltune.agents.envs.suite import HELP as ENVS
from rltune.agents.errors import UserError, unknown
from rltune.agents.registry import HELP as AGENTS
from rltune.cli.flags import parse_flags, parse_mapping
from rltune.cli.run import EVAL_MODE, WEIGHTS_HELP, add_checkpoint_flag, add_trackers

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
PASSED_ON = (
    "total_timesteps",
    "seed",
    "device",
    "weights",
    "eval_freq",
    "eval_episodes",
    "eval_mode",
    "eval_at_start",
    "target_reward",
    "reward_buffer_size",
    "plateau_patience",
    "plateau_factor",
    "early_stop_patience",
    "monitor_from",
    "save_replay_buffer",
    "wandb",
    "wandb_project",
    "wandb_entity",
    "wandb_group",
    "tensorboard",
    "mlflow",
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
        help="hyperparameters that change on the way: a YAML file, or its text, with a list of "
        "{env_steps, config}",
    )
    what.add_argument("--weights", metavar="CHECKPOINT_OR_RUN", help=WEIGHTS_HELP)
    what.add_argument("--device", help="cpu, cuda or auto (default)")
    watch = train.add_argument_group("evaluation")
    watch.add_argument(
        "--eval-freq", type=_number, metavar="STEPS", help="default: a 20th of the training"
    )
    watch.add_argument(
        "--eval-episodes", type=_number, metavar="N", help="of an evaluation; default: 10"
    )
    watch.add_argument("--eval-mode", metavar="MODE", help=EVAL_MODE)
    watch.add_argument(
        "--eval-at-start", action="store_true", default=None, help="evaluate at step 0, too"
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
    files.add_argument("--wandb", metavar="MODE", help="auto (default), online, offline or off")
    files.add_argument("--track", dest="wandb", action="store_const", const="online")
    files.add_argument("--wandb-project", "--wandb-project-name", metavar="NAME")
    files.add_argument("--wandb-entity", metavar="NAME")
    files.add_argument("--wandb-group", metavar="NAME")
    add_trackers(files)
    add_checkpoint_flag(files)
    files.add_argument("--plain", action="store_true", help="lines instead of a progress bar")
    files.add_argument("--quiet", action="store_true", help="print errors alone")


def _number(text: str) -> int:
    value = float(text)
    if value != int(value):
        raise ValueError
    return int(value)


_number.__name__ = "whole number"


def main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Train."""
    from rltune.backends.registry import config_class
    from rltune.runs.directory import STORAGE
    from rltune.space.surroundings import searchable
    from rltune.training.request import training_spec
    from rltune.training.train import print_result, train

    known = searchable(config_class(args.agent))
    given = {name: getattr(args, name) for name in PASSED_ON}
    if args.env_kwargs is not None:
        given["env_kwargs"] = parse_mapping("--env-kwargs", args.env_kwargs)
    spec = training_spec(
        args.agent,
        args.env,
        config=args.config,
        preset=args.preset,
        schedule=_schedule(args.schedule),
        chosen=read_flags(parse_flags(args, extra, known), args.agent, known),
        **{name: value for name, value in given.items() if value is not None},
    )
    storage = args.storage_path or STORAGE
    result = train(spec, name=args.name, storage_path=storage, plain=args.plain)
    print_result(result)
    return result.exit_code


def _schedule(given: str | None) -> Any:
    """Return the changes that stand in the flag itself, else the file that it names."""
    if given is None or not given.lstrip().startswith("["):
        return given
    from rltune.space.yaml_lines import parse_yaml

    return parse_yaml(given, "--schedule")[0]


def read_flags(
    flags: Mapping[str, Sequence[str]], agent: str, known: dict[str, Hyperparameter]
) -> dict[str, Any]:
    """Return the hyperparameters given as flags, under our own names.

    ``--use-sde`` alone means true, ``--no-use-sde`` false.
    """
    from rltune.agents.config import coerce, own_name
    from rltune.space.yaml_lines import parse_yaml

    values: dict[str, Any] = {}
    for flag, words in flags.items():
        negated = flag.startswith("no-") or flag.startswith("no_")
        word = flag[3:] if negated else flag
        name = own_name(word, known)
        if name is None:
            raise unknown("hyperparameter", word, known, f"--{flag}")
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
        value: object = ",".join(words)
        if parameter.type == "any":
            value, _ = parse_yaml(words[0], f"--{flag}")
        values[name] = coerce(parameter, value, f"--{flag}")
    return values


def hyperparameter_help(agent: str) -> str:
    """Return the help of an agent's hyperparameters and presets."""
    import textwrap

    from rltune.agents.config import hyperparameters
    from rltune.agents.schedules import EXAMPLES
    from rltune.backends.registry import config_class
    from rltune.training.presets import environments, presets

    lines = [f"\nhyperparameters of {agent}, with their defaults and sensible ranges:"]
    for parameter in hyperparameters(config_class(agent)).values():
        flag = f"  --{parameter.name.replace('_', '-')} {_shown(parameter.default)}"
        facts = f"{parameter.help} {_range(parameter)}".strip()
        lines += textwrap.wrap(facts, 100, initial_indent=f"{flag:<34}", subsequent_indent=" " * 34)
    lines.append(f"\na schedule is {EXAMPLES} (docs/agents.md)")
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
    schedule = "; or a schedule" if parameter.schedule else ""
    return f"[{parameter.low:g} to {parameter.high:g}{scale}{schedule}]"
