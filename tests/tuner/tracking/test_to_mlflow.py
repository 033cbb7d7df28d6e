"""MLflow: what lies in its store, read with its own client. pip install -e ".[services]" first."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from rltune.runs.directory import RunDir
from rltune.runs.tracking_options import Tracking
from rltune.tracking import Tracker
from searching import search
from test_to_tensorboard import BESTS, SPEC, tell
from test_tracker import row

MlflowClient = pytest.importorskip("mlflow.tracking").MlflowClient


@pytest.fixture(autouse=True)
def _no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_ALLOW_FILE_STORE"):
        monkeypatch.delenv(name, raising=False)


def runs_of(client: Any) -> dict[str, Any]:
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
    assert {each.data.tags.get("mlflow.parentRunId") for each in (trial, test)} == {
        whole.info.run_id
    }
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
