"""The run directory: what one search or training leaves on disk, and all that later commands read.

Every file is written to a temporary name beside it and renamed, so a reader never meets half of
one. Temporary names begin with a dot: pandas and pyarrow skip them when they read a folder.
"""

from __future__ import annotations

import difflib
import fcntl
import importlib.metadata
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from rltune.agents.errors import StorageError, UserError, storage_error
from rltune.scales import environments
from rltune.untrusted import check_tree, load_yaml

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from rltune.reporting.charts import Chart

FORMAT_VERSION = 1
KINDS = ("search", "train")
HEAD = {"name": str, "created": str, "command": str, "versions": dict, "resumes": list}
MAX_ENVS_IN_NAME = 3
# Where runs go unless --storage-path says otherwise.
STORAGE = os.path.expanduser(os.environ.get("RLTUNE_STORAGE") or "runs")
PACKAGES = (
    *("rltune", "ray", "torch", "optuna", "gymnasium", "numpy", "pandas", "pyarrow", "wandb"),
    *("ale-py", "mujoco", "Box2D", "envpool", "pybullet"),
)


def atomic_write(
    path: str | os.PathLike[str], content: str | bytes | Callable[[Path], object]
) -> None:
    """Write a file wholly or not at all; a callable is given the temporary path to write to.

    Raises StorageError when the disk is full or may not be written.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if callable(content):
            content(temporary)
        else:
            temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(temporary, path)
    except OSError as error:
        raise storage_error(error, path) from error
    finally:
        temporary.unlink(missing_ok=True)


# ------------------------------------------------------------------ what is recorded about a run

_SECRET = r"(?:(?:api|access|auth|private|secret|wandb)[-_]?key|token|secret|password|passwd)"
SECRET_NAME = re.compile(rf"(?i)(?:^|[-_.]){_SECRET}$")
URL_PASSWORD = re.compile(r"(://[^/@:\s]*:)([^/@\s]+)(?=@)")
# In a text: a name and its value, the password of a URL, and what a key looks like.
SECRET_TEXT = (
    re.compile(rf"(?i)((?:\b|[-_.]){_SECRET}[\"']?\s*[=:]\s*[\"']?)([^\s\"',}}]+)"),
    URL_PASSWORD,
    re.compile(r"\b()([0-9a-f]{40}|wandb_v1_\w+|sk-[\w-]{16,}|gh[pousr]_\w{16,}|hf_\w{16,})\b"),
)
MASK = "***"


def masked(value: Any) -> Any:
    """Return plain data (dicts, lists, numbers, text) without secrets.

    Masked are texts under a key such as "api_key", the passwords of URLs, and the values of
    environment variables with such a name, wherever they stand.
    """
    return _masked(value, _secrets())


def masked_text(text: str) -> str:
    """Return a text such as a traceback without secrets: also without what looks like a key."""
    for pattern in SECRET_TEXT:
        text = pattern.sub(rf"\1{MASK}", text)
    return str(masked(text))


def _secrets() -> list[str]:
    """Return the values of environment variables that are secret by their names."""
    named = {text for name, text in os.environ.items() if SECRET_NAME.search(name)}
    secrets = [text for text in named if len(text) >= 8 and not text.startswith("/")]
    return sorted(secrets, key=len, reverse=True)


def _masked(value: Any, secrets: list[str]) -> Any:
    if isinstance(value, Mapping):
        return {
            key if isinstance(key, int) else str(key): MASK
            if isinstance(item, str) and SECRET_NAME.search(str(key))
            else _masked(item, secrets)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_masked(item, secrets) for item in value]
    if hasattr(value, "tolist"):  # numpy's arrays and scalars
        value = value.tolist()
    if value is None or isinstance(value, (bool, int, float, list)):
        return value
    text = str(value)
    for secret in secrets:
        text = text.replace(secret, MASK)
    return URL_PASSWORD.sub(rf"\1{MASK}", text)


def command_line(arguments: list[str] | None = None) -> str:
    """Return the command line as one would paste it into a shell, whatever looks secret masked."""
    shown: list[str] = []
    for argument in sys.argv if arguments is None else arguments:
        if shown and shown[-1].startswith("-") and SECRET_NAME.search(shown[-1]):
            argument = MASK
        shown.append(masked_text(argument))
    program = [Path(name).name for name in shown[:1]]
    return str(masked(shlex.join(program + shown[1:])))


def versions() -> dict[str, str]:
    """Return the version of Python and of every installed package that a result depends on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def git_revision(folder: str | os.PathLike[str] = ".") -> dict[str, object] | None:
    """Return {"revision": str, "dirty": bool} of the repository that holds ``folder``, if any."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", os.fspath(folder), "--no-optional-locks", *arguments]
        run = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
        return run.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return {"revision": git("rev-parse", "HEAD"), "dirty": bool(changed)}
    except (OSError, subprocess.SubprocessError):
        return None


def machine() -> dict[str, object]:
    """Return the cores this process may use, the memory in GiB and the names of NVIDIA GPUs."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    gpus = []
    for information in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        model = re.search(r"Model:\s*(.+)", information.read_text())
        gpus.append(model.group(1).strip() if model else "NVIDIA GPU")
    return {
        "platform": platform.platform(terse=True),
        "cores": cores,
        "memory_gib": round(memory, 1),
        "gpus": gpus,
    }


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


