"""Idle time of a worker: how long it did not train before each row, and why."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class IdleTime:
    """Counts the seconds since a worker last trained.

    It lives as long as the worker's process, so the time between two jobs is counted too. Before
    its first training a process has none: how long it took to start can't be told from within.
    """

    def __init__(self) -> None:
        self._trained_at: float | None = None
        self._known = {"save_seconds": 0.0, "make_seconds": 0.0}

    @contextmanager
    def counting(self, what: str) -> Iterator[None]:
        """Count what happens now as ``save`` (checkpoints) or ``make`` (agent, environments)."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._known[f"{what}_seconds"] += time.perf_counter() - started

    def columns(self) -> dict[str, float]:
        """Return the columns of the row that begins now; nothing for the first one."""
        if self._trained_at is None:
            return {}
        return {"idle_seconds": time.perf_counter() - self._trained_at, **self._known}

    def trained(self) -> None:
        """Begin anew: a row has just been trained and evaluated."""
        self._trained_at = time.perf_counter()
        self._known = dict.fromkeys(self._known, 0.0)
