"""Searches with the toy agent, for the tests that run whole ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import rltune
from rltune.results import Run

HERE = Path(__file__).parent
SPACE: dict[str, Any] = {"space": {"quality": {"uniform": [0.0, 1.0]}}}
POPULATION: dict[str, Any] = {
    "agent": "toy:DescentAgent",
    "env": "toy:ToyEnv",
    "space": {"space": {"rate": {"log": [1e-3, 1.0]}}},
    "budget": 300,
    "evaluations": 6,
    "objective": "last",
    "scheduler": "pbt",
    "scheduler_options": {"quantile": 0.4},
    "trials": 5,
    "screen": "none",
    "name": "run",
    "report": False,
}


def search(
    folder: str | Path, space: dict[str, Any] = SPACE, **options: Any
) -> rltune.SearchResult:
    values: dict[str, Any] = {"budget": 900, "trials": 6, "screen": "none", "name": "run"}
    values |= {"wandb": "off", "report": False, **options}
    agent, env = values.pop("agent", "toy:ToyAgent"), values.pop("env", "toy:ToyEnv")
    return rltune.Search(agent, env, space, storage_path=folder, **values).run()


def check_history(frame: pd.DataFrame) -> None:
    """No row is missing, none is doubled."""
    for _, rows in frame.groupby(["trial", "seed"]):
        assert list(rows["iteration"]) == list(range(1, len(rows) + 1))
        assert rows["env_steps"].is_monotonic_increasing


def kill_when_saved(
    words: Sequence[str],
    run: Path,
    *,
    wait: float = 0.5,
    cwd: Path = HERE,
    env: Mapping[str, str] | None = None,
) -> None:
    """Run Python with ``words``; some time after a trial is saved, kill it and its children.

    Args:
        words: of the command line
        run: the run directory of the search that it begins
        wait: seconds from the first checkpoint to the kill
        cwd: where it runs
        env: its environment variables
    """
    process = subprocess.Popen([sys.executable, *words], cwd=cwd, env=env, start_new_session=True)
    while not list(run.glob("trials/*/checkpoint.pt")):
        assert process.poll() is None
        time.sleep(0.1)
    time.sleep(wait)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def check_resumed(run: Path, before: pd.DataFrame | None = None) -> Run:
    """Resume a killed search to its answer, unless its rows before that are given."""
    if before is None:
        before = rltune.open(run).history()
        rltune.resume(run, screen="none")
    result = rltune.open(run)
    history = result.history()
    assert set(result.trials()["state"]) <= {"COMPLETE", "PRUNED"}
    check_history(history)
    kept = before.merge(history, on=["trial", "seed", "iteration"])
    assert len(kept) == len(before), "rows are lost"
    assert result.answer is not None
    assert (history["role"] == "test").any()
    return result
