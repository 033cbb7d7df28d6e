"""The command `rltune env`: the facts of an environment, and the agents that fit."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from rltune.cli.flags import parse_mapping, reject_extra

ENV_HELP = """\
Describe an environment: its spaces and limits, what agents see of it, which agents fit.

  rltune env CartPole-v1
  rltune env LunarLander-v3 --env-kwargs "{continuous: true}"
  rltune env my_module:MyEnv --json

It plays some episodes of random actions; nothing is written.
"""


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "env",
        help="describe an environment, and name the agents that fit",
        description=ENV_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(main=main)
    parser.add_argument("env", metavar="ENV", help="gymnasium id, or module:Class of your own")
    parser.add_argument(
        "--env-kwargs", metavar="YAML", help='keyword arguments, such as "{continuous: true}"'
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Print the facts of the environment."""
    reject_extra(args, extra)
    from rltune.training.env_facts import env_facts, fact_lines

    kwargs = parse_mapping("--env-kwargs", args.env_kwargs) if args.env_kwargs else {}
    facts = env_facts(args.env, kwargs)
    if args.json:
        import json

        print(json.dumps(facts, indent=1))
    else:
        print("\n".join(fact_lines(facts)))
    return 0
