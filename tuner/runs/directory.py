"""The run directory: the files of one search or training, and all that later commands read.

Every file is written to a temporary name beside it and renamed, so a reader never meets half of
one. Temporary names begin with a dot: pandas and pyarrow skip them when they read a folder.
"""

from __future__ import annotations

import difflib
import errno
import fcntl
import os
import platform
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from rltune.agents.envs.suite import NO_ENV, environments
from rltune.agents.errors import StorageError, UserError, storage_error
from rltune.common.files import atomic_write, remove_leftovers
from rltune.common.provenance import command_line, git_revision, machine, now, versions
from rltune.common.reading import check_tree, load_yaml
from rltune.common.redaction import masked
from rltune.runs.tracking_options import TRACKER_FOLDERS

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

FORMAT_VERSION = 1
KINDS = ("search", "train", "agents")
AGENTS = "agents"  # the kind of a search over several agents, and the folder of their runs
AGENT_ANSWER = "best/agents.yaml"  # of such a search
HEAD = {"name": str, "created": str, "command": str, "versions": dict, "resumes": list}
MAX_ENVS_IN_NAME = 3
# What a running search writes beside run.yaml.
PARTS = {
    "best", "episodes", "history", "report", "stop", "study.db", "study.db-journal", "study.db-shm",
    "study.db-wal", "trials", "trials.parquet", "wandb", ".lock",
}  # fmt: skip
# Where runs go unless --storage-path says otherwise.
STORAGE = os.path.expanduser(os.environ.get("RLTUNE_STORAGE") or "runs")


# ------------------------------------------------------------------------------- names and places


def default_name(agent: str, env: str, storage: str | os.PathLike[str] | None = None) -> str:
    """Return "ppo-CartPole-v1-20261121-0223"; with ``storage``, one that is not taken there."""
    envs = [] if env == NO_ENV else environments(env)
    parts = [agent, *envs][: 1 + MAX_ENVS_IN_NAME]
    stem = "-".join(re.split(r"[:/.]", part.removesuffix(".py"))[-1] for part in parts)
    name = re.sub(r"[^\w.+-]", "-", stem) + time.strftime("-%Y%m%d-%H%M")
    taken, number = name, 1
    while storage is not None and (Path(storage) / taken).exists():
        number += 1
        taken = f"{name}-{number}"
    return taken


def agent_folder(agent: str) -> str:
    """Return the folder of an agent's run in a search over several: "rllib-PPO" of "rllib:PPO"."""
    return re.sub(r"[^\w.+-]", "-", agent)


def run_path(storage: str | os.PathLike[str], name: str) -> Path:
    """Return the folder of the run ``name`` in ``storage``; UserError if either cannot be one."""
    storage = os.fspath(storage)
    if re.match(r"[a-zA-Z][\w+.-]+:/", storage):  # pathlib makes s3:/bucket of s3://bucket
        raise UserError(
            f"storage path {storage!r}: a run needs a local folder; only run, resume and train "
            "keep a copy on cloud storage."
        )
    if not re.fullmatch(r"[^\W_][\w.+=, -]{0,127}", name) or name == "latest":
        raise UserError(
            f"run name {name!r}: write letters, digits, '-', '_' and '.', at most 128, beginning "
            "with a letter or a digit (and not 'latest', which names the newest run)."
        )
    folder = Path(storage).expanduser()
    try:
        there = next(path for path in (folder, *folder.parents) if path.exists())
        is_file = not there.is_dir()
    except PermissionError as error:
        raise storage_error(error, folder, "--storage-path") from error
    if is_file and there == folder:
        raise UserError(f"storage path {storage!r} is a file; give a folder.")
    if is_file:
        raise storage_error(NotADirectoryError(errno.ENOTDIR, ""), folder / name, "--storage-path")
    return folder / name


