"""Sessions of trackers: the open runs, their names and their metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from rltune.common.redaction import masked

Warn = Callable[[str], None]
Key = tuple[int, int, str]  # trial, seed, role
R = TypeVar("R")

KEYS = (
    "trial",
    "seed",
    "role",
    "step",
    "env_steps",
    "timestamp",
    "iteration",
    "attempt",
    "eval_episodes",
)  # of a row, not curves
RETURNS = ("mean_reward", "best_reward", "episode_reward", "eval_return", "eval_std",
           "eval_length", "success_rate")  # fmt: skip
COSTS = ("time", "cpu_time", "env_steps_per_second", "memory", "memory_in_use")


class Session(Generic[R]):
    """The open runs of a tracker; its subclass fills in the calls of the tracker's library."""

    def __init__(self, message: Mapping[str, Any], warn: Warn) -> None:
        """Begin with the opening ``message`` of the `Feed`."""
        self.run: dict[str, Any] = message["run"]
        self.path = Path(message["path"])
        self.warn = warn
        self.runs: dict[Key, R] = {}

    def open(self, name: str, identity: str, role: str, config: dict[str, Any]) -> R:
        """Open a run; the identity is the same when an interrupted trial goes on."""
        raise NotImplementedError

    def update(self, run: R, config: dict[str, Any]) -> None:
        """Note that the run goes on with these values."""

    def add(self, run: R, env_steps: int, metrics: dict[str, float]) -> None:
        """Add a point of the curves."""
        raise NotImplementedError

    def end(self, run: R, summary: dict[str, Any], failed: bool) -> None:
        """Close a run."""
        raise NotImplementedError

    def search_finished(self, summary: dict[str, Any]) -> None:
        """Write the search's own run."""
        raise NotImplementedError

    def trial_started(self, trial: dict[str, Any], config: Any, seed: int, role: str) -> None:
        """See `Tracker`."""
        number, spec = int(trial["trial"]), self.run["spec"]
        name = f"trial-{number}"
        if self.run["kind"] == "train":
            name = self.run["name"]
        elif role != "tune" or any(key[0] == number for key in self.runs):
            name += f"-seed-{seed}"
        about = {key: spec[key] for key in ("agent", "env", "budget") if key in spec}
        search = {"search": self.run["name"], "seed": seed, "role": role}
        content = masked({**about, **trial, **config, **search})
        if (run := self.runs.get((number, seed, role))) is not None:  # it goes on
            self.update(run, content)
            return
        self.runs[number, seed, role] = self.open(name, f"{number}-{seed}", role, content)

    def log(self, trial: int, seed: int, role: str, row: dict[str, Any]) -> None:
        """See `Tracker`."""
        if (run := self.runs.get((trial, seed, role))) is not None:
            self.add(run, int(row["env_steps"]), dict(curves(row)))

    def trial_finished(self, trial: int, seed: int, role: str, summary: dict[str, Any]) -> None:
        """See `Tracker`."""
        if (run := self.runs.pop((trial, seed, role), None)) is not None:
            self.end(run, masked(summary), summary.get("state") == "FAIL")

    def finish(self) -> None:
        """Close what is open still: the search was stopped."""
        for run in self.runs.values():
            self.end(run, {}, failed=True)


def curves(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the metrics of a history row, named by the section that they are shown in."""
    for name, value in row.items():
        if name not in KEYS and isinstance(value, (int, float)):
            part = "return" if name in RETURNS else "cost" if name in COSTS else "train"
            yield f"{part}/{name}", value
