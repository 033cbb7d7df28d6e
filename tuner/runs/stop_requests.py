"""Stop requests by hand: of one trial, or of the whole search.

`rltune stop` and the keys of the live screen leave a small file in the run directory, and the
process that drives the search carries it out between two results. So it works from another
terminal, for a search in the background, and wherever the run directory can be written.

A trial that was stopped by hand is PRUNED: it keeps the values that it has, on its rungs too, it is
not run again, and nothing is invented about the rest of its budget.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

EVERY = 0.2  # seconds between two looks into the folder
SEARCH = "stop"  # name of the file that stops the search; "stop-12" stops trial 12


class StopRequests:
    """The stops that were asked for and are not carried out yet.

    Args:
        run: the run directory
    """

    def __init__(self, run: Path) -> None:
        self.folder = run / "requests"
        self._due = 0.0

    def ask(self, trial: int | None = None) -> None:
        """Ask for the end of a trial; None: of the search. OSError: it can't be written."""
        self.folder.mkdir(exist_ok=True)
        self._file(trial).touch()

    def pending(self) -> list[int | None]:
        """Return the pending requests; looks only now and then, and returns none in between."""
        now = time.monotonic()
        if now < self._due:
            return []
        self._due = now + EVERY
        return [_trial(path) for path in self._files()]

    def done(self, trial: int | None) -> None:
        """Forget requests that were carried out: the study has recorded them."""
        with contextlib.suppress(OSError):
            self._file(trial).unlink()

    def forget(self) -> None:
        """Forget all requests: a resumed search does not obey those to an earlier process."""
        for path in self._files():
            with contextlib.suppress(OSError):
                path.unlink()

    def _file(self, trial: int | None) -> Path:
        return self.folder / (SEARCH if trial is None else f"{SEARCH}-{trial}")

    def _files(self) -> list[Path]:
        """Return the requests, those for trials first; of other files nothing is taken."""
        try:
            paths = sorted(self.folder.iterdir(), reverse=True)
        except OSError:
            return []
        return [p for p in paths if p.name == SEARCH or p.name[len(SEARCH) + 1 :].isdecimal()]


def _trial(path: Path) -> int | None:
    return None if path.name == SEARCH else int(path.name[len(SEARCH) + 1 :])
