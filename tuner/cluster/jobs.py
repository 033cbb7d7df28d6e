"""Ray jobs: commands that run on a cluster's head, and go on when the laptop's lid closes.

Everything goes through one address, that of the cluster's dashboard: sending a command with the
user's own code, asking how it does, its log, and copying the run's files from there.
"""

from __future__ import annotations

import asyncio
import base64
import importlib
import io
import logging
import os
import re
import shlex
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rltune.agents.errors import UserError
from rltune.cluster.code import travelling

ADDRESS = "http://127.0.0.1:8265"  # where `ray dashboard cluster.yaml` ends
AT_HEAD = "~/runs"  # there, where the copies of its runs go to cloud storage
MARK = "rltune_run"  # the job's metadata name the run's folder on the cluster
ENDED = ("STOPPED", "SUCCEEDED", "FAILED")
ANSWER_WITHIN = 180.0  # seconds that a short command may take there
READY_WITHIN = 60.0  # seconds that a head which has just come up may not take jobs yet
EVERY = 0.3  # seconds between two questions whether it has ended
TALKATIVE = (
    "dashboard.modules.dashboard_sdk",
    "dashboard.modules.job.sdk",
    "_private.runtime_env.packaging",
)
HEADER = re.compile(r".*Running entrypoint for job [^\n]*\n", re.DOTALL)  # of Ray, in a log
PACKED = "---- packed run ----"


@dataclass(frozen=True)
class Job:
    """A command that was sent to a cluster.

    Args:
        id: of Ray's
        run: the folder of the run, on the cluster
        state: PENDING, RUNNING, STOPPED, SUCCEEDED or FAILED
        started: seconds since the epoch; None: not yet
        ended: the same
        code: exit code of the command, once it has ended
        message: Ray's own
    """

    id: str
    run: str
    state: str
    started: float | None
    ended: float | None
    code: int | None
    message: str

    @property
    def name(self) -> str:
        """The run's name."""
        return Path(self.run).name


