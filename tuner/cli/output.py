"""Standard output: a full disk or a wrong encoding is an error that names standard output.

Else the error would be blamed on the run that was being read.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rltune.agents.errors import DISK_IS_FULL, StorageError, UserError


class Output(io.TextIOWrapper):
    """Standard output that raises UserError for a full disk, or a character it can't encode."""

    def __init__(self, output: io.TextIOWrapper) -> None:
        output.flush()
        super().__init__(
            output.buffer,
            encoding=output.encoding,
            line_buffering=output.line_buffering,
            write_through=output.write_through,
        )
        self._replaced = output  # would close the file when it is collected

    def write(self, text: str) -> int:
        """Write a text."""
        with _told():
            return super().write(text)

    def flush(self) -> None:
        """Write the buffered text."""
        with _told():
            super().flush()


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except UnicodeEncodeError as error:
        missing = error.object[error.start : error.end]
        raise UserError(
            f"standard output is in {error.encoding}, which has no {missing!a}; "
            "set PYTHONIOENCODING=utf-8."
        ) from None
    except OSError as error:
        full = error.errno in DISK_IS_FULL
        reason = "the disk is full" if full else error.strerror or str(error)
        raise StorageError(f"standard output can't be written: {reason}.") from error


def watch_output(exact: bool) -> None:
    """Replace standard output by an `Output`; a captured one, as in a test, stays.

    Args:
        exact: another program reads it; if not, characters that can't be encoded become question
            marks, so that no long search ends at one
    """
    if type(sys.stdout) is io.TextIOWrapper:
        sys.stdout = Output(sys.stdout)
    if isinstance(sys.stdout, Output):
        sys.stdout.reconfigure(errors="strict" if exact else "replace")


def silence_output() -> None:
    """Discard what is written from now on: Python would report it as it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def flush_output() -> None:
    """Write the buffered text; an output that takes no more is silenced."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (UserError, BrokenPipeError):
        silence_output()


def print_or_write(text: str, path: str | None) -> None:
    """Print the text, or write it to the file that ``-o`` names.

    Raises:
        StorageError: it can't be written.
    """
    if path is None:
        print(text, end="")
        return
    from rltune.agents.user_files import file_of_user

    with file_of_user(path, "-o") as file:
        file.write_text(text, encoding="utf-8")
