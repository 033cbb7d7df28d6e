"""The command `rltune import`: searches of Ray Tune and Optuna as run directories."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from rltune.cli.flags import reject_extra

HELP = """\
Turn a finished experiment of Ray Tune, or a study of Optuna, into a run directory, which report,
show, importances, compare and run --from understand.

  rltune import ~/ray_results/my_experiment --metric episode_return_mean --name mine
  rltune import sqlite:///optuna.db --study my-study
  rltune report mine
"""


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "import",
        help="turn an experiment of Ray Tune or a study of Optuna into a run",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(main=main)
    parser.add_argument("source", help="folder of the experiment, or storage of Optuna")
    parser.add_argument("--name", help="of the run (default: made of the source's)")
    parser.add_argument("--storage-path", metavar="DIR", help="folder of the runs (default: runs)")
    parser.add_argument("--metric", help="of an experiment, what is reported")
    parser.add_argument("--mode", default="max", help="of an experiment: max or min (default: max)")
    parser.add_argument("--time-attr", metavar="NAME", help="of an experiment, what counts")
    parser.add_argument("--study", metavar="NAME", help="of a storage with several studies")
    parser.add_argument("--env", help="what it was about, for titles")


def main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Import, and print the folder."""
    reject_extra(args, extra)
    from rltune.importing.run import import_search
    from rltune.runs.directory import STORAGE

    path = import_search(
        args.source,
        args.name,
        args.storage_path or STORAGE,
        metric=args.metric,
        mode=args.mode,
        time_attr=args.time_attr,
        study=args.study,
        env=args.env,
    )
    print(f"{path}\n\n  rltune report {path}")
    return 0
