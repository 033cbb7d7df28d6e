"""Experiments of Ray Tune, read from their folders: JSON alone, no pickles, and without Ray."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rltune.agents.errors import UserError
from rltune.importing.trials import (
    COMPLETE,
    FAIL,
    PRUNED,
    ForeignSearch,
    ForeignTrial,
    flat,
    inferred_space,
)

RESULTS, PARAMS, ERROR = "result.json", "params.json", "error.txt"
COUNTS = ("env_steps", "timesteps_total", "num_env_steps_sampled_lifetime", "training_iteration")
# Of every result, Tune's own.
OWN = {
    "timestamp", "time_this_iter_s", "time_total_s", "pid", "iterations_since_restore", "done",
    "time_since_restore", "training_iteration", "timesteps_total", "episodes_total",
}  # fmt: skip


def is_experiment(path: Path) -> bool:
    """Whether a folder is that of an experiment: it has trials with results."""
    return path.is_dir() and next(path.glob(f"*/{PARAMS}"), None) is not None


def read_experiment(
    path: Path, metric: str | None, direction: str, time_attr: str | None
) -> ForeignSearch:
    """Return an experiment.

    Args:
        path: its folder
        metric: of the results; None: the only one that there is
        direction: "maximize" or "minimize"
        time_attr: what counts; None: the first that there is of `COUNTS`

    Raises:
        UserError: a file is damaged, or nobody reports the metric.
    """
    folders = sorted({file.parent for file in path.glob(f"*/{PARAMS}")})
    rows = {folder: _results(folder / RESULTS) for folder in folders}
    metric = metric or _only_metric(path, [row for found in rows.values() for row in found])
    counts = time_attr or _count([row for found in rows.values() for row in found])
    trials = [_trial(folder, rows[folder], metric, counts) for folder in folders]
    trials.sort(key=lambda trial: trial.started or 0.0)
    whole = max((max(trial.values) for trial in trials if trial.values), default=None)
    if whole is None:
        raise UserError(f"{path}: no trial reports {metric!r}; give --metric")
    trials = [_judged(trial, whole) for trial in trials]
    configs = [trial.config for trial in trials]
    return ForeignSearch(path.name, metric, direction, inferred_space(configs), trials)


def _results(file: Path) -> list[dict[str, Any]]:
    """Return the results of a trial; the last line may be half of one."""
    if not file.exists():
        return []
    found = []
    for line in file.read_text(errors="replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            break
        if isinstance(row, dict):
            found.append(row)
    return found


def _only_metric(path: Path, rows: list[dict[str, Any]]) -> str:
    names = {
        name
        for row in rows
        for name, value in row.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    names -= OWN | set(COUNTS)
    if len(names) != 1:
        known = ", ".join(sorted(names)[:10]) or "none"
        raise UserError(f"{path}: which metric? Give --metric; there are {known}")
    return names.pop()


def _count(rows: list[dict[str, Any]]) -> str:
    return next((name for name in COUNTS if rows and rows[-1].get(name)), COUNTS[-1])


def _value(row: dict[str, Any], name: str) -> Any:
    """Return a value of a result, nested ones by name/name."""
    found: Any = row
    if name in row:
        return row[name]
    for part in name.split("/"):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _trial(folder: Path, rows: list[dict[str, Any]], metric: str, counts: str) -> ForeignTrial:
    try:
        config = json.loads((folder / PARAMS).read_text())
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise UserError(f"{folder / PARAMS} is damaged: it has no names with values")
    values = {}
    for row in rows:
        at, value = _value(row, counts), _value(row, metric)
        if isinstance(at, int | float) and isinstance(value, int | float):
            values[int(at)] = float(value)
    began = min((float(row["timestamp"]) for row in rows if "timestamp" in row), default=None)
    ended = max((float(row["timestamp"]) for row in rows if "timestamp" in row), default=None)
    failed = (folder / ERROR).exists()
    reason = ""
    if failed:
        lines = (folder / ERROR).read_text(errors="replace").strip().splitlines() or ["unknown"]
        reason = f"error: {lines[-1][:300]}"
    state = FAIL if failed or not values else COMPLETE
    return ForeignTrial(flat(config), state, values, reason or "", began, ended)


def _judged(trial: ForeignTrial, whole: int) -> ForeignTrial:
    """Return the trial as pruned where it ended before others did."""
    if trial.state != COMPLETE or max(trial.values) >= whole:
        return trial
    reason = f"stopped by Ray Tune at {max(trial.values):,}"
    return ForeignTrial(trial.config, PRUNED, trial.values, reason, trial.started, trial.finished)
