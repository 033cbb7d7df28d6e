"""A file is written wholly or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rltune.common.files import atomic_write, remove_leftovers


def test_a_failing_writer_leaves_the_old_file(tmp_path):
    file = tmp_path / "file"
    atomic_write(file, "old")

    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        atomic_write(file, fail)
    assert os.listdir(tmp_path) == ["file"]
    assert file.read_text() == "old"


def test_temporary_files_of_dead_writers_are_removed_and_of_nobody_else(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / "trials" / "3").mkdir(parents=True)
    left = [f".trials.parquet.{dead.pid}.tmp", f"trials/3/.checkpoint.pt.x_1.{dead.pid}.tmp",
            f".clip.{dead.pid}.mp4"]  # fmt: skip
    kept = [f".page.{os.getpid()}.tmp", "trials/3/checkpoint.pt", ".lock", f"{dead.pid}.tmp"]
    for name in left + kept:
        (tmp_path / name).write_text("half")
    reused = tmp_path / f".old.{os.getpid()}.tmp"  # its number has been given to this process
    reused.write_text("half")
    os.utime(reused, (1.0, 1.0))
    remove_leftovers(tmp_path)
    assert {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()} == {
        *kept
    }
