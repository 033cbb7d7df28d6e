"""Work beside the training: one task at a time, in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Beside:
    """Runs tasks beside the training, one after the other.

    What a task raised is raised by the next call: nothing is lost in silence.

    Args:
        took: is told of the seconds of each task
    """

    def __init__(self, took: Callable[[float], None] = lambda seconds: None) -> None:
        self._took = took
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def run(self, task: Callable[[], None]) -> None:
        """Begin with a task, once the one before it has ended."""
        self.wait()
        self._thread = threading.Thread(target=self._run, args=(task,))
        self._thread.start()

    def _run(self, task: Callable[[], None]) -> None:
        started = time.monotonic()
        try:
            task()
        except BaseException as error:
            self._error = error
        self._took(time.monotonic() - started)

    def wait(self) -> None:
        """Wait for the task; raise what it has raised."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error