# ------------------------------------------------------------------------------- names and places


def default_name(agent: str, env: str, storage: str | os.PathLike[str] | None = None) -> str:
    """Return "ppo-CartPole-v1-20261121-0223"; with ``storage``, one that is not taken there."""
    parts = [agent, *environments(env)][: 1 + MAX_ENVS_IN_NAME]
    stem = "-".join(re.split(r"[:/.]", part)[-1] for part in parts)
    name = re.sub(r"[^\w.+-]", "-", stem) + time.strftime("-%Y%m%d-%H%M")
    taken, number = name, 1
    while storage is not None and (Path(storage) / taken).exists():
        number += 1
        taken = f"{name}-{number}"
    return taken


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
        is_file = folder.exists() and not folder.is_dir()
    except PermissionError as error:
        raise storage_error(error, folder) from error
    if is_file:
        raise UserError(f"storage path {storage!r} is a file; give a folder.")
    return folder / name


def find_run(run: str | os.PathLike[str], storage: str | os.PathLike[str] = STORAGE) -> Path:
    """Return the folder of a run given as a path, as a name in ``storage``, or as "latest"."""
    text = os.fspath(run)
    if "://" in text:
        raise UserError(f"{text} is on cloud storage; copy it here first: rltune fetch {text}")
    places = (Path(text).expanduser(), Path(storage) / text)
    for path in places:
        if os.path.exists(path / "run.yaml"):
            return path
    for path in places:
        if os.path.exists(path):  # not a run: whoever opens it says so
            return path
    known = sorted(Path(storage).glob("*/run.yaml"), key=lambda file: file.stat().st_mtime)
    if text == "latest" and known:
        return known[-1].parent
    close = difflib.get_close_matches(text, [file.parent.name for file in known], n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else "give the path of a run directory."
    raise UserError(f"no run {text!r} here or in {os.fspath(storage)!r}; {hint}")


# ----------------------------------------------------------------------------- the run directory


class RunDir:
    """One run directory, open for the process that drives the run (see ``open_run`` for readers).

    ``content`` is run.yaml: what was asked for under "spec", and by whom, when and with what.
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
            "created": _now(),
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
            run.write_yaml("run.yaml", content)
        except StorageError:
            for folder in missing:  # leave nothing half-made behind
                with suppress(OSError):
                    folder.rmdir()
            raise
        return run

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunDir:
        """Open an existing run: a path, a name under ./runs, or "latest"."""
        path = find_run(path).absolute()
        file = path / "run.yaml"
        try:
            if not os.path.lexists(file):
                raise UserError(f"{path} is no run directory: it has no run.yaml.")
            check_tree(path)
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
    def spec(self) -> dict[str, Any]:
        """What was asked for, as it was given to ``create``."""
        return dict(self.content["spec"])

    @property
    def kind(self) -> str:
        """Return "search" or "train"."""
        return str(self.content["kind"])

    @property
    def mirror(self) -> str | None:
        """Where on cloud storage a copy of the run is kept, if anywhere."""
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
        """Return the folder of a trial; whoever writes into it makes it."""
        return self.path / "trials" / str(number)

    def checkpoint(self, number: int) -> Path:
        """Return the file of a trial's checkpoint."""
        return self.trial_dir(number) / "checkpoint.pt"

    def resumed(self, changes: Mapping[str, Any]) -> None:
        """Record that the run goes on, with these versions and these changes in its spec."""
        resume = {
            "resumed": _now(),
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
            yield
        finally:
            os.close(handle)


# ----------------------------------------------------------------------------------- the readers


class Run:
    """A run as its directory tells it: frames, specification and answer; changes nothing."""

    def __init__(self, rundir: RunDir) -> None:
        self.rundir = rundir

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.rundir.path

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.rundir.name

    @property
    def spec(self) -> dict[str, Any]:
        """What was asked for: agent, env, space, budget, seeds, ..."""
        return self.rundir.spec

    def trials(self) -> pd.DataFrame:
        """Return a row per trial: state, reason, configuration, objective, budget reached, cost."""
        from rltune.trials_table import read_trials

        return read_trials(self.rundir.trials_path)

    def history(self) -> pd.DataFrame:
        """Return a row per (trial, seed, iteration)."""
        from rltune.history import read_history

        return read_history(self.path)

    def episodes(self) -> pd.DataFrame:
        """Return a row per finished training episode."""
        from rltune.history import read_episodes

        return read_episodes(self.path)

    @property
    def best(self) -> dict[str, Any] | None:
        """The best configuration, or None before there is one."""
        return self._read_yaml("best/config.yaml")

    @property
    def answer(self) -> dict[str, Any] | None:
        """The answer of the search, or None before there is one."""
        return self._read_yaml("best/answer.yaml")

    def front(self, against: str | None = None) -> pd.DataFrame:
        """Return the front of a search with several objectives, a row per configuration.

        Columns: trial, label, on_front, dominated_by (trials that are better beyond chance), each
        objective with its interval (.low, .high; 95 %) and its value in the search (.tuning), the
        configuration, and the command that trains it again.

        Args:
            against: "env_steps" gives, of any search, the best objective by when, see `anytime.py`

        Raises:
            UserError: there is no such front, or not yet.
        """
        from rltune.against import STEPS
        from rltune.anytime import learning_front
        from rltune.front import Front

        if against is not None:
            if against != STEPS:
                raise UserError(
                    f"--against {against}: of a search that has run, only {STEPS} can be looked "
                    f"at; rltune run ... --against {against} searches for that front."
                )
            return learning_front(self)
        data = self._read_yaml("best/front.yaml")
        if data is None:
            what = "is not at its end" if self.spec.get("against") else "has one objective"
            raise UserError(f"{self.path} {what}: there is no front.")
        return Front.from_dict(data).frame()

    def figures(self) -> dict[str, Chart]:
        """Return the report's figures by name; a notebook shows them, ``save(folder)`` draws them.

        What the run does not carry yet is left out.
        """
        from rltune.reporting.figures import charts
        from rltune.summary import Summary

        return {chart.name: chart for chart in charts(Summary(self))}

    def _repr_html_(self) -> str:
        """Show the answer in a notebook."""
        from rltune.reporting import page
        from rltune.summary import Summary

        return page.of_run(Summary(self)).card()

    def _read_yaml(self, name: str) -> dict[str, Any] | None:
        file = self.path / name
        data = load_yaml(file) if file.exists() else None
        if not isinstance(data, dict | None):
            raise UserError(f"{file} is damaged: it has no names with values.")
        return data

    def __repr__(self) -> str:
        spec = self.spec
        what = " on ".join(str(spec[key]) for key in ("agent", "env") if key in spec)
        created = self.rundir.content.get("created", "")
        return f"<{self.rundir.kind} {self.name!r}: {what}, {created}, {self.path}>"


def open_run(path: str | os.PathLike[str]) -> Run:
    """Open a run for reading: a path, a name under ./runs, or "latest"."""
    return Run(RunDir.open(path))
