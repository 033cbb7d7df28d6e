"""Runs to export from, for the tests of several formats."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from rltune.runs.directory import RunDir
from rltune.runs.train_spec import TrainSpec


def training(folder: Path, agent: str, env: str, config: dict[str, Any], **others: Any) -> Path:
    """Return the directory of a training as it is before its first step."""
    values = {"total_timesteps": 1000, "seed": 3} | others
    spec = TrainSpec(agent=agent, env=env, config=config, **values)
    number = len(list(folder.iterdir()))
    return RunDir.create(folder / f"run-{number}", dataclasses.asdict(spec), kind="train").path
