"""The command `rltune show`: the results of a run in the terminal."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from rltune.cli.flags import RUN, reject_extra

SHOW_HELP = """\
Print the results of a run: the answer and how sure it is, the trials, the cost, the files.

  rltune show latest
  rltune show runs/my-search
  rltune show runs/my-search --against env_steps
  rltune show runs/my-search --json | jq .best_config

Reads the run directory alone; works on a search that is running, too.
"""


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "show",
        help="print the results of a search or a training",
        description=SHOW_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(main=main)
    parser.add_argument("run", help=RUN)
    parser.add_argument(
        "--against",
        metavar="env_steps",
        help="print the best trial at each env step: the Pareto front against env_steps",
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--plain", action="store_true", help="print without colours")


def main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Print the results."""
    reject_extra(args, extra)
    from rltune.analysis.show import show, show_learning_front
    from rltune.runs.directory import AGENTS, RunDir
    from rltune.selection.show import show as show_agents
    from rltune.selection.show import under_way

    args.run = under_way(args.run)
    whole = RunDir.open_whole(args.run)
    if whole.kind == AGENTS and args.against is None:
        show_agents(whole, as_json=args.json, plain=args.plain)
        if args.json:
            return 0
    if args.against is not None:
        show_learning_front(args.run, args.against, as_json=args.json, plain=args.plain)
    else:
        show(args.run, as_json=args.json, plain=args.plain)
    return 0
