"""The command `rltune demonstrations`: what a file of demonstrations holds."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rltune.cli.flags import reject_extra

HELP = """\
Show what a file of demonstrations holds: where it comes from, its episodes and their returns.

  rltune play runs/my-training --episodes 10 --record demos.parquet
  rltune demonstrations demos.parquet
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
    parser.add_argument("file", metavar="FILE", type=Path, help="as rltune play --record writes it")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Print the facts of the file."""
    reject_extra(args, extra)
    from rltune.training.demonstrations import facts, lines

    found = facts(args.file)
    if args.json:
        import json

        print(json.dumps(found, indent=1))
    else:
        print("\n".join(lines(found)))
    return 0
