"""Checkpoints of jobs: in the run directory, or sent there by nodes that don't see it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rltune.agents.errors import StorageError
from rltune.common.files import atomic_write

if TYPE_CHECKING:
    from rltune.backends.base import Trainer
    from rltune.execution.beside import Beside


class ServerAddress(NamedTuple):
    """The address of a run directory, and of the actor that serves it to other nodes."""

    run: str
    digest: str  # of its run.yaml: another machine may have a folder of that name, too
    actor: str


class CheckpointServer:
    """Writes to the run directory and reads from it, on the node where that lies. A Ray actor."""

    def __init__(self, run: str) -> None:
        self._run = Path(run)

    def get(self, name: str) -> bytes | None:
        """Return a file's content; None where there is none."""
        file = self._run / name
        return file.read_bytes() if file.exists() else None

    def put(self, name: str, content: bytes) -> None:
        """Replace a file; StorageError where the disk does not take it."""
        file = self._run / name
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(file, content)


def open_checkpoint_server(run: Path) -> tuple[ServerAddress, Any]:
    """Start the actor beside this process; it ends when its handle, the second result, is gone."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    address = ServerAddress(str(run), _digest(run), f"rltune-{uuid.uuid4().hex}")
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actor: Any = ray.remote(CheckpointServer).options(
        name=address.actor,
        num_cpus=0,
        scheduling_strategy=here,
        max_restarts=-1,
        max_task_retries=-1,
    )
    return address, actor.remote(str(run))


class SupersededError(Exception):
    """The job was given to another worker meanwhile."""


class Checkpoint:
    """The checkpoint of a job.

    A node that was cut off, and that Ray has given up, may go on for a while and still reach shared
    storage: its checkpoints must not replace the progress of its successor. So a worker that
    fetches the checkpoint leaves its name beside it, and only the last one to do so may save.

    Args:
        path: of the file, in the run directory
        address: None where every worker sees the run directory
    """

    def __init__(self, path: str, address: ServerAddress | None) -> None:
        self._path, self._address = Path(path), address
        self._actor: Any = None
        self._mark = self._path.with_name(f".{self._path.name}.worker")
        self._worker = uuid.uuid4().hex
        self._claimed = False
        self._look()

    def fetch(self) -> Path | None:
        """Return the file; None where there is none yet."""
        if self._actor is None:
            self._claim()
            if self._path.exists():
                return self._path
            self._look()  # there is none, or the storage has just gone
        if self._actor is not None:
            mark = os.path.join(os.path.dirname(self._name), self._mark.name)
            _result(self._actor.put.remote(mark, self._worker.encode()))
            content = _result(self._actor.get.remote(self._name))
            if content is None:
                return None
            self._path.write_bytes(content)
            return self._path
        return None

    def save(self, agent: Trainer, *, memory: bool = True, beside: Beside | None = None) -> None:
        """Replace it by the agent's state; see `rltune.agents.Agent.save`.

        Args:
            agent: that is saved
            memory: whether its memory is
            beside: waits for the disk; None: the file is there afterwards

        Raises:
            SupersededError: another worker has fetched it since.
            StorageError: it can't be written.
        """
        if self._actor is None:
            self._check()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with _flushing(beside if self._actor is None else None):
                agent.save(self._path, memory=memory)
        except (OSError, StorageError):
            if self._address is None or self._actor is not None:
                raise
            # This node has lost the storage; the one where the run is may have it.
            self._go_through(self._address)
            agent.save(self._path, memory=memory)
        if self._actor is not None:
            _result(self._actor.put.remote(self._name, self._path.read_bytes()))

    def _look(self) -> None:
        """Go through the checkpoint server where the run directory can't be seen."""
        if self._address is not None and _digest(Path(self._address.run)) != self._address.digest:
            self._go_through(self._address)

    def _claim(self) -> None:
        with contextlib.suppress(OSError, StorageError):  # saving will say what is wrong
            self._mark.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(self._mark, self._worker)
            self._claimed = True

    def _check(self) -> None:
        if not self._claimed:
            self._claim()
        with contextlib.suppress(OSError):
            if self._claimed and self._mark.read_text() != self._worker:
                raise SupersededError(f"{self._path} is another worker's, which has taken over")

    def _go_through(self, address: ServerAddress) -> None:
        import ray

        self._actor = ray.get_actor(address.actor)
        self._name = os.path.relpath(self._path, address.run)
        self._scratch = tempfile.TemporaryDirectory(prefix="rltune-checkpoint-")
        self._path = Path(self._scratch.name) / self._path.name


@contextlib.contextmanager
def _flushing(beside: Beside | None) -> Iterator[None]:
    from rltune.agents.loop import checkpoint  # late: it loads PyTorch

    if beside is None:
        yield
        return
    with checkpoint.flushed_by(beside.run):
        yield


@contextlib.contextmanager
def file_of_run(path: str, address: ServerAddress | None) -> Iterator[Path]:
    """Yield the path of a file of the run that never changes; a copy where the run can't be seen.

    Raises:
        FileNotFoundError: there is none.
    """
    if address is None or _digest(Path(address.run)) == address.digest:
        yield Path(path)
        return
    import ray

    actor = ray.get_actor(address.actor)
    content = _result(actor.get.remote(os.path.relpath(path, address.run)))
    if content is None:
        raise FileNotFoundError(path)
    with tempfile.TemporaryDirectory(prefix="rltune-") as folder:
        copy = Path(folder) / Path(path).name
        copy.write_bytes(content)
        yield copy


def _result(reference: Any) -> Any:
    import ray

    return ray.get(reference)


def _digest(run: Path) -> str:
    try:
        return hashlib.sha256((run / "run.yaml").read_bytes()).hexdigest()
    except OSError:  # not there, or storage that has gone
        return ""
