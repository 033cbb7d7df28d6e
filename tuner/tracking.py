"""Weights & Biases: every trial a run in the search's group, and one run for the search itself.

wandb lives in a process of its own (``python -m rltune.tracking``), fed with one JSON line a
message by a thread that reads a bounded queue. Whatever wandb does there, waits for or dies of,
the search goes on; the user gets one warning. A plain subprocess and not multiprocessing, which
would run a user's unguarded script a second time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import netrc
import os
import queue
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import urlsplit

from rltune.agents.errors import unknown
from rltune.rundir import RunDir, masked

if TYPE_CHECKING:
    import wandb

MODES = ("auto", "online", "offline", "off")
QUEUE = 10_000  # rows that may wait; more are dropped
KEYS = ("trial", "seed", "role", "step")  # of a history row, not curves
INIT_TIMEOUT = "20"  # seconds that a server may take to accept a run


class Tracker:
    """What the driver calls; no method waits for wandb, and none raises because of it."""

    def __init__(
        self,
        run_dir: RunDir,
        spec: Mapping[str, Any] | None = None,
        mode: str = "auto",
        project: str | None = None,
        entity: str | None = None,
        group: str | None = None,
        warn: Callable[[str], None] = warnings.warn,
    ) -> None:
        """Start tracking: ``auto`` is online when wandb has a key, else offline.

        ``warn`` gets the few sentences that a user has to see, from another thread.
        """
        if mode not in MODES:
            raise unknown("wandb mode", mode, MODES)
        self._warn = warn
        self._queue: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._dropping = self._closed = False
        self._process: subprocess.Popen[bytes] | None = None
        if mode == "off":
            return
        try:
            self._process = _start(run_dir)
        except OSError as error:
            self._warn(f"wandb could not be started ({error.strerror}); going on without it.")
            return
        self._put(
            "open",
            mode=mode,
            project=project or os.environ.get("WANDB_PROJECT", "rltune"),
            entity=entity,
            group=group or run_dir.name,
            run={**run_dir.content, "spec": dict(spec if spec is not None else run_dir.spec)},
            path=str(run_dir.path),
        )
        threads = (self._feed, self._listen)
        self._threads = [threading.Thread(target=thread, daemon=True) for thread in threads]
        for thread in self._threads:
            thread.start()

    def trial_started(
        self, trial: Mapping[str, Any], config: Mapping[str, Any], seed: int, role: str = "tune"
    ) -> None:
        """Open the run of a trial; ``trial`` has its number under "trial", and origin and hash."""
        self._put("trial_started", trial=dict(trial), config=dict(config), seed=seed, role=role)

    def log(self, trial: int, seed: int, role: str, row: Mapping[str, Any]) -> None:
        """Add one history row; its env_steps are the x-axis."""
        if self._queue.qsize() >= QUEUE:
            if not self._dropping:
                self._dropping = True
                self._warn("wandb is slower than the search: some of its curves' points are lost.")
            return
        self._put("log", trial=trial, seed=seed, role=role, row=dict(row))

    def trial_finished(self, trial: int, summary: Mapping[str, Any], seed: int, role: str) -> None:
        """Close the run of a trial with its objective, state, reason, ..."""
        self._put("trial_finished", trial=trial, summary=dict(summary), seed=seed, role=role)

    def search_finished(self, summary: Mapping[str, Any]) -> None:
        """Write the search's own run: ``summary`` and the table of trials."""
        self._put("search_finished", summary=dict(summary))

    def close(self, timeout: float = 30.0) -> None:
        """Let wandb finish, for at most ``timeout`` seconds; what lies on disk stays there."""
        if self._process is None or self._closed:
            return
        self._closed = True
        self._queue.put(None)
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._warn(f"wandb did not finish within {timeout:.0f} s; {SYNC_LATER}")
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            thread.join(1.0)

    def _put(self, kind: str, **message: Any) -> None:
        if self._process is not None and not self._closed:
            self._queue.put({"kind": kind, **message})

    def _feed(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            with self._process.stdin as pipe:
                while (message := self._queue.get()) is not None:
                    pipe.write(json.dumps(message, default=_plain).encode() + b"\n")
                    if self._queue.empty():
                        pipe.flush()
        except OSError:  # nobody listens any more: see _listen
            while self._queue.get() is not None:
                pass

    def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        with self._process.stdout as pipe:
            for line in pipe:
                self._warn(line.decode(errors="replace").strip())
        code = self._process.wait()
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        if code not in (0, -signal.SIGKILL):
            self._warn("wandb has failed (see wandb/tracking.log); going on without it.")


SYNC_LATER = "its files are kept; send them with `wandb sync` later."


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)


def _start(run_dir: RunDir) -> subprocess.Popen[bytes]:
    folder = run_dir.path / "wandb"
    folder.mkdir(exist_ok=True)
    with open(folder / "tracking.log", "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "rltune.tracking"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,  # one line for each warning
            stderr=log,
            start_new_session=True,  # Ctrl-C is the driver's
            env={**os.environ, "PYTHONSAFEPATH": "1"},
        )


