"""The keyboard of a terminal, key by key, and the terminal given back however the process ends.

The terminal is in cbreak mode: keys come at once and are not echoed, while Ctrl-C, Ctrl-Z and
Ctrl-\\ remain what they are. It is only taken while this process is in the foreground: a search in
the background leaves keys and settings to the shell. Without termios (Windows) there are no keys.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import sys
import threading
from typing import Any

try:
    import termios

    HAS_KEYS = True
except ImportError:  # Windows
    HAS_KEYS = False

ESCAPE_TIME = 0.05  # seconds in which the rest of an arrow key's sequence comes
SEQUENCES = {
    **{f"\x1b{kind}{letter}": key for kind in "[O" for letter, key in
       zip("ABHF", ("up", "down", "first", "last"), strict=True)},
    "\x1b[5~": "first", "\x1b[6~": "last", "\x1b": "back",
}  # fmt: skip
KEYS = {"\r": "enter", "\n": "enter", "\x7f": "back", "\x08": "back"}

_taken: dict[int, list[Any]] = {}  # terminal -> its attributes before


class Keyboard:
    """The keys that are pressed, between `open` and `close`; see `sequences` for their names."""

    def __init__(self) -> None:
        self._terminal = _terminal()
        self._signals: dict[int, Any] = {}
        self._suspended = False
        self.interrupted = False  # the process was stopped and goes on: others have written here

    @property
    def active(self) -> bool:
        """Whether keys come here."""
        return self._terminal in _taken

    def open(self) -> None:
        """Take the terminal, if there is one; only in the main thread, which gets the signals."""
        if self._terminal is None or threading.current_thread() is not threading.main_thread():
            self._terminal = None
            return
        atexit.register(restore_terminal)
        for number, handler in ((signal.SIGTSTP, self._suspend), (signal.SIGTERM, _terminate)):
            # Whoever has a handler of their own has taken care.
            if signal.getsignal(number) == signal.SIG_DFL:
                self._signals[number] = signal.signal(number, handler)
        self._take()

    def release(self) -> None:
        """Give the terminal back, for good."""
        self._terminal = None
        _give_back()

    def close(self) -> None:
        """Give the terminal and the signals back; in the thread that has opened it."""
        self.release()
        for number, handler in self._signals.items():
            signal.signal(number, handler)
        self._signals.clear()
        atexit.unregister(restore_terminal)

    def read(self, timeout: float, over: threading.Event) -> list[str]:
        """Wait for keys, at most so many seconds, and return them; none when it is over."""
        self._take()
        if not self.active:
            over.wait(timeout)
            return []
        assert self._terminal is not None
        try:
            if not select.select([self._terminal], [], [], timeout)[0] or not self._in_front():
                return []
            text = self._text()
            if not text:  # the terminal is gone
                self._terminal = None
            return keys(text)
        except OSError:
            self._terminal = None
            return []

    def _text(self) -> str:
        """Return what was typed; a sequence that has only begun to come is waited for."""
        assert self._terminal is not None
        typed = os.read(self._terminal, 1024)
        while typed.endswith((b"\x1b", b"\x1b[", b"\x1bO", b"\x1b[5", b"\x1b[6")):
            if not select.select([self._terminal], [], [], ESCAPE_TIME)[0]:
                break
            typed += os.read(self._terminal, 1024)
        return typed.decode(errors="replace")

    def _in_front(self) -> bool:
        """Whether the terminal listens to this process, and not to a shell or another one."""
        assert self._terminal is not None
        return os.tcgetpgrp(self._terminal) == os.getpgrp()

    def _take(self) -> None:
        """Go into cbreak mode, if that is not done and nobody else has the terminal."""
        if self._terminal is None or self.active or self._suspended:
            return
        try:
            if not self._in_front():
                return
            before = termios.tcgetattr(self._terminal)
            mine = termios.tcgetattr(self._terminal)
            mine[3] &= ~(termios.ICANON | termios.ECHO)
            mine[6][termios.VMIN], mine[6][termios.VTIME] = 1, 0
            _taken[self._terminal] = before
            termios.tcsetattr(self._terminal, termios.TCSANOW, mine)
        except (OSError, termios.error):
            _taken.pop(self._terminal, None)
            self._terminal = None

    def _suspend(self, signum: int, frame: object) -> None:
        """Ctrl-Z: give the terminal back, stop; `read` takes it again when the process goes on."""
        self._suspended = True  # the screen's thread must not take it again meanwhile
        restore_terminal()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._suspend)  # here it goes on
        self._suspended, self.interrupted = False, True


def keys(text: str) -> list[str]:
    """Return the keys of what was typed: "up", "down", "enter", "back", ..., or the character.

    An escape sequence of another key is nothing.
    """
    found: list[str] = []
    while text:
        if text[0] != "\x1b":
            found.append(KEYS.get(text[0], text[0]))
            text = text[1:]
            continue
        end = _end_of_sequence(text)
        if (key := SEQUENCES.get(text[:end])) is not None:
            found.append(key)
        text = text[end:]
    return found


def _end_of_sequence(text: str) -> int:
    """Return the length of the escape sequence that the text begins with."""
    if text[1:2] == "O":
        return 3
    if text[1:2] != "[":
        return 1
    return next((i + 1 for i, c in enumerate(text) if i > 1 and "@" <= c <= "~"), len(text))


def _terminal() -> int | None:
    """Return standard input if it is a terminal; None: there are no keys."""
    try:
        descriptor = sys.stdin.fileno()
        return descriptor if HAS_KEYS and os.isatty(descriptor) else None
    except (AttributeError, OSError, ValueError):
        return None


def _give_back() -> None:
    """Put the terminal's attributes back, if this process has changed them."""
    for terminal, before in list(_taken.items()):
        with contextlib.suppress(OSError, termios.error):
            # In the background this would stop the process; the shell has its own settings there.
            if os.tcgetpgrp(terminal) == os.getpgrp():
                termios.tcsetattr(terminal, termios.TCSANOW, before)
        _taken.pop(terminal, None)


def restore_terminal() -> None:
    """Give the terminal back with its cursor, for an exit that runs no ``finally``."""
    _give_back()
    if sys.stdout.isatty():
        sys.stdout.write("\x1b[?25h")
        sys.stdout.flush()


def _terminate(signum: int, frame: object) -> None:
    """SIGTERM: end like after an exception, so that everything is closed."""
    raise SystemExit(128 + signum)
