"""Reading earlier searches; test_search.py has a search that starts from one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rltune
from rltune.agents.errors import UserError
from rltune.cli import main
from rltune.runs.directory import RunDir
from rltune.runs.trials_table import write_trials
from rltune.samplers.earlier_runs import read_earlier
from rltune.space.space import Space

HERE = Path(__file__).parents[1]
SPACE: dict[str, Any] = {"quality": {"uniform": [0.0, 1.0]}, "at": {"int": [1, 1000]}}
DEFAULTS = {"quality": 0.5, "at": 50, "mode": "ok", "sleep": 0.25}


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """A search of 12 trials."""
    return make_run(tmp_path / "first")


def make_run(path: Path, rows: list[dict[str, Any]] | None = None, kind: str = "search") -> Path:
    """Write what a search leaves behind, as far as it is read here."""
    rng = np.random.default_rng(0)
    run = RunDir.create(path, {"agent": "toy:ToyAgent", "env": "toy:ToyEnv"}, kind=kind)
    for quality in [] if rows else rng.random(12).tolist():
        rows = [*(rows or []), {"state": "COMPLETE", "objective": quality, "rung": 90}]
    about = [
        {
            "trial": i,
            "reason": "",
            "config.quality": row["objective"] or 0.5,
            "config.at": int(rng.integers(1, 1000)),
            "config.mode": "ok",
            "config.sleep": 0.0,
            **row,
        }
        for i, row in enumerate(rows or [])
    ]
    write_trials(run.trials_path, about)
    return path


@pytest.mark.parametrize("sampler", ["random", "qmc", "grid", "cmaes", "nsgaii"])
def test_samplers_without_a_model_take_the_best_configuration(
    sampler: str, first: Path, tmp_path: Path
) -> None:
    from rltune.samplers.proposer import open_study
    from rltune.study.records import StartConfig

    space = Space.from_dict(SPACE)
    earlier, _ = read_earlier([first], space, DEFAULTS)
    starts = [StartConfig(str(q), {**DEFAULTS, "quality": q}) for q in (0.1, 0.5, 0.8)]
    study = open_study(
        tmp_path / "study.db", space, sampler=sampler, starts=starts, earlier=earlier
    )
    for _ in starts:
        trial = study.ask()
        assert trial is not None
        study.tell(trial.number, "COMPLETE", trial.config["quality"])
    asked = study.ask()
    assert asked is not None
    table = rltune.open(first).trials()
    best = table.loc[table["objective"].idxmax()]
    assert asked.config["quality"] == best["config.quality"]
    assert study.trials()[asked.number].attrs["proposal"] == "warm start"


def test_spaces_may_differ(first: Path) -> None:
    space = Space.from_dict(
        {
            "quality": {"uniform": [0.2, 2.0]},
            "mode": {"choice": ["nan", "ok"]},
            "sleep": {"uniform": [0.0, 1.0], "when": {"mode": "ok"}},
            "other": {"int": [1, 5]},
        }
    )
    [earlier], [taken] = read_earlier([first], space, {**DEFAULTS, "other": 3})
    table = rltune.open(first).trials()
    inside = table[table["config.quality"] >= 0.2].sort_values("trial")
    assert [values["quality"] for values in earlier.values] == list(inside["config.quality"])
    assert all(v["mode"] == "ok" and v["sleep"] == 0.0 for v in earlier.values)  # as it was then
    assert all(values["other"] == 3 for values in earlier.values)
    assert taken.filled == ["other"]
    assert taken.left_out == 12 - len(inside)
    order = sorted(range(len(inside)), key=lambda i: earlier.ranks[i])
    objectives = inside["objective"].tolist()
    assert [objectives[i] for i in order] == sorted(objectives)


def test_what_cannot_be_taken_over_is_said(
    first: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(HERE)
    monkeypatch.syspath_prepend(str(HERE))

    def read(space: dict[str, Any], run: Path = first) -> None:
        read_earlier([run], Space.from_dict(space), DEFAULTS)

    with pytest.raises(UserError, match="none of what is searched here"):
        read({"other": {"int": [1, 5]}})
    with pytest.raises(UserError, match="none of its 12 trials lies in the ranges"):
        read({"quality": {"uniform": [2.0, 3.0]}})
    make_run(tmp_path / "train", kind="train")
    with pytest.raises(UserError, match="it is a training"):
        read(SPACE, tmp_path / "train")
    line = f"run toy:ToyAgent --env toy:ToyEnv --budget 90 --quality 0 1 --from {tmp_path}/no"
    assert main(line.split()) == 2
    assert "no run" in capsys.readouterr().err
    line = line.replace(f"{tmp_path}/no", str(first)) + " --dry-run"
    assert main(line.split()) == 0
    assert "learns from 12 trials of first (toy:ToyAgent on toy:ToyEnv)" in capsys.readouterr().out


def test_ranks_are_those_of_the_budget_then_the_value(tmp_path: Path) -> None:
    run = make_run(
        tmp_path / "run",
        [
            {"state": "COMPLETE", "objective": 0.1, "rung": 90},
            {"state": "PRUNED", "objective": 9.0, "rung": 10, "config.quality": 0.9},
            {"state": "PRUNED", "objective": 5.0, "rung": 30, "config.quality": 0.8},
            {"state": "FAIL", "objective": None, "reason": "diverged: loss is nan"},
            {"state": "FAIL", "objective": None, "reason": "worker died"},
            {"state": "RUNNING", "objective": None},
        ],
    )
    [earlier], _ = read_earlier([run], Space.from_dict(SPACE), DEFAULTS)
    assert earlier.ranks == (0.875, 0.375, 0.625, 0.125)
    (run / "best").mkdir()
    (run / "best" / "answer.yaml").write_text(json.dumps({"winner": 1}))
    [earlier], _ = read_earlier([run], Space.from_dict(SPACE), DEFAULTS)
    assert earlier.ranks == (0.625, 0.875, 0.375, 0.125)