def find_run(run: str | os.PathLike[str], storage: str | os.PathLike[str] = STORAGE) -> Path:
    """Return the folder of a run given as a path, as a name in ``storage``, or as "latest"."""
    text = os.fspath(run)
    if not text:  # a variable of a shell that is not set
        raise UserError('the name of the run is empty; give its directory, its name or "latest".')
    if "://" in text:
        raise UserError(f"{text} is on cloud storage; copy it here first: rltune fetch {text}")
    places = (Path(text).expanduser(), Path(storage) / text)
    for path in places:
        if os.path.exists(path / "run.yaml"):
            return path
    for path in places:
        if _is_there(path):  # not a run: whoever opens it says so
            return path
    known = sorted(Path(storage).glob("*/run.yaml"), key=lambda file: file.stat().st_mtime)
    if text == "latest" and known:
        return known[-1].parent
    close = difflib.get_close_matches(text, [file.parent.name for file in known], n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else "give the path of a run directory."
    raise UserError(f"no run {text!r} here or in {os.fspath(storage)!r}; {hint}")


def _is_there(path: Path) -> bool:
    """Return whether the file exists; PermissionError where that can't be seen, in any Python."""
    try:
        path.stat()
    except PermissionError:
        raise
    except (OSError, ValueError):
        return False
    return True


# ----------------------------------------------------------------------------- the run directory


class RunDir:
    """One run directory, open for the process that drives the run (see ``open_run`` for readers).

    ``content`` is run.yaml: the specification under "spec", and its provenance.
    """

    def __init__(self, path: Path, content: dict[str, Any]) -> None:
        self.path = path
        self.content = content

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        spec: Mapping[str, Any],
        *,
        kind: str = "search",
        exist_error: bool = True,
        mirror: str | None = None,
    ) -> RunDir:
        """Make a new run directory; an existing run is a UserError or, at will, opened."""
        text = os.fspath(path)
        storage, _, name = text.rstrip("/").rpartition("/")
        path = run_path(storage or ("/" if text.startswith("/") else "."), name).absolute()
        if (path / "run.yaml").exists():
            if not exist_error:
                return cls.open(path)
            raise UserError(
                f"the run {path.name!r} exists already in {path.parent}; continue it with "
                f"`rltune resume {text}`, or choose another --name."
            )
        if path.is_dir() and any(not p.name.startswith(".") for p in path.iterdir()):
            raise UserError(f"{path} exists and is no run directory; choose another --name.")
        content = {
            "format_version": FORMAT_VERSION,
            "kind": kind,
            "name": path.name,
            "created": now(),
            "command": command_line(),
            "versions": versions(),
            "git": git_revision(),
            "machine": machine(),
            "spec": masked(spec),
            **({"mirror": mirror} if mirror else {}),
        }
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        run = cls(path, content)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(error, path, "--storage-path") from error
        try:
            run.write_yaml("run.yaml", content)
        except StorageError:
            for folder in missing:  # leave nothing half-made behind
                with suppress(OSError):
                    folder.rmdir()
            raise
        return run

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunDir:
        """Open an existing run: a path, a name under ./runs, or "latest".

        Of a search over several agents it is the run of the agent that the answer names.
        """
        run = cls.open_whole(path)
        return cls.open_whole(run.path_of_agent(run.named_agent())) if run.kind == AGENTS else run

    @classmethod
    def open_whole(cls, path: str | os.PathLike[str]) -> RunDir:
        """Open an existing run; a search over several agents as itself."""
        path = find_run(path).absolute()
        file = path / "run.yaml"
        try:
            if not os.path.lexists(file):
                raise UserError(f"{path} is no run directory: it has no run.yaml.")
            check_tree(path, TRACKER_FOLDERS)
            content = load_yaml(file)
        except PermissionError:
            raise UserError(f"{file} may not be read: no permission.") from None
        if not isinstance(content, dict) or not isinstance(content.get("format_version"), int):
            raise UserError(f"{path} is no run directory of rltune: no format_version in run.yaml.")
        if content["format_version"] > FORMAT_VERSION:
            made_by = (content.get("versions") or {}).get("rltune", "newer")
            raise UserError(
                f"{path} was written by a newer rltune ({made_by}): its format is "
                f"{content['format_version']}, this one reads up to {FORMAT_VERSION}; "
                "update rltune."
            )
        if not isinstance(content.get("spec"), dict) or content.get("kind") not in KINDS:
            raise UserError(f"{file} is damaged: it has no kind or no spec.")
        for name, kind in HEAD.items():
            if not isinstance(content.get(name, kind()), kind):
                raise UserError(f"{file} is damaged: {name} can't be {content[name]!r:.60}.")
        return cls(path, content)

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"RunDir({str(self.path)!r})"

    @property
    def is_there(self) -> bool:
        """Whether it still exists."""
        return (self.path / "run.yaml").exists()

    def remove_remains(self) -> None:
        """Remove files that were written after the run was deleted: they would block the name."""
        found = {path.name for path in self.path.glob("*")}
        if not self.is_there and found <= PARTS:
            shutil.rmtree(self.path, ignore_errors=True)

    @property
    def spec(self) -> dict[str, Any]:
        """The specification, as it was given to ``create``."""
        return dict(self.content["spec"])

    @property
    def kind(self) -> str:
        """Return "search", "train" or "agents"."""
        return str(self.content["kind"])

    def path_of_agent(self, agent: str) -> Path:
        """Return the run directory of one agent of a search over several."""
        return self.path / AGENTS / agent_folder(agent)

    def named_agent(self) -> str:
        """Return the agent that the answer of a search over several agents names."""
        file = self.path / AGENT_ANSWER
        answer = load_yaml(file) if file.exists() else {}
        agent = answer.get("agent") if isinstance(answer, dict) else None
        if isinstance(agent, str) and (self.path_of_agent(agent) / "run.yaml").exists():
            return agent
        runs = sorted(found.parent.name for found in (self.path / AGENTS).glob("*/run.yaml"))
        one = f" One agent's run: {self.path / AGENTS / runs[0]}." if runs else ""
        raise UserError(
            f"{self.path} searches over several agents and names none yet; go on with: rltune "
            f"resume {self.path}.{one}"
        )

    @property
    def mirror(self) -> str | None:
        """The URI of the run's copy on cloud storage, if there is one."""
        return self.content.get("mirror")

    @property
    def name(self) -> str:
        """The name of the run, and of its folder."""
        return self.path.name

    @property
    def study_path(self) -> Path:
        """The Optuna study."""
        return self.path / "study.db"

    @property
    def study_url(self) -> str:
        """The study as Optuna's tools take it."""
        return f"sqlite:///{self.study_path}"

    @property
    def history_dir(self) -> Path:
        """A row per iteration."""
        return self.path / "history"

    @property
    def episodes_dir(self) -> Path:
        """A row per finished episode."""
        return self.path / "episodes"

    @property
    def trials_path(self) -> Path:
        """A row per trial."""
        return self.path / "trials.parquet"

    @property
    def best_dir(self) -> Path:
        """The best configuration and the answer."""
        return self.path / "best"

    @property
    def report_dir(self) -> Path:
        """The report."""
        return self.path / "report"

    def trial_dir(self, number: int) -> Path:
        """Return the folder of a trial; it is made by its first writer."""
        return self.path / "trials" / str(number)

    def checkpoint(self, number: int) -> Path:
        """Return the file of a trial's checkpoint."""
        return self.trial_dir(number) / "checkpoint.pt"

    def resumed(self, changes: Mapping[str, Any]) -> None:
        """Record that the run goes on, with these versions and these changes in its spec."""
        resume = {
            "resumed": now(),
            "command": command_line(),
            "versions": versions(),
            "git": git_revision(),
            "changes": masked(changes),
        }
        self.content["resumes"] = [*self.content.get("resumes", []), resume]
        self.content["spec"] = {**self.content["spec"], **resume["changes"]}
        self.write_yaml("run.yaml", self.content)

    def write_text(self, name: str, text: str) -> Path:
        """Write a text file of the run wholly or not at all, and return its path."""
        return self._write(name, text)

    def write_yaml(self, name: str, data: Any) -> Path:
        """Write a YAML file of the run wholly or not at all, secrets masked; return its path."""
        text = yaml.safe_dump(masked(data), sort_keys=False, allow_unicode=True, width=100)
        return self._write(name, text)

    def write_parquet(self, name: str, frame: pd.DataFrame | pa.Table) -> Path:
        """Write a pandas frame or an arrow table wholly or not at all, and return its path."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = frame if isinstance(frame, pa.Table) else pa.Table.from_pandas(frame)
        return self._write(name, lambda temporary: pq.write_table(table, temporary))

    def _write(self, name: str, content: str | Callable[[Path], object]) -> Path:
        path = self.path / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(error, path) from error
        atomic_write(path, content)
        return path

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run for this process; UserError when another process drives it already.

        The system releases the lock when the process ends, however it ends.
        """
        path = self.path / ".lock"
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise storage_error(error, path) from error
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.read(handle, 200).decode(errors="replace") or "another process"
                raise UserError(
                    f"the run {self.name!r} is being driven by {owner}; stop that first."
                ) from None
            except OSError:
                pass  # a file system without locks
            os.ftruncate(handle, 0)
            os.write(handle, f"process {os.getpid()} on {platform.node()}".encode())
            remove_leftovers(self.path)
            yield
        finally:
            os.close(handle)
