"""The command `rltune dashboard`: the report of a run in the browser."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from rltune.agents.errors import UserError
from rltune.cli.flags import RUN, reject_extra

DASHBOARD_HELP = """\
Show a run in the browser: the report, which is made anew while the search runs, and beside it
optuna-dashboard on its study, where that is installed: pip install "rltune[dashboard]".

  rltune dashboard latest
  rltune dashboard runs/my-search --port 9000

Only this machine can reach it. Ctrl-C ends it.
"""


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "dashboard",
        help="show a run in the browser",
        description=DASHBOARD_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(main=main)
    parser.add_argument("run", help=RUN)
    parser.add_argument(
        "--port",
        type=int,
        default=8080,
        help="port of the page; 0 takes a free one (default: 8080)",
    )


def main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Serve the page until Ctrl-C."""
    reject_extra(args, extra)
    if not 0 <= args.port < 65536:
        raise UserError(f"--port must be from 0 to 65535, not {args.port}.")
    from rltune.reporting.dashboard import Dashboard

    dashboard = Dashboard(args.run, args.port)
    print(f"The report: {dashboard.url}", flush=True)
    if dashboard.optuna is not None:
        print(f"Optuna's page: {dashboard.url}dashboard", flush=True)
    print("Ctrl-C ends it.", flush=True)
    try:
        dashboard.serve()
    except KeyboardInterrupt:
        dashboard.server.server_close()
    return 0
