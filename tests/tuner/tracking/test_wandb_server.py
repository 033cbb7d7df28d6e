"""Data arriving at wandb's server (a stand-in on loopback): at once, or later by `wandb sync`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rltune.runs.directory import RunDir
from rltune.runs.tracking_options import Tracking
from rltune.tracking import Tracker
from test_tracker import KEY, SPEC, outcome_of_a_search, row
from wandb_server import Sent, Server, wandb_server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with wandb_server() as one:
        monkeypatch.setenv("WANDB_BASE_URL", one.url)
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        yield one


def track(run: RunDir, mode: str) -> None:
    """Tell wandb of a search with two trials and a re-training."""
    warnings: list[str] = []
    tracker = Tracker(run, Tracking(wandb=mode), warn=warnings.append)
    for trial in (3, 4):
        config = {"learning_rate": 1e-3 * trial, "net_arch": [64, 64]}
        tracker.trial_started({"trial": trial}, config, 0, "tune")
        for iteration in range(1, 51):
            tracker.log(trial, 0, "tune", row(iteration, mean_reward=trial * iteration))
        tracker.trial_finished(trial, {"state": "COMPLETE", "objective": 10.0 * trial}, 0, "tune")
    tracker.trial_started({"trial": 3}, {"learning_rate": 3e-3}, 100, "test")
    tracker.log(3, 100, "test", row(1, mean_reward=1.0))
    tracker.trial_finished(3, {"state": "FAIL"}, 100, "test")
    outcome_of_a_search(run)
    tracker.search_finished({"best_trial": 3})
    tracker.close(60)
    assert warnings == []


def check(server: Server, run: RunDir) -> None:
    """Compare what has arrived with what was told."""
    runs = server.by_name()
    assert set(runs) == {"trial-3", "trial-4", "trial-3-seed-100", "mine"}
    for trial in (3, 4):
        check_trial(runs[f"trial-{trial}"], trial)
    assert runs["trial-3-seed-100"].group == "mine trial-3"
    assert runs["trial-3-seed-100"].exit_code == 1
    assert len(runs["trial-3-seed-100"].history) == 1
    search = runs["mine"]
    assert search.config["agent"] == "ppo"
    assert [r["search/best"] for r in search.history.values() if "search/best" in r] == [30, 30]
    assert search.summary["best_trial"] == 3
    assert {Path(name).name.split("_")[0] for name in search.files if "media" in name} == {
        *("trials", "tournament", "importances", "winner")
    }
    best = server.artifacts["mine-best"]
    assert best == {name: (run.path / name).read_bytes() for name in best}
    assert {"best/checkpoint.pt", "best/clip.gif", "report/summary.md"} <= set(best)
    assert "mine-best" in server.committed
    assert server.committed == set(server.artifacts)


def check_trial(sent: Sent, trial: int) -> None:
    assert (sent.group, sent.job_type, sent.exit_code) == ("mine", "tune", 0)
    assert sent.config["learning_rate"] == 1e-3 * trial
    assert sent.config["net_arch"] == [64, 64]
    rows = [sent.history[line] for line in sorted(sent.history)]
    assert [r["env_steps"] for r in rows] == [100 * i for i in range(1, 51)]
    assert [r["return/mean_reward"] for r in rows] == [trial * i for i in range(1, 51)]
    assert sent.summary["objective"] == 10.0 * trial


def test_what_is_sent_at_once(server: Server, tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "runs" / "mine", SPEC)
    track(run, "online")
    check(server, run)


def test_what_was_offline_is_sent_later_and_complete(server: Server, tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "runs" / "mine", SPEC)
    track(run, "offline")
    assert not server.runs
    sync(run.path)
    check(server, run)


@pytest.mark.slow
def test_a_run_that_was_moved_has_all_but_its_artifacts(server: Server, tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "runs" / "mine", SPEC)
    track(run, "offline")
    moved = tmp_path / "elsewhere"
    shutil.move(run.path, moved)
    sync(moved)
    runs = server.by_name()
    check_trial(runs["trial-3"], 3)
    tables = [name for name in runs["mine"].files if "trials_" in name]
    assert len(tables) == 1
    content = json.loads(runs["mine"].files[tables[0]])
    assert len(content["data"]) == 3


def sync(run: Path) -> None:
    files = sorted(str(path) for path in (run / "wandb").glob("offline-run-*"))
    assert len(files) == 4
    command = [sys.executable, "-m", "wandb", "sync", *files]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
