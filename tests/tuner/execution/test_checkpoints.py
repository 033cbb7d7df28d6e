"""Checkpoints from nodes that don't see the run directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import ray
from rltune.agents.errors import StorageError
from rltune.execution.checkpoints import (
    Checkpoint,
    CheckpointServer,
    ServerAddress,
    SupersededError,
    _digest,
)
from rltune.execution.messages import TASK
from rltune.execution.trainable import AgentTrainable
from searching import POPULATION
from serial import Serial


class Agent:
    def __init__(self, state: bytes) -> None:
        self.state = state

    def save(self, path: Path, *, memory: bool = True) -> None:
        new = path.with_suffix(".new")
        new.write_bytes(self.state)
        new.replace(path)


class Handle:
    """The actor as a worker holds it."""

    def __init__(self, run: str) -> None:
        self.server = CheckpointServer(run)

    def __getattr__(self, name: str) -> Any:
        class Method:
            remote = getattr(self.server, name)

        return Method


def make_run(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.yaml").write_text("created: now\n")
    return run


def checkpoint(run: Path, digest: str) -> Checkpoint:
    address = ServerAddress(str(run), digest, "some actor")
    return Checkpoint(str(run / "trials" / "3" / "checkpoint.pt"), address)


def test_where_the_run_is_seen_the_file_is_written_there(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    mine = checkpoint(run, _digest(run))
    assert mine.fetch() is None
    mine.save(Agent(b"one"))  # type: ignore[arg-type]
    assert mine.fetch() == run / "trials" / "3" / "checkpoint.pt"


@pytest.mark.parametrize("there", ["nothing", "another run of that name"])
def test_elsewhere_it_is_brought_there(
    there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path)
    monkeypatch.setattr(ray, "get_actor", lambda name: Handle(str(run)))
    monkeypatch.setattr(ray, "get", lambda result: result)
    seen = tmp_path / "elsewhere"
    if there != "nothing":
        seen.mkdir()
        (seen / "run.yaml").write_text("created: before\n")
    address = ServerAddress(str(seen), _digest(run), "some actor")
    file = seen / "trials" / "3" / "checkpoint.pt"
    assert Checkpoint(str(file), address).fetch() is None
    Checkpoint(str(file), address).save(Agent(b"one"))  # type: ignore[arg-type]
    assert (run / "trials" / "3" / "checkpoint.pt").read_bytes() == b"one"
    again = Checkpoint(str(file), address)
    fetched = again.fetch()
    assert fetched is not None
    assert fetched.read_bytes() == b"one"
    assert not file.exists()


def test_a_node_that_loses_the_storage_brings_it_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path)
    monkeypatch.setattr(ray, "get_actor", lambda name: Handle(str(run)))
    monkeypatch.setattr(ray, "get", lambda result: result)
    mine = checkpoint(run, _digest(run))
    mine.save(Agent(b"one"))  # type: ignore[arg-type]

    def save(path: Path, *, memory: bool = True) -> None:
        if path.is_relative_to(run):
            raise StorageError("the disk is full")
        path.write_bytes(b"two")

    agent = Agent(b"")
    agent.save = save  # type: ignore[method-assign]
    mine.save(agent)  # type: ignore[arg-type]
    assert (run / "trials" / "3" / "checkpoint.pt").read_bytes() == b"two"
    alone = Checkpoint(str(run / "trials" / "3" / "checkpoint.pt"), None)
    with pytest.raises(StorageError, match="full"):
        alone.save(agent)  # type: ignore[arg-type]


def test_storage_that_goes_before_the_first_look_is_no_new_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path)
    monkeypatch.setattr(ray, "get_actor", lambda name: Handle(str(tmp_path / "gone")))
    monkeypatch.setattr(ray, "get", lambda result: result)
    before = checkpoint(run, _digest(run))
    before.save(Agent(b"one"))  # type: ignore[arg-type]
    mine = checkpoint(run, _digest(run))
    run.rename(tmp_path / "gone")
    fetched = mine.fetch()
    assert fetched is not None
    assert fetched.read_bytes() == b"one"


def test_a_checkpoint_that_goes_while_it_is_read_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toy: None
) -> None:
    options = {name: value for name, value in POPULATION.items() if name != "name"}
    task = Serial(tmp_path, **options).driver.next_job()
    job = AgentTrainable({TASK: task})
    monkeypatch.setattr(job.checkpoint, "fetch", lambda: tmp_path / "gone.pt")
    with pytest.raises(FileNotFoundError, match="gone"):  # Tune tries again
        job.step()


def test_a_node_that_was_given_up_does_not_undo_the_progress_of_its_successor(
    tmp_path: Path,
) -> None:
    run = make_run(tmp_path)
    given_up, successor = checkpoint(run, _digest(run)), checkpoint(run, _digest(run))
    assert given_up.fetch() is None
    given_up.save(Agent(b"one"))  # type: ignore[arg-type]
    file = successor.fetch()
    assert file is not None
    with pytest.raises(SupersededError, match="another worker"):
        given_up.save(Agent(b"two"))  # type: ignore[arg-type]
    successor.save(Agent(b"three"))  # type: ignore[arg-type]
    with pytest.raises(SupersededError, match="another worker"):
        given_up.save(Agent(b"four"))  # type: ignore[arg-type]
    assert file.read_bytes() == b"three"


def test_who_could_not_leave_its_name_does_so_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise StorageError("the disk is full")

    run = make_run(tmp_path)
    before, mine = checkpoint(run, _digest(run)), checkpoint(run, _digest(run))
    before.fetch()
    before.save(Agent(b"one"))  # type: ignore[arg-type]
    with monkeypatch.context() as patch:
        patch.setattr("rltune.execution.checkpoints.atomic_write", full)
        file = mine.fetch()
    mine.save(Agent(b"two"))  # type: ignore[arg-type]
    assert file is not None
    assert file.read_bytes() == b"two"
    with pytest.raises(SupersededError):
        before.save(Agent(b"three"))  # type: ignore[arg-type]


def test_a_full_disk_says_so(small_disk: Path) -> None:
    with pytest.raises(StorageError, match="full"):
        CheckpointServer(str(small_disk)).put("trials/0/checkpoint.pt", bytes(1_000_000))
