"""Checkpoint intervals, which follow from the time that saving takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

CHECKPOINT_SHARE = 0.02  # the part of the time that saving may take


class SaveTimer:
    """Measures the time that saving takes, and says when a checkpoint is due."""

    def __init__(self) -> None:
        self._saved_at, self._cost = time.monotonic(), 0.0  # s

    @property
    def is_due(self) -> bool:
        """Whether saving now keeps to `CHECKPOINT_SHARE` of the time."""
        return time.monotonic() - self._saved_at > self._cost / CHECKPOINT_SHARE

    def took(self, seconds: float) -> None:
        """Take the time that the last saving took beside the training."""
        self._cost += seconds

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Measure the saving of a checkpoint."""
        started = time.monotonic()
        yield
        self._saved_at = time.monotonic()
        self._cost = self._saved_at - started
