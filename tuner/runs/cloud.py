"""Cloud storage of run directories: s3://, gs:// and all others that pyarrow knows.

The run itself is local: a database and atomic renames want a file system. What has changed is
copied in the background, the study last: a copy that was cut off anywhere looks like a run that was
killed, and can be resumed.
"""

from __future__ import annotations

import os
import platform
import queue
import re
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from rltune.agents.errors import StorageError, UserError
from rltune.runs.directory import STORAGE

EVERY = 30.0  # seconds between two copies
PATIENCE = 60.0  # seconds that the last copy may take to succeed
STUDY = "study.db"
SNAPSHOT = ".mirror-"
PROBE = ".rltune-was-here"
SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs")
FORMS = "write s3://BUCKET/FOLDER, gs://BUCKET/FOLDER, or a folder"
OWNER = ".owner"  # the process that drives the run; as fresh as the last copy
FORGOTTEN = 4 * EVERY  # seconds after which an owner is taken for dead

State = tuple[int, int] | None  # time and size; None: unknown


def is_uri(path: str | os.PathLike[str]) -> bool:
    """Return whether a path names a place on cloud storage."""
    return re.match(r"[a-zA-Z][\w+.-]+://", os.fspath(path)) is not None


def split_storage(storage: str | os.PathLike[str]) -> tuple[str, str | None]:
    """Return the folder of runs on this machine, and the URI of their copies, if any.

    Raises:
        UserError: the storage can't be written to; better known now than after a night.
    """
    text = os.fspath(storage)
    if not is_uri(text):
        if found := re.match(rf"({'|'.join(SCHEMES)}):/*", text):
            right = f"{found[1]}://{text[found.end() :]}"
            raise UserError(f"storage {text!r} is no folder, nor a URI; write {right!r}.")
        return text, None
    if re.match(r"(sqlite|mysql|postgresql|redis|journal)\b", text):
        raise UserError(
            f"storage {text!r} is a database, but runs are folders: write --storage-path DIR. A "
            f"search keeps its study in {STORAGE}/NAME/{STUDY}, which any Optuna tool opens."
        )
    Remote(text).check()
    return STORAGE, text


def below(storage: str, name: str) -> str:
    """Return the URI of a run in a storage; a query such as ?region=... stays at the end."""
    path, mark, query = storage.partition("?")
    return f"{path.rstrip('/')}/{name}{mark}{query}"


def name_of(uri: str) -> str:
    """Return the name of the run at a URI."""
    return PurePosixPath(uri.partition("?")[0]).name


def refuse_key(uri: str) -> None:
    """Raise a UserError when a URI holds a key: it is written into run.yaml, and shown."""
    if re.match(r"[^/]+://[^/@]+@", uri):
        raise UserError(
            "a storage URI must not hold a key; set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY (or what your storage reads) instead."
        )


def _impatient(uri: str) -> str:
    """Return a URI with which Google's storage gives up after half a minute instead of 15."""
    if not uri.startswith(("gs://", "gcs://")) or "retry_limit_seconds=" in uri:
        return uri
    return f"{uri}{'&' if '?' in uri else '?'}retry_limit_seconds={PATIENCE / 2:g}"


