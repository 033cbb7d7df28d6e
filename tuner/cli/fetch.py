"""`rltune fetch`: a run from cloud storage."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from rltune.cli.run import reject_extra

FETCH_HELP = """\
Copy a run from cloud storage to this machine, for show, report, export and play.

  rltune run ppo --env CartPole-v1 --trials 30 --storage-path s3://bucket/runs --name mine
  rltune fetch s3://bucket/runs/mine
  rltune resume s3://bucket/runs/mine      # fetches it, too, when nobody drives it
"""


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "fetch",
        help="copy a run from cloud storage",
        description=FETCH_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(main=main)
    parser.add_argument("uri", metavar="URI", help="s3://bucket/runs/NAME, gs://..., ...")
    parser.add_argument("--storage-path", default="runs", metavar="DIR", help="default: runs")


def main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Fetch."""
    reject_extra(extra)
    from rltune.mirror import fetch

    print(fetch(args.uri, args.storage_path))
    return 0