class Jobs:
    """The jobs of a cluster.

    Args:
        address: of its dashboard, such as "http://127.0.0.1:8265"; None: RAY_API_SERVER_ADDRESS, or
            the usual one

    Raises:
        UserError: nothing answers there, or it wants another token; from every method, too.
    """

    def __init__(self, address: str | None = None) -> None:
        self.address = address or os.environ.get("RAY_API_SERVER_ADDRESS") or ADDRESS
        if not self.address.startswith(("http://", "https://")):
            raise UserError(
                f"--address {self.address!r} is no address of a Ray dashboard; write it as "
                f"{ADDRESS} (docs/cluster.md)."
            )
        self._client = self._connect()

    def _connect(self) -> Any:
        try:
            importlib.import_module("aiohttp")
            from ray.dashboard.modules.job.sdk import JobSubmissionClient
        except ImportError:
            raise UserError("jobs need the extra: pip install 'rltune[cluster]'.") from None
        from ray.exceptions import AuthenticationError

        for name in TALKATIVE:
            logging.getLogger(f"ray.{name}").setLevel(logging.WARNING)
        raylet: Any = importlib.import_module("ray._raylet")
        for mode in ("disabled", "token"):
            os.environ["RAY_AUTH_MODE"] = mode
            raylet.Config.initialize("")
            with self._errors(), _unset("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"):
                try:
                    return JobSubmissionClient(self.address)
                except AuthenticationError:
                    continue
        raise UserError(
            f"the cluster at {self.address} refuses this machine; copy ~/.ray/auth_token from its "
            "head (docs/cluster.md)."
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        import requests

        try:
            yield
        except (requests.RequestException, ConnectionError) as error:
            raise UserError(
                f"no Ray dashboard answers at {self.address}; is the cluster up, and the tunnel "
                "there (ray dashboard cluster.yaml)?"
            ) from error
        except RuntimeError as error:
            said = (str(error).strip().splitlines() or ["no reason given"])[-1]
            raise UserError(f"the cluster at {self.address} did not take it: {said}") from error

    # -------------------------------------------------------------------------------- sending

    def submit(self, words: Sequence[str], run: str, folder: Path | None = None) -> str:
        """Start a command of rltune on the head, and return the job's id.

        Args:
            words: the command without ``rltune``
            run: the folder of its run, on the cluster
            folder: travels along, and is the working directory there
        """
        taken = {job.id for job in self.all()}
        name = Path(run).name
        free = (f"{name}-{n}" for n in range(2, 10_000))
        chosen = (
            name
            if name not in taken
            else next(candidate for candidate in free if candidate not in taken)
        )
        environment = travelling(folder) if folder is not None else {}
        return self._send(
            entrypoint=_entrypoint(words),
            submission_id=chosen,
            runtime_env={**environment, "env_vars": {"RLTUNE_STORAGE": AT_HEAD}},
            metadata={MARK: run},
        )

    def call(self, words: Sequence[str]) -> tuple[int, str]:
        """Run a short command of rltune there, and return its exit code and output."""
        return self._run(_entrypoint(words))

    def fetch(self, run: str, storage: str | os.PathLike[str]) -> Path:
        """Copy a run's folder from the cluster below ``storage``, and return it.

        Raises:
            UserError: there is no such run, or it is here already.
        """
        from rltune.runs.cloud import arrive

        name = Path(run).name
        with arrive(Path(storage) / name) as folder:
            code, text = self._run(shlex.join(["python", "-m", "rltune.cluster.jobs", run]))
            said, _, packed = text.partition(PACKED)
            if code or not packed:
                last = (said.strip().splitlines() or ["no reason given"])[-1]
                raise UserError(f"the cluster can't give {run}: {last.removeprefix('rltune: ')}")
            content = io.BytesIO(base64.b64decode(packed))
            with tarfile.open(fileobj=content, mode="r:gz") as files:
                unpack(files, folder)
        return Path(storage) / name

    def _run(self, entrypoint: str) -> tuple[int, str]:
        job = self._send(entrypoint=entrypoint)
        with self._errors():
            until = time.monotonic() + ANSWER_WITHIN
            while (state := self._client.get_job_status(job)) not in ENDED:
                if time.monotonic() > until:
                    self._client.stop_job(job)
                    raise UserError(
                        f"the cluster at {self.address} did not answer within {ANSWER_WITHIN:.0f} s"
                    )
                time.sleep(EVERY)
            text, info = self._client.get_job_logs(job), self._client.get_job_info(job)
            self._client.delete_job(job)
        failed = 0 if state == "SUCCEEDED" else 1
        code = failed if info.driver_exit_code is None else info.driver_exit_code
        return code, HEADER.sub("", text, count=1)

    def _send(self, **job: Any) -> str:
        until = time.monotonic() + READY_WITHIN
        while True:
            with self._errors():
                try:
                    return str(self._client.submit_job(**job))
                except RuntimeError as error:
                    if "No available agent" not in str(error) or time.monotonic() > until:
                        raise
            time.sleep(EVERY)

    # -------------------------------------------------------------------------------- asking

    def all(self) -> list[Job]:
        """Return rltune's jobs, the oldest first."""
        with self._errors():
            found = self._client.list_jobs()
        jobs = [_job(job) for job in found if MARK in (job.metadata or {})]
        return sorted(jobs, key=lambda job: job.started or time.time())

    def one(self, name: str) -> Job:
        """Return the newest job of a run, given by its name, its folder there, or the job's id."""
        jobs = self.all()
        for job in reversed(jobs):
            if name in (job.name, job.run, job.id):
                return job
        known = ", ".join(sorted({job.name for job in jobs})) or "none"
        raise UserError(f"there is no job of a run {name!r} at {self.address}; there are: {known}.")

    def log(self, job: Job) -> str:
        """Return the output of the command so far."""
        with self._errors():
            return str(self._client.get_job_logs(job.id))

    def follow(self, job: Job) -> Iterator[str]:
        """Yield the command's output until it ends."""
        lines = self._client.tail_job_logs(job.id)
        loop = asyncio.new_event_loop()
        try:
            while True:
                with self._errors():
                    yield loop.run_until_complete(anext(lines))
        except StopAsyncIteration:
            return
        finally:
            loop.close()


@contextmanager
def _unset(*names: str) -> Iterator[None]:
    """Hide environment variables: Ray puts them above an address that it is given."""
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(before)


def _entrypoint(words: Sequence[str]) -> str:
    return shlex.join(["python", "-m", "rltune", *words])


def _job(found: Any) -> Job:
    return Job(
        id=found.submission_id,
        run=found.metadata[MARK],
        state=str(getattr(found.status, "value", found.status)),
        started=found.start_time and found.start_time / 1e3,
        ended=found.end_time and found.end_time / 1e3,
        code=found.driver_exit_code,
        message=found.message or "",
    )


def pack(run: str) -> str:
    """Return a consistent copy of a run directory as text: a .tar.gz."""
    from rltune.runs.cloud import snapshot
    from rltune.runs.directory import RunDir

    path = RunDir.open(run).path
    with snapshot(path) as folder:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as files:
            files.add(folder, arcname=".")
    return base64.b64encode(packed.getvalue()).decode()


def unpack(files: tarfile.TarFile, folder: Path) -> None:
    """Unpack a run, which may hold plain files and folders below ``folder`` only.

    Raises:
        UserError: it holds something else.
    """
    for member in files:
        # A file that a run holds under two names comes as a hard link, whose target is the first.
        names = (member.name, member.linkname) if member.islnk() else (member.name,)
        inside = all((folder / n).resolve().is_relative_to(folder.resolve()) for n in names)
        if not inside or not (member.isfile() or member.isdir() or member.islnk()):
            raise UserError(f"the cluster sent {member.name!r}, which a run does not hold")
    # Python before 3.10.12 and 3.11.4 has no filters.
    files.extraction_filter = getattr(tarfile, "data_filter", None)
    files.extractall(folder)


if __name__ == "__main__":  # on the head, by `Jobs.fetch`
    import sys

    try:
        print(PACKED, pack(sys.argv[1]), sep="\n")
    except UserError as error:
        sys.exit(f"rltune: {error}")
