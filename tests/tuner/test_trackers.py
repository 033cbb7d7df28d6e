"""TensorBoard and MLflow: what lies in their files, read with their own clients."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest
from mlflow.tracking import MlflowClient
from rltune.agents.config import config_hash
from rltune.rundir import RunDir
from rltune.tracking import Tracker, Tracking
from searching import search
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from test_tracking import outcome_of_a_search, row

SPEC = {"agent": "ppo", "env": "CartPole-v1", "budget": 1000}
BESTS = [(3, 30.0), (5, 30.0)]


@pytest.fixture(autouse=True)
def _no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_ALLOW_FILE_STORE"):
        monkeypatch.delenv(name, raising=False)


def tell(run: RunDir, spec: Tracking) -> list[str]:
    """Tell of a small search, as the driver does, and return the warnings."""
    warnings: list[str] = []
    tracker = Tracker(run, spec, warn=warnings.append)
    config = {"learning_rate": 1e-3, "net_arch": [64, 64], "model": None}
    about = {"trial": 3, "origin": "default", "hash": config_hash(config)}
    for seed, role in ((0, "tune"), (100, "test")):
        tracker.trial_started(about, config, seed, role)
        for iteration in (1, 2):
            tracker.log(3, seed, role, row(iteration, mean_reward=10.0 * iteration, loss=0.5))
        tracker.trial_finished(3, {"state": "COMPLETE", "objective": 30.0}, seed, role)
    # A population changes it; a search may be stopped.
    tracker.trial_started({"trial": 4}, config, 0, "tune")
    tracker.trial_started({"trial": 4}, {**config, "learning_rate": 1e-2}, 0, "tune")
    tracker.log(4, 0, "tune", row(1, mean_reward=1.0))
    outcome_of_a_search(run)
    tracker.search_finished({"best_trial": 3, "best_config": config, "test_score": 28.5})
    tracker.close(120)
    return warnings


def curve(folder: Path, name: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def test_tensorboard_has_the_curves_the_configurations_and_the_answer(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "mine", SPEC)
    assert tell(run, Tracking(wandb="off", tensorboard=True)) == []
    folder = run.path / "tensorboard"
    names = {path.name for path in folder.iterdir()}
    assert names == {"tracking.log", "search", "trial-3", "trial-3-seed-100", "trial-4"}
    for name in ("trial-3", "trial-3-seed-100"):
        assert curve(folder / name, "return/mean_reward") == [(100, 10.0), (200, 20.0)]
        assert curve(folder / name, "search/objective") == [(0, 30.0)]
    assert curve(folder / "trial-4", "return/mean_reward") == [(100, 1.0)]
    assert curve(folder / "search", "search/best") == BESTS
    assert curve(folder / "search", "importances/x") == [(0, pytest.approx(0.7))]
    events = EventAccumulator(str(folder / "trial-3"))
    events.Reload()
    assert "_hparams_/session_start_info" in events.summary_metadata


def runs_of(client: MlflowClient) -> dict[str, Any]:
    (experiment,) = [e for e in client.search_experiments() if e.name == "rltune"]
    return {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}


@pytest.mark.parametrize("store", ["", "folder"])
def test_mlflow_has_a_run_for_the_search_and_its_trials_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    run = RunDir.create(tmp_path / "mine", SPEC)
    uri = (tmp_path / store).as_uri() if store else ""
    assert tell(run, Tracking(wandb="off", mlflow=uri)) == []
    if store:
        monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    client = MlflowClient(uri or f"sqlite:///{tmp_path / 'mlflow.db'}")
    runs = runs_of(client)
    assert set(runs) == {"mine", "trial-3", "trial-3-seed-100", "trial-4"}
    whole, trial, test = (runs[name] for name in ("mine", "trial-3", "trial-3-seed-100"))
    assert trial.data.params["learning_rate"] == "0.001"
    assert trial.data.tags["hash"] == test.data.tags["hash"]
    assert test.data.tags["role"] == "test"
    assert {one.data.tags.get("mlflow.parentRunId") for one in (trial, test)} == {whole.info.run_id}
    points = client.get_metric_history(trial.info.run_id, "return/mean_reward")
    assert [(point.step, point.value) for point in points] == [(100, 10.0), (200, 20.0)]
    points = client.get_metric_history(whole.info.run_id, "search/best")
    assert [(point.step, point.value) for point in points] == BESTS
    assert whole.data.metrics["search/test_score"] == 28.5
    assert whole.data.metrics["importances/x"] == 0.7
    assert {a.path for a in client.list_artifacts(whole.info.run_id)} == {"best", "report"}
    assert runs["trial-4"].data.tags["changed.learning_rate"] == "0.01"
    assert [runs[name].info.status for name in ("mine", "trial-3", "trial-4")] == [
        "FINISHED",
        "FINISHED",
        "FAILED",
    ]


def test_a_trial_goes_on_in_its_own_run(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "mine", SPEC)
    for part in (1, 2):
        tracker = Tracker(run, Tracking(wandb="off", mlflow=""))
        tracker.trial_started({"trial": 1}, {"gamma": 0.9}, 0, "tune")
        tracker.log(1, 0, "tune", row(part, mean_reward=1.0))
        if part == 2:
            tracker.trial_finished(1, {"state": "COMPLETE"}, 0, "tune")
        tracker.close(120)
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    trial = runs_of(client)["trial-1"]
    assert len(client.get_metric_history(trial.info.run_id, "return/mean_reward")) == 2
    assert trial.info.status == "FINISHED"


@pytest.mark.usefixtures("no_ray")
def test_a_search_whose_trials_all_failed_has_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import toy

    monkeypatch.setattr(toy.ToyAgent, "update", lambda *args: {"loss": math.nan})
    found = search(tmp_path, trials=2, report=True)
    assert list(found.trials()["state"]) == ["FAIL", "FAIL"]
    assert "Report" in found.page


def test_a_server_that_is_away_delays_nothing(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "mine", SPEC)
    warnings: list[str] = []
    start = time.monotonic()
    tracker = Tracker(run, Tracking(wandb="off", mlflow="http://127.0.0.1:9"), warnings.append)
    for iteration in range(100):
        tracker.log(1, 0, "tune", row(iteration))
    assert time.monotonic() - start < 1
    tracker.close(60)
    assert len(warnings) == 1
    assert "mlflow has failed (see mlflow/tracking.log)" in warnings[0]


@pytest.mark.usefixtures("no_ray")
def test_a_search_is_in_all_of_them(tmp_path: Path) -> None:
    options = {"tensorboard": True, "mlflow": "", "wandb": "offline", "report": True}
    found = search(tmp_path, trials=2, test_seeds=1, **options)
    assert found.page.strip() == f"Report  {found.path / 'report' / 'index.html'}"
    folder = found.path / "tensorboard"
    assert {path.name for path in folder.iterdir()} >= {"search", "trial-0", "trial-0-seed-100"}
    runs = runs_of(MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}"))
    assert {"run", "trial-0", "trial-0-seed-100"} <= set(runs)
    # Whatever the role, the runs of a configuration can be grouped.
    hashes = found.trials().set_index("trial")["hash"]
    assert {runs[f"trial-0{seed}"].data.tags["hash"] for seed in ("", "-seed-100")} == {hashes[0]}
