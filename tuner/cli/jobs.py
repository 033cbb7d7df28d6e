"""The commands `rltune submit`, `status` and `logs`: searches as jobs of a Ray cluster."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import UserError

if TYPE_CHECKING:
    from rltune.cluster.jobs import Job

SUBMIT_HELP = """\
Start a search on a Ray cluster, as a job on its head, which goes on when you close the laptop.

  ray dashboard cluster.yaml &                       # a tunnel to the head
  rltune submit run ppo --env CartPole-v1 --trials 200 --name mine
  rltune status                                      # all of them
  rltune status mine                                 # one, as rltune show would say it there
  rltune logs mine --follow
  rltune stop mine --address http://127.0.0.1:8265
  rltune fetch mine --address http://127.0.0.1:8265
  rltune submit resume mine                          # with --own-code before resume, if it has some

The run lies in ~/runs on the head, or where --storage-path says: a path there, or cloud storage, to
which it is copied then. With an agent or an environment of your own, the folder that you are in
travels along; so does the file that --space names. All other paths are the cluster's.
"""
WIDEST = 100  # characters of a line that a job has printed
ADDRESS = "cluster's dashboard (default: RAY_API_SERVER_ADDRESS, else http://127.0.0.1:8265)"


def add_parser(subparsers: Any) -> None:
    """Add the three commands."""
    submit = subparsers.add_parser(
        "submit",
        help="start a search on a cluster that goes on without this machine",
        description=SUBMIT_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    submit.set_defaults(main=submit_main)
    submit.add_argument("--address", metavar="URL", help=ADDRESS)
    submit.add_argument(
        "--own-code",
        action="store_true",
        help="send the current folder along, which resume needs for code of your own",
    )
    submit.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="run|resume ...", help="command to run there"
    )
    status = subparsers.add_parser(
        "status",
        help="show the state of what was submitted",
        description="List what was submitted to a cluster, or show the state of one run.",
    )
    status.set_defaults(main=status_main)
    status.add_argument("run", nargs="?", help="name of the run (default: a line for each)")
    status.add_argument("--address", metavar="URL", help=ADDRESS)
    logs = subparsers.add_parser(
        "logs",
        help="print the output of a submitted run",
        description="Print the output of a submitted run so far.",
    )
    logs.set_defaults(main=logs_main)
    logs.add_argument("run", help="name of the run")
    logs.add_argument("--follow", "-f", action="store_true", help="go on printing until it ends")
    logs.add_argument("--address", metavar="URL", help=ADDRESS)


def submit_main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Submit the command, and print the name of its run."""
    from rltune.cluster.jobs import Jobs

    words, run, folder = _checked([*extra, *args.words])
    if args.own_code:
        folder = folder or Path.cwd()
    jobs = Jobs(args.address)
    if "/" not in run:
        name, run = run, jobs.one(run).run
        words = [run if word == name else word for word in words]
    job = jobs.submit(words, run, folder)
    print(f"{job} is on its way; its run will be {run} on the cluster.")
    print(f"rltune status {Path(run).name}    rltune logs {Path(run).name} --follow")
    return 0


def _checked(words: list[str]) -> tuple[list[str], str, Path | None]:
    """Return the command for the head, the run there, and the folder that travels along.

    A run is its folder on the head; of one that was submitted before, its name will do.

    Raises:
        UserError: the command would fail there.
    """
    from rltune.backends.registry import is_own
    from rltune.cli import make_parser
    from rltune.cli.run import make_search
    from rltune.cluster.code import folder_of_code
    from rltune.cluster.jobs import AT_HEAD
    from rltune.runs.cloud import is_uri, name_of

    if not words or words[0] not in ("run", "resume"):
        raise UserError("submit what? Such as: rltune submit run ppo --env ..., or submit resume.")
    args, extra = make_parser().parse_known_args(words)
    if args.address is not None:
        raise UserError("--address stands before the command: rltune submit --address URL run ...")
    tail = ["--address", "auto", "--plain"]
    if words[0] == "resume":
        run = _there(args.run, "the run") if "/" in args.run else args.run
        return [*words, *tail], f"{AT_HEAD}/{name_of(run)}" if is_uri(run) else run, None
    storage = _there(args.storage_path or AT_HEAD, "--storage-path")
    args.warm_start = []  # they lie on the cluster
    args.storage_path = None
    search = make_search(args, extra)
    name = args.name or f"{search.name}{datetime.now():%S}"
    folder = folder_of_code(is_own(search.spec.agent), search.spec.env, search.spec.import_path)
    if args.space is not None and Path(args.space).is_file():
        space = Path(args.space).resolve()
        here = folder.resolve() if folder is not None else space.parent
        if not space.is_relative_to(here):
            raise UserError(f"--space {args.space} lies outside of {here}, which travels; copy it.")
        folder = here
        words = _replaced(words, "--space", str(space.relative_to(here)))
    named = [] if args.name else ["--name", name]
    local = AT_HEAD if is_uri(storage) else storage.rstrip("/")
    return [*words, *named, *tail], f"{local}/{name}", folder


def _there(path: str, what: str) -> str:
    """Return a path that means the same on the head as here."""
    from rltune.runs.cloud import is_uri, refuse_key

    if is_uri(path):
        refuse_key(path)
    elif not path.startswith(("/", "~/")):
        raise UserError(
            f"{what} has to be a path on the cluster, such as /shared/runs, or on cloud storage, "
            "such as s3://bucket/runs."
        )
    return path


def _replaced(words: list[str], flag: str, value: str) -> list[str]:
    """Return a command with another value of a flag."""
    changed = [f"{flag}={value}" if word.startswith(f"{flag}=") else word for word in words]
    if flag in changed:
        changed[changed.index(flag) + 1] = value
    return changed


def status_main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Print the state of the jobs."""
    from rltune.cli.flags import reject_extra
    from rltune.cluster.jobs import Jobs

    reject_extra(args, extra)
    jobs = Jobs(args.address)
    if args.run is None:
        found = jobs.all()
        if not found:
            print(f"Nothing was submitted to {jobs.address}.")
        width = max((len(job.id) for job in found), default=0)
        for job in found:
            said = jobs.log(job) if job.state == "RUNNING" else ""
            print("\n".join(_lines(job, said, width)))
        return 0
    job = jobs.one(args.run)
    print("\n".join(_lines(job)))
    code, text = jobs.call(["show", job.run, "--plain"])
    print(text.rstrip())
    return code


def _lines(job: Job, log: str = "", width: int = 0) -> list[str]:
    from rltune.common.formats import duration

    took = (job.ended or time.time()) - job.started if job.started else None
    code = f", exit code {job.code}" if job.code else ""
    lines = [f"{job.id:<{width}} {job.state.lower():<10} {duration(took):>8}  {job.run}{code}"]
    said = log.strip().splitlines()[-1:] if log else []
    if job.state == "FAILED" and job.message:
        said = [job.message.strip().splitlines()[-1]]
    return lines + [f"    {line[:WIDEST]}" for line in said]


def logs_main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Print the output of a job."""
    from rltune.cli.flags import reject_extra
    from rltune.cluster.jobs import Jobs

    reject_extra(args, extra)
    jobs = Jobs(args.address)
    job = jobs.one(args.run)
    if not args.follow:
        print(jobs.log(job), end="")
        return 0
    for lines in jobs.follow(job):
        print(lines, end="", flush=True)
    ended = jobs.one(job.id)
    return 0 if ended.state == "SUCCEEDED" else ended.code or 1
