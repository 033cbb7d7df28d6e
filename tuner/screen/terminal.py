"""The keyboard of a terminal, key by key, and the terminal given back however the process ends.

The terminal is in cbreak mode: keys come at once and are not echoed; Ctrl-C is a signal as ever. It
is only taken while this process is in the foreground: a search in the background leaves keys and
settings to the shell. Without termios (Windows) there are no keys.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
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
SUSPEND = "\x1a"  # Ctrl-Z
KEYS = {"\r": "enter", "\n": "enter", "\x7f": "back", "\x08": "back"}

_taken: dict[int, list[Any]] = {}  # terminal -> its attributes before


class Keyboard:
    """The keys that are pressed, between `open` and `close`; see `keys` for their names.

    Args:
        before_suspend: is called before Ctrl-Z stops the process
    """

    def __init__(self, before_suspend: Callable[[], None] = lambda: None) -> None:
        self._terminal = _terminal()
        self._before_suspend = before_suspend
        self._sigterm: Any = None

    @property
    def active(self) -> bool:
        """Whether keys come here."""
        return self._terminal in _taken

    @property
    def in_front(self) -> bool:
        """Whether the terminal is this process's now, and not a shell's; True if it has none."""
        return self._terminal is None or os.tcgetpgrp(self._terminal) == os.getpgrp()

    def open(self) -> None:
        """Take the terminal, if there is one; only for the main thread, which gets the signals."""
        if self._terminal is None or threading.current_thread() is not threading.main_thread():
            self._terminal = None
            return
        atexit.register(restore_terminal)
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            self._sigterm = signal.signal(signal.SIGTERM, _terminate)
        self._take()

    def release(self) -> None:
        """Give the terminal back and never draw again."""
        self._terminal = None
        _give_back()

    def close(self) -> None:
        """Give the terminal and the signal back; in the thread that has opened it."""
        self.release()
        atexit.unregister(restore_terminal)
        if self._sigterm is not None:
            signal.signal(signal.SIGTERM, self._sigterm)
            self._sigterm = None

    def read(self, timeout: float, over: threading.Event) -> list[str]:
        """Wait for keys, at most so many seconds, and return them; none when it is over."""
        self._take()
        if not self.active:
            over.wait(timeout)
            return []
        assert self._terminal is not None
        try:
            if not select.select([self._terminal], [], [], timeout)[0] or not self.in_front:
                return []
            text = self._text()
        except OSError:
            text = ""
        if not text:  # the terminal is gone
            self._terminal = None
        before, suspend, _ = text.partition(SUSPEND)
        if suspend:
            self._suspend()
        return keys(before)

    def _text(self) -> str:
        """Return the typed keys; a sequence that has only begun to come is waited for."""
        assert self._terminal is not None
        typed = os.read(self._terminal, 1024)
        while typed.endswith((b"\x1b", b"\x1b[", b"\x1bO", b"\x1b[5", b"\x1b[6")):
            if not select.select([self._terminal], [], [], ESCAPE_TIME)[0]:
                break
            typed += os.read(self._terminal, 1024)
        return typed.decode(errors="replace")

    def _take(self) -> None:
        """Go into cbreak mode, unless this process is in it or in the background."""
        if self._terminal is None:
            return
        try:
            if not self.in_front:
                return
            now = termios.tcgetattr(self._terminal)
            if not now[3] & (termios.ICANON | termios.ECHO):
                return
            _taken.setdefault(self._terminal, termios.tcgetattr(self._terminal))
            now[3] &= ~(termios.ICANON | termios.ECHO)
            now[6][termios.VMIN], now[6][termios.VTIME] = 1, 0
            # Ctrl-Z comes as a key: as a signal it would stop Ray's processes, too.
            now[6][termios.VSUSP] = bytes([os.fpathconf(self._terminal, "PC_VDISABLE")])
            termios.tcsetattr(self._terminal, termios.TCSANOW, now)
        except (OSError, termios.error):
            _taken.pop(self._terminal, None)
            self._terminal = None

    def _suspend(self) -> None:
        """Give the terminal back and stop; Ray goes on, and its workers wait for this process."""
        self._before_suspend()
        restore_terminal()
        # To this thread: sent to the process, it might arrive when the next key is read already.
        signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)  # `fg` goes on behind this line


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
    terminal = sys.__stdout__  # the live screen may have put its own in the place of sys.stdout
    if terminal is not None and terminal.isatty():
        terminal.write("\x1b[?25h")
        terminal.flush()


def _terminate(signum: int, frame: object) -> None:
    """SIGTERM: end like after an exception, so that everything is closed."""
    raise SystemExit(128 + signum)
