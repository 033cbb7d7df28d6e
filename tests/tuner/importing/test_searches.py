"""Searches of Ray Tune and Optuna as run directories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import optuna
import pytest
import rltune
from rltune.agents.errors import UserError
from rltune.cli import main
from rltune.importing.run import import_search
from rltune.importing.trials import inferred_space


def write_experiment(folder: Path, trials: int = 6, **more: Any) -> Path:
    """Write the files that a real experiment of Ray Tune has, as `Tuner.fit` leaves them."""
    for i in range(trials):
        trial = folder / f"train_{i:05d}"
        trial.mkdir(parents=True)
        config = {
            "learning_rate": 10.0 ** (-i),
            "model": {"layers": i % 3},
            "env": "CartPole-v1",
            **more,
        }
        (trial / "params.json").write_text(json.dumps(config))
        rows = [
            {
                "training_iteration": k,
                "score": i + k,
                "timestamp": 100 * i + k,
                "pid": 1,
                "done": False,
            }
            for k in range(1, 4 if i % 2 else 10)
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (trial / "result.json").write_text(text + '{"training_iteration": 99, "sc')
    (folder / "train_00001" / "error.txt").write_text("Traceback\nRuntimeError: broken")
    (folder / "tuner.pkl").write_bytes(b"not read")
    return folder


def test_an_experiment_of_ray_tune_becomes_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_experiment(tmp_path / "experiment")
    runs = tmp_path / "runs"
    argv = ["import", str(source), "--name", "mine", "--storage-path", str(runs)]
    assert main(argv) == 0
    run = rltune.open(runs / "mine")
    trials = run.trials()
    assert list(trials["state"]) == ["COMPLETE", "FAIL", "COMPLETE", "PRUNED", "COMPLETE", "PRUNED"]
    assert trials["reason"][1] == "error: RuntimeError: broken"
    assert list(trials["objective"].dropna()) == [9, 11, 6, 13, 8]
    assert run.best == {"learning_rate": 1e-4, "model_layers": 1, "env": "CartPole-v1"}
    history = run.history()
    assert len(history[history["trial"] == 0]) == 9
    assert history["eval_return"].max() == 13
    capsys.readouterr()
    for command in (["show"], ["report"], ["importances"]):
        assert main([*command, str(run.path)]) == 0, command
    assert "RuntimeError: broken" in capsys.readouterr().out
    assert main(["resume", str(run.path)]) == 2
    assert "the run 'mine' was imported" in capsys.readouterr().err


def test_a_study_of_optuna_becomes_a_run(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/optuna.db"
    study = optuna.create_study(study_name="mine", storage=storage, direction="minimize")

    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 1e-4, 1.0, log=True)
        n = trial.suggest_int("n.layers", 1, 4)
        trial.suggest_categorical("kind", ["one"])
        trial.report(x + n + 1, 1)
        if n == 4:
            raise optuna.TrialPruned
        return x + n

    study.optimize(objective, n_trials=20)
    path = import_search(storage, "run", tmp_path)
    run = rltune.open(path)
    assert run.spec["space"]["space"]["x"] == {"log": [1e-4, 1.0]}
    assert run.spec["space"]["space"]["n_layers"] == {"int": [1, 4]}
    assert run.spec["space"]["space"]["kind"] == {"choice": ["one"]}
    assert run.spec["metric"] == "-objective"
    trials = run.trials()
    assert trials["objective"].max() == -study.best_value
    assert set(trials["state"]) == {"COMPLETE", "PRUNED"}
    assert run.best is not None
    assert run.best["x"] == study.best_params["x"]


def test_a_search_begins_where_an_imported_one_ended(tmp_path: Path) -> None:
    source = write_experiment(tmp_path / "experiment", trials=8)
    path = import_search(source, "earlier", tmp_path)
    search = rltune.Search(
        "ppo", "CartPole-v1", {"space": {"learning_rate": {"log": [1e-6, 1.0]}}},
        trials=2, budget=100, warm_start=[str(path)], storage_path=tmp_path, name="later",
    )  # fmt: skip
    assert search.earlier


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("nothing", "nothing is no experiment of Ray Tune"),
        ("sqlite:///nowhere/at/all.db", "can't be opened by Optuna"),
        ("postgresql+nothing://x", "can't be opened by Optuna"),
    ],
)
def test_what_is_no_search_is_one_sentence(
    source: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=said):
        import_search(source, "run", tmp_path)
    assert not (tmp_path / "run").exists()


def test_damaged_experiments_are_one_sentence(tmp_path: Path) -> None:
    source = write_experiment(tmp_path / "experiment")
    (source / "train_00002" / "params.json").write_text("{")
    with pytest.raises(UserError, match=r"params\.json is damaged"):
        import_search(source, "run", tmp_path)
    with pytest.raises(UserError, match="no trial reports 'loss'; give --metric"):
        import_search(write_experiment(tmp_path / "other"), "run", tmp_path, metric="loss")


def test_spaces_are_inferred_from_values() -> None:
    configs = [{"a": 1e-4, "b": 1, "c": "x", "d": True, "e": 3}, {"a": 0.1, "b": 9, "c": "y",
               "d": False, "e": 3}]  # fmt: skip
    assert inferred_space(configs) == {
        "space": {
            "a": {"log": [1e-4, 0.1]},
            "b": {"int": [1, 9]},
            "c": {"choice": ["x", "y"]},
            "d": {"choice": [False, True]},
        },
        "fixed": {"e": 3},
    }
    with pytest.raises(UserError, match="nothing was searched"):
        inferred_space([{"a": 1}, {"a": 1}])
