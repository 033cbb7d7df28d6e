"""TensorBoard: what lies in its files, read with its own client."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from rltune.agents.config import config_hash
from rltune.runs.directory import RunDir
from rltune.runs.tracking_options import Tracking
from rltune.tracking import Tracker
from searching import search
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from test_tracker import outcome_of_a_search, row

SPEC = {"agent": "ppo", "env": "CartPole-v1", "budget": 1000}
BESTS = [(3, 30.0), (5, 30.0)]


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


@pytest.mark.slow
@pytest.mark.usefixtures("no_ray")
def test_a_search_whose_trials_all_failed_has_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import toy

    monkeypatch.setattr(toy.ToyAgent, "update", lambda *args: {"loss": math.nan})
    found = search(tmp_path, trials=2, report=True)
    assert list(found.trials()["state"]) == ["FAIL", "FAIL"]
    assert "Report" in found.page
