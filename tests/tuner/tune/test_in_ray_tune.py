"""rltune's study and early stopping inside a `tune.Tuner`, with real Ray."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
import rltune.tune
from rltune.agents.errors import UserError
from rltune.cli import main

HERE = Path(__file__).parent


@pytest.fixture(scope="module", autouse=True)
def one_ray() -> Iterator[None]:
    from rltune.cluster.session import ray_session

    with ray_session():
        yield


def parabola() -> Any:
    """Return a training; workers get it by value, as they can't import this module."""

    def train(config: dict[str, Any]) -> None:
        import time

        from ray import tune

        for i in range(1, 10):
            time.sleep(config.get("sleep", 0))
            tune.report({"env_steps": 100 * i, "score": -((config["x"] - 0.3) ** 2) * i})

    return train


def tuner(folder: Path, trials: int, **fixed: Any) -> Any:
    from ray import tune

    space = {"space": {"x": {"uniform": [0.0, 1.0]}}, "fixed": fixed, "start": [{"x": 0.9}]}
    return tune.Tuner(
        parabola(),
        tune_config=tune.TuneConfig(
            metric="score",
            mode="max",
            search_alg=rltune.tune.searcher(space, folder / "study.db", "score", budget=900),
            scheduler=rltune.tune.scheduler(900, min_population=3),
            num_samples=trials,
            max_concurrent_trials=2,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(storage_path=str(folder), name="experiment", verbose=0),
    )


def trials_of(folder: Path) -> list[optuna.trial.FrozenTrial]:
    storage = f"sqlite:///{folder}/study.db"
    return optuna.load_study(study_name="search", storage=storage).trials


def n_ended(folder: Path) -> int:
    """Return how many trials have ended; reads only, as the study may be being made."""
    with contextlib.suppress(sqlite3.OperationalError):
        database = sqlite3.connect(f"file:{folder}/study.db?mode=ro", uri=True)
        with contextlib.closing(database):
            ended = "SELECT COUNT(*) FROM trials WHERE state IN ('COMPLETE', 'PRUNED')"
            return int(database.execute(ended).fetchone()[0])
    return 0


def test_a_tuner_takes_proposals_and_stops_early(tmp_path: Path) -> None:
    results = tuner(tmp_path, trials=10).fit()
    assert len(results) == 10
    trials = trials_of(tmp_path)
    assert trials[0].params["x"] == 0.9
    states = [trial.state.name for trial in trials]
    assert set(states) == {"COMPLETE", "PRUNED"}
    for trial in trials:
        assert (max(trial.intermediate_values) == 900) == (trial.state.name == "COMPLETE")
    best = results.get_best_result().metrics["score"]  # of those that were stopped, too
    assert best == max(trial.value for trial in trials if trial.value is not None)


@pytest.mark.slow
def test_a_killed_tuner_is_restored_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray import tune

    # Tune's own result files, which rltune's searches do without.
    monkeypatch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "0")
    code = (
        f"import sys; sys.path.insert(0, {str(HERE)!r})\n"
        "from pathlib import Path\n"
        "from test_in_ray_tune import tuner\n"
        f"tuner(Path({str(tmp_path)!r}), trials=6, sleep=0.3).fit()\n"
    )
    environment = {**os.environ, "TUNE_GLOBAL_CHECKPOINT_S": "1"}
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True,
                               env={k: v for k, v in environment.items() if k != "RAY_ADDRESS"},
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        time.sleep(0.5)
        assert process.poll() is None
        if n_ended(tmp_path) >= 2:
            break
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = [trial.params for trial in trials_of(tmp_path)]
    restored = tune.Tuner.restore(
        str(tmp_path / "experiment"), parabola(), resume_unfinished=True, restart_errored=True
    )
    assert len(restored.fit()) == 6
    trials = trials_of(tmp_path)
    assert len(trials) == 6
    assert [trial.params for trial in trials][: len(before)] == before
    assert all(trial.state.is_finished() for trial in trials)
    # Its run directory, for rltune's own pages.
    words = ["import", str(tmp_path / "experiment"), "--metric", "score"]
    assert main([*words, "--storage-path", str(tmp_path), "--name", "run"]) == 0
    assert len(rltune.open(tmp_path / "run").trials()) == 6
    assert main(["report", str(tmp_path / "run")]) == 0


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'pbt' can't be used in Ray Tune; write asha"):
        rltune.tune.scheduler(100, name="pbt")
    with pytest.raises(UserError, match="'maximise'"):
        rltune.tune.scheduler(100, mode="maximise")
    with pytest.raises(UserError, match="x: "):
        rltune.tune.searcher({"x": {"uniforn": [0, 1]}}, tmp_path / "study.db", "score")
