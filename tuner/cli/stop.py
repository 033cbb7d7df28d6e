"""The command `rltune stop`: stop requests to a running search."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rltune.agents.errors import UserError
from rltune.cli.flags import RUN, reject_extra

STOP_HELP = """\
Stop one trial of a running search, or the search itself; from any terminal, as on a cluster.

  rltune stop latest --trial 12
  rltune stop runs/my-search
  rltune stop my-search --address http://127.0.0.1:8265     # what rltune submit has started

A stopped trial is PRUNED, with its values so far and the reason "by hand". Without
--trial the whole search stops as after Ctrl-C: `rltune resume` goes on with it.
"""


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "stop",
        help="stop a running search, or one trial of it",
        description=STOP_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(main=main)
    parser.add_argument("run", help=RUN)
    parser.add_argument(
        "--trial", type=int, metavar="N", help="number of the trial (default: the whole search)"
    )
    parser.add_argument(
        "--address", metavar="URL", help="cluster's dashboard, for what was submitted there"
    )


def main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Ask the process that drives the search to stop something."""
    from rltune.agents.errors import storage_error
    from rltune.analysis.summary import Summary
    from rltune.runs.directory import RunDir
    from rltune.runs.reader import RunReader
    from rltune.runs.stop_requests import StopRequests
    from rltune.selection.show import under_way

    reject_extra(args, extra)
    if args.address is not None:
        return _there(args)
    rundir = RunDir.open(under_way(args.run))
    if rundir.kind != "search":
        raise UserError(f"{rundir.path} is a training; stop it with Ctrl-C.")
    if not Summary(RunReader(rundir)).running:
        raise UserError(f"the search {rundir.name!r} is not running.")
    if args.trial is not None:
        _check(rundir.study_path, args.trial)
    requests = StopRequests(rundir.path)
    try:
        requests.ask(args.trial)
    except OSError as error:
        raise storage_error(error, requests.folder) from error
    what = "the search" if args.trial is None else f"trial {args.trial}"
    print(f"Asked to stop {what}; it says so itself when it is done.")
    return 0


def _there(args: argparse.Namespace) -> int:
    """Ask a search on a cluster to stop; it ends by itself and is not killed."""
    from rltune.cluster.jobs import Jobs

    jobs = Jobs(args.address)
    trial = [] if args.trial is None else ["--trial", str(args.trial)]
    code, text = jobs.call(["stop", jobs.one(args.run).run, *trial])
    print(text.rstrip())
    return code


def _check(study: Path, number: int) -> None:
    """Raise UserError for a trial that is not running; the study knows it before the table."""
    from rltune.study.database import read_study

    states = {trial.number: trial.state.name for trial in read_study(study)}
    state = states.get(number, "not there, at least not yet")
    if state != "RUNNING":
        running = [str(trial) for trial in sorted(states) if states[trial] == "RUNNING"]
        raise UserError(
            f"--trial {number}: it is {state}; only one that runs can be stopped"
            + (f": {', '.join(running)}." if running else ".")
        )