class Remote:
    """A folder on a storage.

    Raises:
        UserError: nothing like that is known, or the URI holds a key.
        StorageError: from every method: the storage did not do it.
    """

    def __init__(self, uri: str) -> None:
        from pyarrow import ArrowException, ArrowInvalid
        from pyarrow.fs import FileSystem

        self.uri = uri
        refuse_key(uri)
        try:
            self._system, self._root = FileSystem.from_uri(_impatient(uri))
        except (ArrowException, ValueError, OSError, ImportError) as error:
            hint = f"; {FORMS}" if isinstance(error, ArrowInvalid) else ""
            raise UserError(f"storage {uri!r} can't be used: {_line(error)}{hint}") from None
        if not self._root.strip("/"):
            raise UserError(f"storage {uri!r} names no bucket or folder; {FORMS}.")

    def check(self) -> None:
        """Write a file, and delete it."""
        with tempfile.NamedTemporaryFile() as file:
            self.put(Path(file.name), PROBE)
        self.delete(PROBE)

    def files(self) -> dict[str, float]:
        """Return the names of all files, relative to the folder, with their times."""
        from pyarrow.fs import FileSelector, FileType

        with self._errors("can't be listed"):
            selector = FileSelector(self._root, recursive=True, allow_not_found=True)
            found = self._system.get_file_info(selector)
        names = {}
        for info in found:
            name = PurePosixPath(info.path).relative_to(self._root)
            if info.type == FileType.File and ".." not in name.parts:
                names[str(name)] = (info.mtime_ns or 0) / 1e9
        return names

    def put(self, file: Path, name: str) -> None:
        """Copy a local file there; a reader sees the old one or the new one."""
        where = f"{self._root}/{name}"
        with self._errors(f"did not take {name}"):
            if self._system.type_name != "local":  # there, a file appears when it is whole
                self._copy(file, where)
                return
            self._system.create_dir(str(PurePosixPath(where).parent))
            self._copy(file, f"{where}.part")
            self._system.move(f"{where}.part", where)

    def get(self, name: str, file: Path) -> None:
        """Copy a file from there."""
        with self._errors(f"did not give {name}"):
            file.parent.mkdir(parents=True, exist_ok=True)
            whence = f"{self._root}/{name}"
            with self._system.open_input_stream(whence) as source, file.open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)

    def delete(self, name: str) -> None:
        """Delete a file there, if there is one."""
        with self._errors(f"did not delete {name}"), suppress(FileNotFoundError):
            self._system.delete_file(f"{self._root}/{name}")

    def _copy(self, file: Path, where: str) -> None:
        with file.open("rb") as source, self._system.open_output_stream(where) as target:
            shutil.copyfileobj(source, target, 1 << 20)

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        from pyarrow import ArrowException

        try:
            yield
        except (OSError, ArrowException) as error:
            raise StorageError(f"{self.uri} {what}: {_line(error)}") from error


