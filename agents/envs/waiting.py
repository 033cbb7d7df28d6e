"""Watchdog for environments: which method does not answer, and for how long."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from threading import get_ident

PATIENCE = 10.0  # seconds without an answer before anything is said
AGAIN = 60.0  # seconds from one word about the same call to the next
LOOK_EVERY = 0.5

_calls: dict[int, tuple[str, float]] = {}  # thread -> method that is waited for, and since when


def began(method: str) -> None:
    """Note that this thread calls a method of an environment."""
    _calls[get_ident()] = method, time.monotonic()


def ended() -> None:
    """Note that the method has answered, or raised."""
    _calls.pop(get_ident(), None)


@contextlib.contextmanager
def calling(method: str) -> Iterator[None]:
    """Note for the block that a method of an environment is called; within another one, too."""
    before = _calls.get(get_ident())
    began(method)
    try:
        yield
    finally:
        ended()
        if before is not None:
            _calls[get_ident()] = before


def longest() -> tuple[str, float] | None:
    """Return the method that is waited for the longest, and for how many seconds; None: none."""
    oldest = min(list(_calls.values()), key=lambda call: call[1], default=None)
    return None if oldest is None else (oldest[0], time.monotonic() - oldest[1])


def silence(method: str, seconds: float) -> str:
    """Return the sentence for a person."""
    return f"nothing has come from the environment's {method} for {seconds:.0f} s"


def on_stderr(method: str, seconds: float | None) -> None:
    """Tell it before there is a screen."""
    if seconds is not None:
        print(f"rltune: {silence(method, seconds)}.", file=sys.stderr, flush=True)


class Watch:
    """While the block runs, a thread looks whether an environment of this process answers.

    Args:
        tell: is given a method and the seconds that it has not answered for: after `PATIENCE`, of
            the same method later only after `AGAIN`; None for the seconds: it has answered
    """

    def __init__(self, tell: Callable[[str, float | None], None]) -> None:
        self._tell = tell
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="rltune-waiting", daemon=True)

    def start(self) -> None:
        """Begin to look; without a block around it."""
        self._thread.start()

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _look(self) -> None:
        told, due = "", dict[str, float]()
        while not self._over.wait(LOOK_EVERY):
            method, seconds = longest() or ("", 0.0)
            if told and (method != told or seconds < PATIENCE):
                self._tell(told, None)
                due[told], told = AGAIN, ""  # a slow one is told once, and when it gets worse
            if seconds >= due.get(method, PATIENCE):
                self._tell(method, seconds)
                told, due[method] = method, seconds + AGAIN
