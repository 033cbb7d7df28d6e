"""The screen while a search runs: live in a terminal, as plain lines anywhere else."""

from __future__ import annotations

import os
import threading
import time
from types import TracebackType

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text
from rltune.common.formats import count, duration, plural
from rltune.screen.drawing import rendered
from rltune.screen.load import LoadMeter
from rltune.screen.pages import AskToStop, Pages
from rltune.screen.terminal import Keyboard
from rltune.screen.view import SearchView

REFRESH = 0.25  # seconds between two frames
HEARTBEAT = 30.0  # seconds between two plain lines when nothing happens


class Frame:
    """The lines that are on the terminal; drawing them anew is what the screen costs most."""

    def __init__(self) -> None:
        self.lines: list[Text] = []

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from rendered(self.lines, console)

    def update(self, pages: Pages, width: int, height: int) -> bool:
        """Take the page as it is now, and return whether that is something new."""
        before, self.lines = self.lines, pages.lines(width, height - 1)
        return self.lines != before


class LiveScreen:
    """Shows a view while the block runs: live in a terminal, as plain lines anywhere else.

    The terminal comes back as it was however the block ends, and nothing that goes wrong with the
    screen ends the search.

    Args:
        view: what is shown
        mode: "auto", "live", "plain" or "none"
        console: where
        stop: asks for the end of a trial, or (None) of the search; without it no key does
        folder: of the run, for the disk that is left
    """

    def __init__(
        self,
        view: SearchView,
        mode: str = "auto",
        console: Console | None = None,
        *,
        stop: AskToStop | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self.view = view
        self.console = console or Console()
        if mode == "auto":
            mode = (
                "live"
                if self.console.is_terminal and not self.console.is_dumb_terminal
                else "plain"
            )
        self.mode = mode
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._live: Live | None = None
        self._pages = Pages(view, LoadMeter(folder), stop)
        self._frame = Frame()
        self._keyboard = Keyboard(self._stop_live)
        self._last_line = time.time()

    def __enter__(self) -> LiveScreen:
        if self.mode == "none":
            return self
        if self.mode == "plain":
            self._start_plain()
        else:
            self._keyboard.open()
            self._start_live()
        target = self._watch_plain if self.mode == "plain" else self._watch_live
        self._thread = threading.Thread(target=target, name="rltune-screen", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.view.listener = None
        self._over.set()
        try:
            if self._thread is not None:
                self._thread.join(timeout=5)
            self._stop_live()
        finally:
            self._keyboard.close()

    # Plain lines

    def _start_plain(self) -> None:
        view = self.view
        progress = view.progress
        budget = f"{count(progress.budget)} env steps a trial"
        planned = plural(progress.trials, "trial") if progress.trials else "as many trials as fit"
        limit = f", limit {duration(progress.time_limit)}" if progress.time_limit else ""
        self._print(f"{view.name}: {view.agent} on {view.env}, {planned}, {budget}{limit}")
        view.listener = self._print

    def _watch_plain(self) -> None:
        while not self._over.wait(0.5):
            if time.time() - self._last_line >= HEARTBEAT:
                self._print(self.view.heartbeat())

    def _print(self, line: str) -> None:
        self._last_line = time.time()
        print(
            f"[{duration(self.view.progress.elapsed)}] {line}", file=self.console.file, flush=True
        )

    # The live screen

    def _start_live(self) -> None:
        self._pages.keys = self._keyboard.active
        self._frame.update(self._pages, *self.console.size)
        # Refreshed by a thread of our own, which also reads the keys and notices a new size.
        self._live = Live(self._frame, console=self.console, auto_refresh=False, transient=True)
        self._live.start(refresh=True)

    def _stop_live(self) -> None:
        """Take the frame off the terminal and give the cursor back, whatever state it is in."""
        live, self._live = self._live, None
        if live is not None:
            live.update("")  # `stop` draws once more, which may be what has failed
            live.stop()

    def _watch_live(self) -> None:
        size = self.console.size
        while not self._over.is_set():
            try:
                for key in self._keyboard.read(REFRESH, self._over):
                    self._pages.press(key)
                if self._over.is_set():
                    return None
                if not self._keyboard.in_front:
                    continue  # in the background the terminal belongs to another program
                self._pages.keys = self._keyboard.active
                live = self._live
                if live is not None and self.console.size == size:
                    if self._frame.update(self._pages, *size):
                        live.refresh()
                else:
                    # Others have written here, or the old frame is wrapped anew: an empty screen.
                    size = self.console.size
                    self._stop_live()
                    self.console.clear()
                    self._start_live()
            except Exception as error:
                self._stop_live()
                self._keyboard.release()
                self._start_plain()
                self._print(f"the live screen failed ({error!r}); plain lines from here on")
                return self._watch_plain()
        return None
