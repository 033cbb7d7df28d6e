"""A file is written wholly or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rltune.files import atomic_write


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
