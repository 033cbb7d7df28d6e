"""Tracking: the events of trials, passed on to each kind of tracker that the user wants."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from rltune.agents.errors import UserError
from rltune.runs.directory import RunDir
from rltune.runs.tracking_options import Tracking
from rltune.tracking.feed import Feed
from rltune.tracking.registry import TRACKERS, TrackerKind, plugin_tracker


class Tracker:
    """The tracking that the driver calls; no method waits for a tracker or raises for it."""

    def __init__(
        self, run: RunDir, spec: Tracking, warn: Callable[[str], None] = warnings.warn
    ) -> None:
        """Start the trackers; ``warn`` gets the few sentences that a user has to see."""
        about = {"run": run.content, "path": str(run.path)}
        self._feeds: list[Feed] = []
        for kind in [*TRACKERS.values(), *_of_plugins(spec, warn)]:
            opening = kind.opening(spec)
            if opening is not None:
                self._feeds.append(Feed(kind, run.path / kind.folder, warn, **about, **opening))

    def trial_started(
        self, trial: Mapping[str, Any], config: Mapping[str, Any], seed: int, role: str = "tune"
    ) -> None:
        """Open the run of a trial; ``trial`` has its number under "trial", and origin and hash."""
        self._put("trial_started", trial=dict(trial), config=dict(config), seed=seed, role=role)

    def log(self, trial: int, seed: int, role: str, row: Mapping[str, Any]) -> None:
        """Add one history row; its env steps are the x-axis."""
        self._put("log", trial=trial, seed=seed, role=role, row=dict(row))

    def trial_finished(self, trial: int, summary: Mapping[str, Any], seed: int, role: str) -> None:
        """Close the run of a trial with its objective, state, reason, ..."""
        self._put("trial_finished", trial=trial, summary=dict(summary), seed=seed, role=role)

    def search_finished(self, summary: Mapping[str, Any]) -> None:
        """Write the search's own run: ``summary``, and the files of the run directory."""
        self._put("search_finished", summary=dict(summary))

    def close(self, timeout: float = 30.0) -> None:
        """Let the trackers finish, for at most ``timeout`` seconds in all."""
        deadline = time.monotonic() + timeout
        for feed in self._feeds:
            feed.finish()
        for feed in self._feeds:
            feed.close(max(0.1, deadline - time.monotonic()))

    def _put(self, kind: str, **message: Any) -> None:
        for feed in self._feeds:
            feed.put(kind, **message)


def _of_plugins(spec: Tracking, warn: Callable[[str], None]) -> list[TrackerKind]:
    """Return the trackers of plug-ins; of a resumed run, one may not be there any more."""
    kinds = []
    for asked in spec.tracker:
        try:
            kinds.append(plugin_tracker(asked))
        except UserError as error:
            warn(f"{error} Going on without it.")
    return kinds
