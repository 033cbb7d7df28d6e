"""wandb: what lies in its offline files, that no key does, and that nothing delays the search."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import time
from typing import Any

import pandas as pd
import pytest
from PIL import Image
from rltune.agents.errors import UserError
from rltune.runs.directory import RunDir
from rltune.runs.tracking_options import Tracking
from rltune.runs.trials_table import write_trials
from rltune.tracking import Tracker, feed
from wandb_files import offline_runs

KEY = "0123456789abcdef0123456789abcdef01234567"
SPEC = {"agent": "ppo", "env": "CartPole-v1", "budget": 1000}


@pytest.fixture(autouse=True)
def _no_account(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))


@pytest.fixture
def run(tmp_path):
    return RunDir.create(tmp_path / "runs" / "mine", SPEC)


def row(iteration: int, **more: float) -> dict[str, Any]:
    about = {"trial": 3, "seed": 0, "role": "tune", "iteration": iteration}
    return {**about, "env_steps": iteration * 100, "eval_return": None, **more}


def outcome_of_a_search(run: RunDir) -> None:
    """Write what lies in the run directory when a search has ended."""
    rows = [
        {"trial": 3, "state": "COMPLETE", "objective": 30.0, "config.x": 1},
        {"trial": 4, "state": "FAIL", "objective": float("nan"), "config.x": 2},
        {"trial": 5, "state": "COMPLETE", "objective": 20.0, "config.x": 3},
    ]
    write_trials(run.trials_path, rows)
    run.write_yaml("best/scores.yaml", {3: {100: 29.0, 101: 28.0}})
    (run.best_dir / "checkpoint.pt").write_bytes(b"weights")
    picture = Image.new("RGB", (8, 8))
    picture.save(run.best_dir / "clip.gif", save_all=True, append_images=[picture])
    about = {"method": "fanova", "kind": "parameter", "low": 0.1, "high": 0.9, "floor": 0.05}
    shares = [{"parameter": "y", "importance": 0.2}, {"parameter": "x", "importance": 0.7}]
    run.write_parquet("report/importances.parquet", pd.DataFrame([{**about, **s} for s in shares]))
    run.write_text("report/summary.md", "# The answer")


def test_a_search_lies_complete_in_its_offline_files(run):
    warnings: list[str] = []
    tracker = Tracker(run, Tracking(), warn=warnings.append)
    for trial in (3, 4):
        config = {"learning_rate": 1e-3 * trial, "net_arch": [64, 64]}
        tracker.trial_started({"trial": trial, "origin": "default"}, config, 0, "tune")
    for iteration in (1, 2, 3):
        tracker.log(3, 0, "tune", row(iteration, mean_reward=10 * iteration, loss=float("nan")))
    tracker.log(4, 0, "tune", row(1, mean_reward=5.0))
    tracker.trial_finished(3, {"state": "COMPLETE", "objective": 30.0, "reason": ""}, 0, "tune")
    tracker.trial_finished(4, {"state": "FAIL", "reason": "NaN"}, 0, "tune")
    tracker.trial_started({"trial": 3, "origin": "default"}, {"learning_rate": 3e-3}, 100, "test")
    tracker.trial_finished(3, {"state": "COMPLETE", "objective": 29.0}, 100, "test")
    outcome_of_a_search(run)
    tracker.search_finished({"best_trial": 3, "best_config": {"learning_rate": 3e-3}})
    tracker.close(60)
    assert warnings == []

    runs = offline_runs(run.path)
    assert set(runs) == {"trial-3", "trial-4", "trial-3-seed-100", "mine"}
    job_types = {name: about["run"].job_type for name, about in runs.items()}
    assert job_types == {
        **{"trial-3": "tune", "trial-4": "tune", "trial-3-seed-100": "test", "mine": "search"}
    }
    groups = {name: about["run"].run_group for name, about in runs.items()}
    # The seeds of a configuration are a group.
    assert groups == {**dict.fromkeys(runs, "mine"), "trial-3-seed-100": "mine trial-3"}
    for about in runs.values():
        assert about["run"].project == "rltune"
        tags = set(about["run"].tags)
        assert {f"{n}-{run.content['versions'][n]}" for n in ("rltune", "torch", "ray")} <= tags
        git = run.content["git"]
        assert not git or any(t.startswith(f"git-{git['revision'][:12]}") for t in tags)
        assert about["metrics"]["*"] == "env_steps"

    trial = runs["trial-3"]
    assert trial["config"]["learning_rate"] == 3e-3
    assert trial["config"]["net_arch"] == [64, 64]
    assert (trial["config"]["env"], trial["config"]["seed"]) == ("CartPole-v1", 0)
    assert [r["env_steps"] for r in trial["history"]] == [100, 200, 300]
    assert [r["return/mean_reward"] for r in trial["history"]] == [10, 20, 30]
    assert trial["summary"]["objective"] == 30.0
    assert trial["summary"]["state"] == "COMPLETE"
    assert trial["exit"] == 0
    assert (runs["trial-4"]["summary"]["reason"], runs["trial-4"]["exit"]) == ("NaN", 1)
    search = runs["mine"]
    assert search["summary"]["best_trial"] == 3
    assert search["config"]["agent"] == "ppo"
    best = [
        (row["search/trial"], row["search/best"])
        for row in search["history"]
        if "search/best" in row
    ]
    assert best == [(3, 30.0), (5, 30.0)]
    assert search["metrics"]["search/*"] == "search/trial"
    media = next((run.path / "wandb").glob("offline-run-*/files/media"))
    shown = {file.name.split("_")[0] for file in media.rglob("*") if file.is_file()}
    assert shown == {"trials", "tournament", "importances", "winner"}
    content = json.loads(next(media.rglob("trials_*.json")).read_text())
    assert dict(zip(content["columns"], content["data"][0], strict=True))["config.x"] == 1
    content = json.loads(next(media.rglob("importances_*.json")).read_text())
    assert [row[content["columns"].index("parameter")] for row in content["data"]] == ["x", "y"]
    files = search["artifacts"]["mine-best"]
    assert files == {"best/checkpoint.pt", "best/clip.gif", "best/scores.yaml", "report/summary.md"}


def test_a_training_is_one_run(tmp_path):
    run = RunDir.create(tmp_path / "lesson", SPEC, kind="train")
    tracker = Tracker(run, Tracking(wandb="offline", wandb_project="mine", wandb_group="thesis"))
    tracker.trial_started({"trial": 0}, {"gamma": 0.9}, 7, "train")
    tracker.log(0, 7, "train", row(1, mean_reward=1.0))
    tracker.trial_finished(0, {"state": "COMPLETE"}, 7, "train")
    tracker.close(60)
    (about,) = offline_runs(run.path).values()
    assert about["run"].display_name == "lesson"
    assert (about["run"].job_type, about["run"].run_group) == ("train", "thesis")
    assert about["run"].project == "mine"
    assert len(about["history"]) == 1


def test_the_key_lies_in_no_file_and_an_unreachable_server_delays_nothing(run, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_INIT_TIMEOUT", "2")
    monkeypatch.setattr(sys, "argv", ["rltune", "run", f"--wandb-key={KEY}"])
    warnings: list[str] = []
    start = time.monotonic()
    tracker = Tracker(run, Tracking(), warn=warnings.append)  # auto: there is a key, so online
    for trial in (1, 2):
        tracker.trial_started({"trial": trial}, {"env_kwargs": {"login": KEY}}, 0, "tune")
        tracker.log(trial, 0, "tune", row(1, mean_reward=1.0))
        tracker.trial_finished(trial, {"state": "COMPLETE"}, 0, "tune")
    assert time.monotonic() - start < 1
    tracker.close(60)
    assert len(warnings) == 1
    assert "not reachable" in warnings[0]
    assert "wandb sync" in warnings[0]
    runs = offline_runs(run.path)
    assert set(runs) == {"trial-1", "trial-2"}
    assert all(len(about["history"]) == 1 for about in runs.values())
    files = [file for file in run.path.rglob("*") if file.is_file()]
    assert len(files) > 5
    assert [file for file in files if KEY.encode() in file.read_bytes()] == []


def test_close_waits_no_longer_than_it_is_told(run, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_INIT_TIMEOUT", "60")
    warnings: list[str] = []
    tracker = Tracker(run, Tracking(), warn=warnings.append)
    tracker.trial_started({"trial": 1}, {}, 0, "tune")
    time.sleep(1)
    start = time.monotonic()
    tracker.close(1)
    assert time.monotonic() - start < 4
    assert len(warnings) == 1
    assert "did not finish within 1 s" in warnings[0]
    tracker.close(1)
    tracker.log(1, 0, "tune", row(1))


def python_path_without_wandb(tmp_path, code):
    (tmp_path / "shadow").mkdir()
    (tmp_path / "shadow" / "wandb.py").write_text(code)
    return str(tmp_path / "shadow")


def test_without_wandb_there_is_one_warning(run, tmp_path, monkeypatch):
    shadow = python_path_without_wandb(tmp_path, 'raise ImportError("No module named wandb")')
    monkeypatch.setenv("PYTHONPATH", shadow)
    check_broken(run, "not tracking this run .*No module named wandb")


def test_if_wandb_dies_there_is_one_warning(run, tmp_path, monkeypatch):
    shadow = python_path_without_wandb(tmp_path, "import os; os._exit(3)")
    monkeypatch.setenv("PYTHONPATH", shadow)
    check_broken(run, "wandb has failed")


def check_broken(run, warning):
    warnings: list[str] = []
    tracker = Tracker(run, Tracking(), warn=warnings.append)
    deadline = time.monotonic() + 30
    while not warnings and time.monotonic() < deadline:
        tracker.log(1, 0, "tune", row(1))
        time.sleep(0.01)
    for _ in range(100):
        tracker.log(1, 0, "tune", row(1))
    tracker.search_finished({})
    start = time.monotonic()
    tracker.close(20)
    assert time.monotonic() - start < 3
    assert len(warnings) == 1
    assert re.search(warning, warnings[0])


KILLED = """
import os, sys, time
from rltune.runs.directory import RunDir
from rltune.tracking import Tracker
from rltune.runs.tracking_options import Tracking
tracker = Tracker(RunDir.open(sys.argv[1]), Tracking())
tracker.trial_started({"trial": 1}, {}, 0, "tune")
tracker.log(1, 0, "tune", {"env_steps": 1, "x": 2})
time.sleep(0.2)
os.kill(os.getpid(), 9)
"""


def test_a_killed_driver_leaves_complete_runs(run):
    subprocess.run([sys.executable, "-c", KILLED, str(run.path)], check=False)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        runs = offline_runs(run.path)
        if "trial-1" in runs and runs["trial-1"]["exit"] is not None:
            break
        time.sleep(0.2)
    assert runs["trial-1"]["history"] == [{"env_steps": 1, "train/x": 2}]
    assert runs["trial-1"]["exit"] == 1


def test_the_search_does_not_wait(run, monkeypatch):
    start = time.perf_counter()
    tracker = Tracker(run, Tracking(), warn=print)
    assert time.perf_counter() - start < 0.25
    metrics = {f"metric_{i}": 0.1 * i for i in range(20)}
    seconds = []
    for iteration in range(2000):
        start = time.perf_counter()
        tracker.log(1, 0, "tune", {**metrics, "iteration": iteration})
        seconds.append(time.perf_counter() - start)
    assert statistics.median(seconds) < 50e-6
    tracker.close(0.1)


def test_a_slow_wandb_costs_rows_not_time(run, tmp_path, monkeypatch):
    shadow = python_path_without_wandb(tmp_path, "import time; time.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", shadow)
    monkeypatch.setattr(feed, "QUEUE", 100)
    warnings: list[str] = []
    tracker = Tracker(run, Tracking(), warn=warnings.append)
    text = {f"metric_{i}": 0.5 for i in range(100)}
    for _ in range(1000):  # more than pipe and queue hold
        tracker.log(1, 0, "tune", text)
        time.sleep(0)
    assert warnings == ["wandb is slower than the search: some of its curves' points are lost."]
    start = time.monotonic()
    tracker.close(0.2)
    assert time.monotonic() - start < 3


def test_wandb_disabled_by_the_user_stays_disabled(run, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    warnings: list[str] = []
    tracker = Tracker(run, Tracking(), warn=warnings.append)
    tracker.trial_started({"trial": 1}, {}, 0, "tune")
    tracker.log(1, 0, "tune", row(1))
    tracker.search_finished({})
    tracker.close(60)
    assert warnings == []
    assert os.listdir(run.path / "wandb") == ["tracking.log"]


def test_off_and_unknown_modes(run):
    tracker = Tracker(run, Tracking(wandb="off"))
    tracker.log(1, 0, "tune", row(1))
    tracker.close()
    assert not (run.path / "wandb").exists()
    with pytest.raises(UserError, match="did you mean 'offline'"):
        Tracking(wandb="ofline")
