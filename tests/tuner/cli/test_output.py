"""Standard output that is full, or does not know a sign."""

from __future__ import annotations

import io
import sys

import pytest
from rltune.agents.errors import StorageError, UserError
from rltune.cli.output import watch_output
from rltune.common.reading import reading


def in_ascii(monkeypatch: pytest.MonkeyPatch) -> io.BytesIO:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    return raw


def test_signs_that_are_unknown_become_question_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = in_ascii(monkeypatch)
    for _ in range(2):  # two commands in one process
        watch_output(exact=False)
        print("10 ± 2", flush=True)
    assert raw.getvalue() == b"10 ? 2\n" * 2


def test_what_another_program_reads_is_refused_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    in_ascii(monkeypatch)
    watch_output(exact=True)
    with pytest.raises(UserError, match=r"is in ascii, which has no '\\xb1'"), reading("runs/x"):
        print("10 ± 2", flush=True)


def test_a_full_disk_is_not_blamed_on_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(full, write_through=True))
        watch_output(exact=False)
        with pytest.raises(StorageError, match=r"standard output.*full"), reading("runs/x"):
            print("much")
