"""Sources of reports: what runs a training of the user's own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum

from rltune.backends.external.trial import Report


class Nothing(Enum):
    """What comes instead of a report."""

    YET = "the deadline came first"
    MORE = "the training has ended"


class Source(ABC):
    """Runs one training, and gives its reports in the order of their env steps."""

    cpu_seconds = 0.0  # of other processes

    @abstractmethod
    def next(self, deadline: float | None) -> Report | Nothing:
        """Return the next report; raise what has ended the training, if it failed.

        Args:
            deadline: Unix seconds until which it is waited for; None: for ever
        """

    @abstractmethod
    def stop(self) -> None:
        """End the training, and what it has started; nothing where it has ended."""