# ---------------------------------------------------------------------------- the process of wandb


class _Session:
    """The open wandb runs, one for each (trial, seed)."""

    def __init__(self, message: dict[str, Any], warn: Callable[[str], None]) -> None:
        import wandb

        self._wandb, self._warn = wandb, warn
        self._run: dict[str, Any] = message["run"]
        self._path = Path(message["path"])
        self._where = {name: message[name] for name in ("project", "entity", "group")}
        self._runs: dict[tuple[int, int, str], wandb.Run] = {}
        self._mode: Any = _resolved(message["mode"], wandb)
        identity = f"{self._run['created']} {self._path}"
        self._identity = hashlib.sha256(identity.encode()).hexdigest()[:8]

    def trial_started(self, trial: dict[str, Any], config: Any, seed: int, role: str) -> None:
        number, spec = int(trial["trial"]), self._run["spec"]
        name = f"trial-{number}"
        if self._run["kind"] == "train":
            name = self._run["name"]
        elif role != "tune" or any(key[0] == number for key in self._runs):
            name += f"-seed-{seed}"
        about = {key: spec[key] for key in ("agent", "env", "budget") if key in spec}
        content = {**about, **trial, **config, "seed": seed, "role": role}
        if run := self._runs.get((number, seed, role)):  # it goes on, maybe with other values
            run.config.update(masked(content), allow_val_change=True)  # type: ignore[no-untyped-call]
            return
        self._runs[number, seed, role] = self._open(name, f"{number}-{seed}", role, content)

    def log(self, trial: int, seed: int, role: str, row: dict[str, Any]) -> None:
        if run := self._runs.get((trial, seed, role)):
            run.log({k: v for k, v in row.items() if k not in KEYS and v is not None})

    def trial_finished(self, trial: int, seed: int, role: str, summary: dict[str, Any]) -> None:
        if run := self._runs.pop((trial, seed, role), None):
            self._close(run, summary)

    def search_finished(self, summary: dict[str, Any]) -> None:
        run = self._open(self._run["name"], "search", "search", self._run["spec"])
        if (self._path / "trials.parquet").exists():
            import pyarrow.parquet as pq

            table = pq.read_table(self._path / "trials.parquet", partitioning=None)
            rows: list[Any] = [list(map(_cell, row.values())) for row in table.to_pylist()]
            columns = table.column_names
            run.log({"trials": self._wandb.Table(columns=columns, data=rows)})
        self._close(run, summary)

    def finish(self) -> None:
        """Close what is open still: the search was stopped."""
        for run in self._runs.values():
            run.finish(exit_code=1)

    def _open(self, name: str, identity: str, job_type: str, config: dict[str, Any]) -> wandb.Run:
        online = self._mode == "online"
        try:
            run = self._wandb.init(
                **self._where,
                name=name,
                # An interrupted trial goes on in its own run. Offline that is impossible.
                id=f"{self._identity}-{identity}" if online else None,
                resume="allow" if online else None,
                job_type=job_type,
                tags=_tags(self._run),
                config=masked(config),
                dir=self._path,
                mode=self._mode,
                reinit="create_new",
                settings=_settings(self._wandb),
            )
        except Exception as error:
            if not online:
                raise
            self._mode = "offline"
            self._warn(f"wandb is not reachable ({_line(error)}); tracking offline, {SYNC_LATER}")
            return self._open(name, identity, job_type, config)
        run.define_metric("env_steps")
        run.define_metric("*", step_metric="env_steps")
        return run

    def _close(self, run: wandb.Run, summary: dict[str, Any]) -> None:
        run.summary.update(masked(summary))
        run.finish(exit_code=1 if summary.get("state") == "FAIL" else 0)


def _resolved(mode: str, wandb: Any) -> str:
    """Return wandb's mode; "auto" respects WANDB_MODE and `wandb offline`, and looks for a key."""
    settings = wandb.setup(_settings(wandb)).settings
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


def _settings(wandb: Any) -> Any:
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


def _cell(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__


def main() -> None:
    """Read messages from standard input until it ends; write warnings to standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(5)  # the search comes first
    sys.argv = ["rltune"]  # wandb records it, and the driver's may hold a key
    out: TextIO = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever wandb prints goes to the log
    session: _Session | None = None
    for line in sys.stdin:
        message = json.loads(line)
        kind = message.pop("kind")
        if kind != "open":
            getattr(session, kind)(**message)
            continue
        try:
            session = _Session(message, lambda text: print(text, file=out))
        except ImportError as error:
            print(f"wandb is not tracking this run ({_line(error)}).", file=out)
            return
    if session is not None:
        session.finish()


if __name__ == "__main__":
    main()
