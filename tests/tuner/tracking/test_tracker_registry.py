"""The registry of trackers: an option each, and a new one needs its module and an entry."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from rltune.runs.directory import RunDir
from rltune.runs.tracking_options import TRACKER_FOLDERS, Tracking
from rltune.tracking import Tracker
from rltune.tracking.registry import TRACKERS

OFF = Tracking(wandb="off")


def test_each_has_an_option_of_its_name_and_can_be_left_out() -> None:
    assert TRACKERS.keys() <= {field.name for field in fields(Tracking)}
    assert TRACKERS.keys() <= TRACKER_FOLDERS
    assert [name for name, kind in TRACKERS.items() if kind.opening(OFF) is not None] == []
    every = Tracking(wandb="offline", tensorboard=True, mlflow="")
    assert all(kind.opening(every) is not None for kind in TRACKERS.values())


def test_importing_the_registry_imports_no_library_of_theirs() -> None:
    code = (
        "import sys, rltune.tracking.registry; print({'wandb', 'torch', 'mlflow'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_missing_library_is_named_with_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shadow").mkdir()
    (tmp_path / "shadow" / "tensorboard.py").write_text('raise ImportError("No tensorboard")')
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "shadow"))
    run = RunDir.create(tmp_path / "run", {"agent": "ppo", "env": "CartPole-v1"})
    warnings: list[str] = []
    tracker = Tracker(run, Tracking(wandb="off", tensorboard=True), warn=warnings.append)
    tracker.close(60)
    (warning,) = warnings
    assert "tensorboard is not tracking this run" in warning
    assert 'pip install "rltune[tensorboard]"' in warning
