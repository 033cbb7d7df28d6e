"""MLflow tracking: a parent run for the search, its trials below it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from rltune.common.redaction import MASK
from rltune.tracking import outcome
from rltune.tracking.session import Session, Warn

LONGEST = 6000  # characters that MLflow takes as a parameter


def start(message: Mapping[str, Any], warn: Warn) -> MlflowSession:
    """Begin, with the environment that MLflow reads when it is imported."""
    uri = without_password(message["uri"] or os.environ.get("MLFLOW_TRACKING_URI") or "")
    if urlsplit(uri).scheme in ("", "file"):
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # a folder, on request
    # A server that is away is given up after seconds, not minutes.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    return MlflowSession(message, warn, uri)


def without_password(uri: str) -> str:
    """Return a server's address without user and password, which MLflow reads from elsewhere.

    In the address they would be in its error messages, and so in a log.
    """
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https") or "@" not in parts.netloc:
        return uri
    if parts.password and parts.password != MASK:  # run.yaml of a resumed run has no password
        os.environ["MLFLOW_TRACKING_USERNAME"] = unquote(parts.username or "")
        os.environ["MLFLOW_TRACKING_PASSWORD"] = unquote(parts.password)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


class MlflowSession(Session[str]):
    """Runs are known by their ids."""

    def __init__(self, message: Mapping[str, Any], warn: Warn, uri: str) -> None:
        from mlflow.tracking import MlflowClient

        super().__init__(message, warn)
        folder = self.path.parent
        self._client = MlflowClient(tracking_uri=uri or f"sqlite:///{folder / 'mlflow.db'}")
        self._experiment = self._find_experiment("rltune", None if uri else folder / "mlartifacts")
        self._parent = self._find_run("search")[0] if self.run["kind"] == "search" else None

    def open(self, name: str, identity: str, role: str, config: dict[str, Any]) -> str:
        """Open a run below the search's; an interrupted trial goes on in its own."""
        from mlflow.entities import Param

        tags = {"role": role, "hash": str(config.get("hash", ""))}
        run, is_new = self._find_run(identity, name, tags)
        if not is_new:  # parameters can be set once
            return run
        params = [Param(key, text(value)) for key, value in config.items()]
        for i in range(0, len(params), 100):  # as many as it takes at once
            self._client.log_batch(run, params=params[i : i + 100])
        return run

    def update(self, run: str, config: dict[str, Any]) -> None:
        """Note the values that have changed, as tags: parameters can be set once."""
        known = self._client.get_run(run).data.params
        for name, value in config.items():
            if known.get(name, text(value)) != text(value):
                self._client.set_tag(run, f"changed.{name}", text(value))

    def add(self, run: str, env_steps: int, metrics: dict[str, float]) -> None:
        """Add a point of the curves, over env steps."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        points = [Metric(name, float(value), now, env_steps) for name, value in metrics.items()]
        self._client.log_batch(run, metrics=points)

    def end(self, run: str, summary: dict[str, Any], failed: bool) -> None:
        """Close a run."""
        for name, value in summary.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                self._client.log_metric(run, f"search/{name}", float(value))
            elif value is not None:
                self._client.set_tag(run, name, text(value))
        self._client.set_terminated(run, "FAILED" if failed else "FINISHED")

    def search_finished(self, summary: dict[str, Any]) -> None:
        """Write the best so far, the winner and the report into the search's run."""
        if self._parent is None:
            return
        for row in outcome.best_so_far(outcome.trials(self.path)):
            trial = int(row.pop("search/trial"))
            for name, value in row.items():
                self._client.log_metric(self._parent, name, value, step=trial)
        for row in outcome.importances(self.path):
            name = f"importances/{row['parameter']}"
            self._client.log_metric(self._parent, name, row["importance"])
        for file in outcome.files(self.path):
            self._client.log_artifact(self._parent, str(file), file.parent.name)
        self.end(self._parent, summary, failed=False)

    def _find_experiment(self, name: str, artifacts: Path | None) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        where = artifacts.as_uri() if artifacts else None
        return str(self._client.create_experiment(name, artifact_location=where))

    def _find_run(
        self, identity: str, name: str | None = None, tags: Mapping[str, str] | None = None
    ) -> tuple[str, bool]:
        """Return the run with this identity, and whether it was made now."""
        key = f"{self.run['created']} {self.path.name} {identity}"
        mine = self._client.search_runs([self._experiment], f"tags.`rltune.run` = '{key}'")
        if mine:
            found = str(mine[0].info.run_id)
            self._client.update_run(found, status="RUNNING")
            return found, False
        about = {"rltune.run": key, "search": self.run["name"], **(tags or {})}
        if identity != "search" and self.run["kind"] == "search":
            about["mlflow.parentRunId"] = str(self._parent)
        made = self._client.create_run(
            self._experiment, tags=about, run_name=name or self.run["name"]
        )
        return str(made.info.run_id), True


def text(value: Any) -> str:
    """Return a value as MLflow takes it."""
    return str(value)[:LONGEST]
