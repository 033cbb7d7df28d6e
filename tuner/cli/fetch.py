"""The command `rltune fetch`: copies of runs from cloud storage or from a cluster."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from rltune.cli.flags import reject_extra
from rltune.cli.jobs import ADDRESS

FETCH_HELP = """\
Copy a run from cloud storage, or from a cluster, to this machine: for show, report, export, play.

  rltune run ppo --env CartPole-v1 --trials 30 --storage-path s3://bucket/runs --name mine
  rltune fetch s3://bucket/runs/mine
  rltune resume s3://bucket/runs/mine      # fetches it, too, when no process runs it
  rltune fetch mine --address http://127.0.0.1:8265    # what rltune submit has started there
"""


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "fetch",
        help="copy a run from cloud storage or a cluster",
        description=FETCH_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(main=main)
    parser.add_argument(
        "uri",
        metavar="URI",
        help="address of the run, as s3://bucket/runs/NAME, or its name on the cluster",
    )
    parser.add_argument("--storage-path", metavar="DIR", help="folder of the copy (default: runs)")
    parser.add_argument("--address", metavar="URL", help=ADDRESS)


def main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Copy the run, and print its folder."""
    reject_extra(args, extra)
    from rltune.runs.cloud import fetch, is_uri
    from rltune.runs.directory import STORAGE

    storage = args.storage_path or STORAGE
    if is_uri(args.uri):
        print(fetch(args.uri, storage))
        return 0
    from rltune.cluster.jobs import Jobs

    jobs = Jobs(args.address)
    there = args.uri if args.uri.startswith("/") else jobs.one(args.uri).run
    print(jobs.fetch(there, storage))
    return 0
