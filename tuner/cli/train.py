"""The command `rltune train`: one training, with each hyperparameter as a flag."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import UserError, unknown
from rltune.agents.registry import HELP as AGENTS
from rltune.cli.flags import parse_flags
from rltune.cli.option_flags import add_callbacks, add_files, add_groups, given
from rltune.common.options import options_of
from rltune.runs.run_options import AGENT
from rltune.runs.tracking_options import FILES
from rltune.runs.train_options import CONTROLS, GROUPS, TrainOptions

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
TRAIN_OPTIONS = {**options_of(TrainOptions), **CONTROLS}


class _Help(argparse.Action):
    """Print the help, with the hyperparameters of an agent that is named before it."""

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
        usage="%(prog)s AGENT [FLAG ...] [--HYPERPARAMETER VALUE ...]",
    )
    train.set_defaults(main=main)
    train.add_argument(
        "-h", "--help", action=_Help, nargs=0, help="show this help message and exit"
    )
    train.add_argument("agent", help=AGENTS)
    groups = add_groups(train, GROUPS, TRAIN_OPTIONS.values())
    what = groups[AGENT]
    what.add_argument(
        "--config",
        metavar="FILE",
        help="hyperparameters in YAML, or the output of `rltune export --to yaml`; flags override "
        "them",
    )
    what.add_argument(
        "--preset",
        metavar="NAME",
        help="known-good settings for the environment; flags override them",
    )
    what.add_argument(
        "--zoo",
        metavar="FILE",
        help="rl-zoo3's settings (YAML) for the environment, of sb3: agents; flags override them",
    )
    what.add_argument(
        "--schedule",
        metavar="FILE",
        help="changes of hyperparameters on the way: a list of {env_steps, config} in YAML, as a "
        "file or as the text itself",
    )
    add_files(groups[FILES])
    add_callbacks(groups[FILES])
    output = train.add_argument_group("output")
    output.add_argument(
        "--plain", action="store_true", help="print plain lines instead of a progress bar"
    )
    output.add_argument("--quiet", action="store_true", help="print errors alone")


def main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Train the agent, and print the result."""
    from rltune.backends.registry import config_class
    from rltune.runs.directory import STORAGE
    from rltune.space.surroundings import searchable
    from rltune.training.request import training_spec
    from rltune.training.train import print_result, train

    known = searchable(config_class(args.agent))
    spec = training_spec(
        args.agent,
        config=args.config,
        preset=args.preset,
        zoo=args.zoo,
        schedule=_schedule(args.schedule),
        chosen=read_flags(parse_flags(args, extra, known), args.agent, known),
        **given(args, TRAIN_OPTIONS),
    )
    storage = args.storage_path or STORAGE
    result = train(
        spec, name=args.name, storage_path=storage, plain=args.plain, callbacks=args.callbacks
    )
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
