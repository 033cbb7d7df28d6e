"""`rltune show`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from rltune.cli.flags import reject_extra

SHOW_HELP = """\
Print what a run found: the answer, how sure it is, what was tried, what it cost, where it all lies.

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
        help="print what a search or a training found",
        description=SHOW_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(main=main)
    parser.add_argument("run", help="the run directory, its name, or latest")
    parser.add_argument(
        "--against",
        metavar="env_steps",
        help="print who has the best value by when, the front against env_steps",
    )
    parser.add_argument("--json", action="store_true", help="everything, for programs")
    parser.add_argument("--plain", action="store_true", help="no colours")


def main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Print the run."""
    reject_extra(args, extra)
    from rltune.analysis.show import show, show_learning_front

    if args.against is not None:
        show_learning_front(args.run, args.against, as_json=args.json, plain=args.plain)
    else:
        show(args.run, as_json=args.json, plain=args.plain)
    return 0
