"""Searches with the toy agent, for the tests that run whole ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import rltune

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
