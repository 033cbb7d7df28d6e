"""Weights & Biases tracking."""

from __future__ import annotations

import contextlib
import hashlib
import netrc
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import wandb
from rltune.common.redaction import masked
from rltune.tracking import outcome
from rltune.tracking.registry import TRACKERS
from rltune.tracking.session import Session, Warn

LATER = TRACKERS["wandb"].afterwards
INIT_TIMEOUT = "20"  # seconds that a server may take to accept a run


class WandbSession(Session["wandb.Run"]):
    """Runs of a search in one group; those of a configuration's test seeds in a group of their own.

    So wandb shows a configuration's mean and range over its seeds. ``hash`` in the runs'
    configuration groups them, too, whatever the role.
    """

    def __init__(self, message: Mapping[str, Any], warn: Warn) -> None:
        super().__init__(message, warn)
        # What waits for `wandb sync` lies in the run directory, not in the user's home.
        for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR"):
            os.environ.setdefault(name, str(self.path / "wandb"))
        self._where = {name: message[name] for name in ("project", "entity")}
        self._group: str | None = message["group"]
        self._mode: Any = _resolved(message["mode"])
        identity = f"{self.run['created']} {self.path}"
        self._identity = hashlib.sha256(identity.encode()).hexdigest()[:8]

    def open(self, name: str, identity: str, role: str, config: dict[str, Any]) -> wandb.Run:
        """Open a run; offline when the server can't be reached."""
        online = self._mode == "online"
        group = self._group or self.run["name"]
        if role == "test" and self._group is None:
            group += f" trial-{config['trial']}"
        try:
            run = wandb.init(
                **self._where,
                group=group,
                name=name,
                # An interrupted trial goes on in its own run. Offline that is impossible.
                id=f"{self._identity}-{identity}" if online else None,
                resume="allow" if online else None,
                job_type=role,
                tags=_tags(self.run),
                config=config,
                dir=self.path,
                mode=self._mode,
                reinit="create_new",
                settings=_settings(),
            )
        except Exception as error:
            if not online:
                raise
            self._mode = "offline"
            self.warn(f"wandb is not reachable ({_line(error)}); tracking offline{LATER}.")
            return self.open(name, identity, role, config)
        run.define_metric("env_steps")
        run.define_metric("*", step_metric="env_steps")
        run.define_metric("return/eval_return", step_metric="env_steps", summary="last,max")
        return run

    def update(self, run: wandb.Run, config: dict[str, Any]) -> None:
        """Note that the run goes on with these values."""
        run.config.update(config, allow_val_change=True)  # type: ignore[no-untyped-call]

    def add(self, run: wandb.Run, env_steps: int, metrics: dict[str, float]) -> None:
        """Add a point of the curves."""
        run.log({"env_steps": env_steps, **metrics})

    def end(self, run: wandb.Run, summary: dict[str, Any], failed: bool) -> None:
        """Close a run."""
        run.summary.update(summary)
        run.finish(exit_code=1 if failed else 0)

    def search_finished(self, summary: dict[str, Any]) -> None:
        """Write the search's own run: tables, charts, the winner and the report."""
        run = self.open(self.run["name"], "search", "search", masked(self.run["spec"]))
        run.define_metric("search/trial")
        run.define_metric("search/*", step_metric="search/trial")
        trials = outcome.trials(self.path)
        for row in outcome.best_so_far(trials):
            run.log(row)
        if trials:
            run.log({"trials": _table(trials)})
        if tested := outcome.tournament(self.path):
            table = _table([{"configuration": f"trial {row['trial']}", **row} for row in tested])
            title = "Test returns of the finalists"
            run.log({"tournament": wandb.plot.scatter(table, "trial", "score", title)})
        if mattered := outcome.importances(self.path):
            table = _table(mattered)
            title = "What mattered (fANOVA; compare with the column floor)"
            run.log({"importances": wandb.plot.bar(table, "parameter", "importance", title)})
        for clip in self.path.glob("best/clip.*"):
            kind: Any = clip.suffix[1:]
            run.log({"winner": wandb.Video(str(clip), format=kind)})
        if files := list(outcome.files(self.path)):
            artifact = wandb.Artifact(f"{self.run['name']}-best", type="model")
            for file in files:
                artifact.add_file(str(file), str(file.relative_to(self.path)))
            run.log_artifact(artifact, aliases=["best"])
        self.end(run, masked(summary), failed=False)


def _table(rows: outcome.Table) -> wandb.Table:
    columns: list[Any] = list(rows[0])
    return wandb.Table(columns=columns, data=[[row[name] for name in columns] for row in rows])


def _resolved(mode: str) -> str:
    """Return wandb's mode; "auto" respects WANDB_MODE and `wandb offline`, and looks for a key."""
    settings = wandb.setup(_settings()).settings
    if mode != "auto":
        return mode
    if settings.mode != "online":
        return "disabled" if settings.mode == "disabled" else "offline"
    if settings.api_key or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return "online"
    host = urlsplit(settings.base_url).netloc
    with contextlib.suppress(OSError, netrc.NetrcParseError):
        if netrc.netrc(os.environ.get("NETRC")).authenticators(host):
            return "online"
    return "offline"


def _settings() -> Any:
    """Return settings without output, code, system statistics or the command line's arguments."""
    return wandb.Settings(
        silent=True,
        console="off",
        disable_code=True,
        disable_git=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
        x_transaction_log_flush_interval=2.0,
        init_timeout=float(os.environ.get("WANDB_INIT_TIMEOUT", INIT_TIMEOUT)),
    )


def _tags(run: dict[str, Any]) -> list[str]:
    wanted = ("rltune", "python", "ray", "torch", "optuna", "gymnasium")
    tags = [f"{name}-{run['versions'][name]}" for name in wanted if name in run["versions"]]
    if run["git"]:
        tags.append(f"git-{run['git']['revision'][:12]}" + "-dirty" * run["git"]["dirty"])
    return tags


def _line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
