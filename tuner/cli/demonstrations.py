"""The command `rltune demonstrations`: what a file of demonstrations holds."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from rltune.cli.flags import reject_extra

HELP = """\
Show what a file of demonstrations holds: where it comes from, its episodes and their returns.
A data set of Minari is minari:NAME.

  rltune play runs/my-training --episodes 10 --record demos.parquet
  rltune demonstrations demos.parquet
  rltune demonstrations minari:D4RL/pen/expert-v2 --to demos.parquet
  rltune demonstrations demos.parquet --to minari:me/cartpole-v0
"""


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "demonstrations",
        help="show what a file of demonstrations holds",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(main=main)
    parser.add_argument(
        "file", metavar="FILE", help="as rltune play --record writes it, or minari:NAME"
    )
    parser.add_argument("--to", metavar="FILE", help="write them there: a file, or minari:NAME")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Print the facts of the file."""
    reject_extra(args, extra)
    from rltune.training.demonstrations import convert, facts, found_in, lines

    found = found_in(args.file)
    shown = facts(found, args.file)
    if args.json:
        import json

        print(json.dumps(shown, indent=1))
    else:
        print("\n".join(lines(shown)))
    if args.to is not None:
        convert(found, args.to)
        if not args.json:
            print(f"\nwritten: {args.to}")
    return 0
