"""Message feeds to the processes of trackers, which can neither delay nor end the search.

One JSON line a message, from a thread that reads a bounded queue. A plain subprocess and not
multiprocessing, which would run a user's unguarded script a second time.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rltune.common.plain import scalar
from rltune.tracking.registry import TrackerKind

QUEUE = 10_000  # rows that may wait; more are dropped


class Feed:
    """The process of one tracker; no method waits for it, and none raises because of it."""

    def __init__(
        self, kind: TrackerKind, folder: Path, warn: Callable[[str], None], **opening: Any
    ) -> None:
        """Start the process with an opening message; its output goes to tracking.log in its folder.

        Args:
            kind: of tracker
            folder: of the tracker, in the run directory
            warn: gets the few sentences that a user has to see, from another thread
            **opening: the opening message to the tracker's `session.Session`
        """
        self._kind, self._warn = kind, warn
        self._queue: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._dropping = self._closed = False
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = _start(kind.name, folder)
        except OSError as error:
            self._warn(f"{kind.name} could not be started ({error.strerror}); going on without it.")
            return
        self.put("open", **opening)
        threads = (self._feed, self._listen)
        self._threads = [threading.Thread(target=thread, daemon=True) for thread in threads]
        for thread in self._threads:
            thread.start()

    def put(self, kind: str, **message: Any) -> None:
        """Send a message; rows that find the queue full are dropped, with one warning."""
        if self._process is None or self._closed:
            return
        if kind == "log" and self._queue.qsize() >= QUEUE:
            if not self._dropping:
                self._dropping = True
                self._warn(
                    f"{self._kind.name} is slower than the search: "
                    "some of its curves' points are lost."
                )
            return
        self._queue.put({"kind": kind, **message})

    def finish(self) -> None:
        """Say that nothing more will come."""
        if self._process is not None and not self._closed:
            self._closed = True
            self._queue.put(None)

    def close(self, timeout: float) -> None:
        """Let the process finish, for at most ``timeout`` seconds; files on disk stay there."""
        if self._process is None or self._process.stdin is None:
            return
        self.finish()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            afterwards = self._kind.afterwards
            self._warn(f"{self._kind.name} did not finish within {timeout:.0f} s{afterwards}.")
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            thread.join(1.0)
        self._process = None

    def _feed(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            with self._process.stdin as pipe:
                while (message := self._queue.get()) is not None:
                    pipe.write(json.dumps(message, default=scalar).encode() + b"\n")
                    if self._queue.empty():
                        pipe.flush()
        except OSError:  # the process has ended: see _listen
            while self._queue.get() is not None:
                pass

    def _listen(self) -> None:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        with process.stdout as pipe:
            for line in pipe:
                self._warn(line.decode(errors="replace").strip())
        code = process.wait()
        self.finish()
        if code not in (0, -signal.SIGKILL):
            self._warn(
                f"{self._kind.name} has failed (see {self._kind.folder}/tracking.log); "
                "going on without it."
            )


def _no_link(path: str, flags: int) -> int:
    """Open a file, but none elsewhere that a foreign run directory links to."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o644)


def _start(name: str, folder: Path) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "tracking.log", "ab", opener=_no_link) as log:
        return subprocess.Popen(
            [sys.executable, "-m", "rltune.tracking", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,  # one line for each warning
            stderr=log,
            start_new_session=True,  # Ctrl-C is the driver's
            env={**os.environ, "PYTHONSAFEPATH": "1"},
        )
