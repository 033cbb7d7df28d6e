"""A limit to how long a command may take in a test."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any

PATIENCE = 10  # seconds


class Hang(Exception):
    """It took longer than it may."""


def _hang(*_: Any) -> None:
    raise Hang


@contextlib.contextmanager
def patience(seconds: int = PATIENCE) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, _hang)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
