"""The tracker: passes the events of trials on to each backend that the user wants."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from rltune.runs.directory import RunDir
from rltune.runs.tracking_options import Tracking
from rltune.tracking.feed import Feed


class Tracker:
    """The tracking that the driver calls; no method waits for a backend or raises for it."""

    def __init__(
        self, run: RunDir, spec: Tracking, warn: Callable[[str], None] = warnings.warn
    ) -> None:
        """Start the backends; ``warn`` gets the few sentences that a user has to see."""
        about = {"run": run.content, "path": str(run.path)}
        self._feeds: list[Feed] = []
        if spec.wandb != "off":
            where = {
                "mode": spec.wandb,
                "project": spec.wandb_project or os.environ.get("WANDB_PROJECT", "rltune"),
                "entity": spec.wandb_entity,
                "group": spec.wandb_group,
            }
            self._feeds.append(Feed("wandb", run.path / "wandb", warn, **about, **where))
        if spec.tensorboard:
            self._feeds.append(Feed("tensorboard", run.path / "tensorboard", warn, **about))
        if spec.mlflow is not None:
            self._feeds.append(Feed("mlflow", run.path / "mlflow", warn, **about, uri=spec.mlflow))

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
        """Let the backends finish, for at most ``timeout`` seconds in all."""
        deadline = time.monotonic() + timeout
        for feed in self._feeds:
            feed.finish()
        for feed in self._feeds:
            feed.close(max(0.1, deadline - time.monotonic()))

    def _put(self, kind: str, **message: Any) -> None:
        for feed in self._feeds:
            feed.put(kind, **message)
