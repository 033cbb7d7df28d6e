"""Provenance: the record of a result's origin."""

from __future__ import annotations

import re
import subprocess

from rltune.common.provenance import command_line, git_revision


def test_a_command_line_is_otherwise_kept_whole():
    line = ["rltune", "run", "a b:C", "-s", "n_tokens=1..5", "--keyboard", "x", "--tokenizer=bpe"]
    assert command_line(line) == "rltune run 'a b:C' -s n_tokens=1..5 --keyboard x --tokenizer=bpe"


def test_git_revision(tmp_path):
    assert git_revision(tmp_path) is None
    commit = ["-c", "user.name=x", "-c", "user.email=x@y", "commit", "-q", "-m", "x"]
    (tmp_path / "file").write_text("1")
    for arguments in (["init", "-q"], ["add", "file"], commit):
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True)
    revision = git_revision(tmp_path)
    assert revision is not None
    assert re.fullmatch("[0-9a-f]{40}", str(revision["revision"]))
    assert revision["dirty"] is False
    (tmp_path / "file").write_text("2")
    assert (git_revision(tmp_path) or {})["dirty"] is True
