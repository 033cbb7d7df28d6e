"""The command `rltune importances`: how much each hyperparameter mattered in a search."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from rltune.cli.flags import RUN, reject_extra

IMPORTANCES_HELP = """\
Estimate which hyperparameters mattered in a search, and which only seem to.

  rltune importances latest
  rltune importances runs/my-search --method fanova
  rltune importances runs/my-search --json | jq .importances

Each importance has its 95 % interval and a noise floor: the most that the same method finds where
the parameter has no influence. What is not above its floor is noise: docs/importances.md.
Writes report/importances.parquet and report/importances.csv in the run directory.
"""


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "importances",
        help="estimate which hyperparameters mattered in a search",
        description=IMPORTANCES_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(main=main)
    parser.add_argument("run", help=RUN)
    parser.add_argument(
        "--method",
        metavar="NAME",
        action="append",
        help="method: fanova, ped-anova or permutation; may be repeated (default: all)",
    )
    parser.add_argument("--json", action="store_true", help="print the whole table as JSON")
    parser.add_argument("--plain", action="store_true", help="print without colours")


def main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Compute, write and print the table."""
    reject_extra(args, extra)
    from rltune.analysis.importance.importances import METHODS, importances, write
    from rltune.runs.reader import read_run

    run = read_run(args.run)
    frame = importances(run, tuple(dict.fromkeys(args.method or METHODS)))
    write(run, frame)
    if args.json:
        table = json.loads(frame.to_json(orient="records"))  # NaN becomes null
        print(json.dumps({"run": run.name, **frame.attrs, "importances": table}, indent=2))
    else:
        from rltune.analysis.importance.text import show_importances

        show_importances(run, frame, plain=args.plain)
    return 0
