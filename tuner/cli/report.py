"""The command `rltune report`: the page and the figures of a run."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from rltune.cli.flags import RUN, reject_extra

REPORT_HELP = """\
Write a page with the answer, the figures and all trials; a PNG of each figure; and a summary.md.

  rltune report latest
  rltune report runs/my-search --no-pictures

They lie in report/ of the run directory. The page needs no network. Works on a search that is
running, too, and on a training.
"""


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "report",
        help="write a page with the results and figures of a run",
        description=REPORT_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(main=main)
    parser.add_argument("run", help=RUN)
    parser.add_argument(
        "--no-pictures", dest="pictures", action="store_false", help="write the page without PNGs"
    )
    parser.add_argument(
        "--clip", action="store_true", help="record the winner's video again, as when a search ends"
    )


def main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Write the report, and print its files."""
    reject_extra(args, extra)
    from rltune.reporting.clip import record
    from rltune.reporting.report import report
    from rltune.selection.show import under_way

    args.run = under_way(args.run)
    if args.clip:
        record(args.run)
    page = report(args.run, pictures=args.pictures)
    print(f"{page}\n{page.with_name('summary.md')}")
    for picture in sorted(page.parent.glob("*.png")) if args.pictures else []:
        print(picture)
    return 0
