"""Output files that a user names: a regular file is replaced, anything else written through."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest
from rltune.agents.errors import UserError
from rltune.agents.user_files import file_of_user


def write(path: Path, text: str = "new") -> None:
    with file_of_user(path, "-o") as file:
        file.write_text(text)


def test_a_regular_file_is_replaced_wholly_or_not_at_all(tmp_path):
    path = tmp_path / "file.yaml"
    write(path, "old")
    assert path.read_text() == "old"

    def fail() -> None:
        with file_of_user(path, "-o") as file:
            file.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text() == "old"
    write(path)
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["file.yaml"]


def test_a_device_stays_one():
    write(Path("/dev/null"))
    assert Path("/dev/null").is_char_device()


def test_a_pipe_is_written_through(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    write(pipe)
    reader.join(10)
    assert read == ["new"]
    assert pipe.is_fifo()


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_is_followed(exists, tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    if exists:
        target.write_text("a longer text than the new one")
    link.symlink_to("target")
    write(link)
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_what_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(UserError, match="it is a folder; choose another -o"):
        write(tmp_path)
    with pytest.raises(UserError, match="choose another -o"):
        write(tmp_path / "none" / "file")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "s"))
        with pytest.raises(UserError, match="choose another -o"):
            write(tmp_path / "s")
