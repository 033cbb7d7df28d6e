"""Work beside the training: nothing is lost in silence, and nothing is overtaken."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from rltune.agents.errors import StorageError
from rltune.agents.loop import checkpoint
from rltune.execution.beside import Beside

STATE = {"agent": "ppo", "env": "CartPole-v1", "extra": {}}


def test_tasks_run_one_after_the_other() -> None:
    took: list[float] = []
    beside, gate, done = Beside(took.append), threading.Event(), list[int]()

    def first() -> None:
        gate.wait(30)
        done.append(1)

    beside.run(first)
    assert not done  # the caller goes on meanwhile
    threading.Timer(0.05, gate.set).start()
    beside.run(lambda: done.append(2))
    beside.wait()
    assert done == [1, 2]
    assert len(took) == 2
    assert took[0] > 0.01


def test_what_a_task_raised_is_raised_by_the_next_call_once() -> None:
    beside = Beside()

    def fail() -> None:
        raise StorageError("the disk is full")

    beside.run(fail)
    with pytest.raises(StorageError, match="full"):
        beside.wait()
    beside.wait()


def test_a_checkpoint_is_the_old_one_until_the_disk_has_the_new_one(tmp_path: Path) -> None:
    path, beside, gate = tmp_path / "checkpoint.pt", Beside(), threading.Event()
    checkpoint.write(path, {**STATE, "version_of": "old"})

    def wait_for_the_disk() -> None:
        gate.wait(30)

    flushes = []
    with checkpoint.flushed_by(flushes.append):
        checkpoint.write(path, {**STATE, "version_of": "new"})
    assert checkpoint.read(path)["version_of"] == "old"
    beside.run(wait_for_the_disk)
    gate.set()
    beside.run(flushes[0])
    beside.wait()
    assert checkpoint.read(path)["version_of"] == "new"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    checkpoint.write(path, {**STATE, "version_of": "last"})  # at once, as before
    assert checkpoint.read(path)["version_of"] == "last"


def test_a_checkpoint_that_the_disk_does_not_take_says_so(tmp_path: Path) -> None:
    path, flushes = tmp_path / "runs" / "checkpoint.pt", []
    with checkpoint.flushed_by(flushes.append):
        checkpoint.write(path, STATE)
    path.mkdir()  # it can't be replaced by a file
    with pytest.raises(StorageError):
        flushes[0]()
    assert [file.name for file in path.parent.iterdir()] == [path.name]