class Mirror:
    """Keeps a copy of a run directory on a storage while the run grows.

    Whoever writes the run calls `tick` between two writes: then a snapshot is taken, of hard links,
    in which everything fits together. A thread copies it, however long that takes.

    Args:
        run: the run directory
        uri: of the copy
        warn: gets a sentence when the storage is away, and one when it is back
    """

    def __init__(self, run: Path, uri: str, warn: Callable[[str], None]) -> None:
        self._run, self._warn = run, warn
        self._remote = Remote(uri)
        self._there: dict[str, State] | None = None  # what was copied
        self._away = False
        self._taken = 0.0  # when the last snapshot was
        self._snapshots: queue.SimpleQueue[Path | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True, name="mirror")

    def __enter__(self) -> Mirror:
        _clean(self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Copy the files that are left, for at most a minute or two."""
        with suppress(OSError, sqlite3.Error):
            self._snapshots.put(_snapshot(self._run))
        self._snapshots.put(None)
        self._thread.join(2 * PATIENCE)
        if self._thread.is_alive() or self._away:
            self._warn(
                f"not all of the run is on {self._remote.uri}; `rltune resume {self._run.name}` "
                "copies the rest."
            )
        _clean(self._run)

    def tick(self) -> None:
        """Take a snapshot if it is time for one; costs milliseconds."""
        if time.monotonic() - self._taken < EVERY or not self._snapshots.empty():
            return
        self._taken = time.monotonic()
        try:
            self._snapshots.put(_snapshot(self._run))
        except (OSError, sqlite3.Error) as error:
            self._warn(f"no snapshot of the run could be taken: {_line(error)}")

    def _sync(self, snapshot: Path) -> None:
        """Copy files that have changed since the last time, and delete those that are gone."""
        remote = self._remote
        if self._there is None:
            self._there = dict.fromkeys(remote.files())
        with tempfile.NamedTemporaryFile("w", suffix=OWNER) as file:
            file.write(f"process {os.getpid()} on {platform.node()}")
            file.flush()
            remote.put(Path(file.name), OWNER)
        names = set(_names(snapshot))
        for name in sorted(names, key=lambda name: (name == STUDY, name)):  # the study last
            found = (snapshot / name).stat()
            state = (found.st_mtime_ns, found.st_size)
            if self._there.get(name) != state:
                remote.put(snapshot / name, name)
                self._there[name] = state
        for name in self._there.keys() - names - {OWNER}:
            remote.delete(name)
            del self._there[name]

    def _work(self) -> None:
        last: Path | None = None
        while (snapshot := self._snapshots.get()) is not None:
            if last is not None:
                shutil.rmtree(last, ignore_errors=True)
            self._try(snapshot)
            last = snapshot
        deadline = time.monotonic() + PATIENCE
        while last is not None and self._away and time.monotonic() < deadline:
            time.sleep(2.0)
            self._try(last)
        with suppress(StorageError):
            self._remote.delete(OWNER)

    def _try(self, snapshot: Path) -> None:
        try:
            self._sync(snapshot)
        except (StorageError, OSError) as error:
            if not self._away:
                self._warn(f"{_line(error)}; the run goes on, and is copied later.")
            self._away = True
            return
        if self._away:
            self._warn(f"{self._remote.uri} is back; everything is copied.")
        self._away = False


@contextmanager
def mirrored(
    run: Path, uri: str | None, warn: Callable[[str], None]
) -> Iterator[Callable[[], None]]:
    """Keep a copy of the run while the block runs, if there is a place for one; yields `tick`."""
    if uri is None:
        yield lambda: None
        return
    with Mirror(run, uri, warn) as mirror:
        yield mirror.tick


def fetch(uri: str, storage: str | os.PathLike[str] = STORAGE, *, to_drive: bool = False) -> Path:
    """Copy a run from a storage to this machine, and return its folder.

    Args:
        uri: of the run
        storage: where it goes, under its own name
        to_drive: it is to be resumed, so no other process may be driving it

    Raises:
        UserError: there is no such run, it is here already, or it is driven elsewhere.
        StorageError: the storage can't be reached.
    """
    remote = Remote(uri)
    files = remote.files()
    if "run.yaml" not in files:
        raise UserError(f"there is no run at {uri}: it has no run.yaml.")
    target = Path(storage) / name_of(uri)
    if to_drive and time.time() - files.get(OWNER, 0.0) < FORGOTTEN:
        raise UserError(
            f"the run at {uri} is being driven from another machine, or was until a moment ago; "
            f"stop that first, and wait {FORGOTTEN:.0f} s."
        )
    with arrive(target) as folder:
        for name in files.keys() - {OWNER}:
            remote.get(name, folder / name)
    return target


@contextmanager
def arrive(target: Path) -> Iterator[Path]:
    """Yield a folder to fill with a run; when that is done it is moved to ``target``.

    Raises:
        UserError: something is there already.
    """
    if target.exists():
        raise UserError(f"{target} is here already; go on with that, or move it away first.")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as temporary:
        folder = Path(temporary) / "run"
        folder.mkdir()
        yield folder
        os.replace(folder, target)


def fetched(run: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Return a run as it was given; one on a storage is fetched first, to be driven here."""
    return fetch(os.fspath(run), to_drive=True) if is_uri(run) else run


@contextmanager
def snapshot(run: Path) -> Iterator[Path]:
    """Yield a copy of a run directory, made of hard links, with a consistent study."""
    folder = _snapshot(run)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _snapshot(run: Path) -> Path:
    folder = Path(tempfile.mkdtemp(prefix=SNAPSHOT, dir=run))
    study = run / STUDY
    if study.exists():
        from rltune.study.database import copy_study

        copy_study(study, folder / STUDY)
    for name in _names(run):
        if name != STUDY:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # a worker has replaced it
                _link(run / name, folder / name)
    return folder


def _clean(run: Path) -> None:
    for folder in run.glob(f"{SNAPSHOT}*"):
        shutil.rmtree(folder, ignore_errors=True)


def _names(run: Path) -> Iterator[str]:
    for path in run.rglob("*"):
        name = path.relative_to(run)
        hidden = any(part.startswith(".") for part in name.parts)
        if not hidden and path.is_file() and not path.is_symlink() and "study.db-" not in path.name:
            yield str(name)


def _link(file: Path, target: Path) -> None:
    try:
        os.link(file, target)
    except FileNotFoundError:
        raise
    except OSError:  # a file system without hard links
        shutil.copy2(file, target)


def _line(error: Any) -> str:
    return str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
