"""Warm starts from end to end, with real searches of a toy agent."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rltune
import yaml
from rltune.agents.errors import UserError
from rltune.cli import main
from rltune.earlier import read_earlier
from rltune.space import Space

HERE = Path(__file__).parent
SPACE: dict[str, Any] = {"quality": {"uniform": [0.0, 1.0]}, "at": {"int": [1, 1000]}}
DEFAULTS = {"quality": 0.5, "at": 50, "mode": "ok", "sleep": 0.25}


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[None]:
    """One Ray for all searches of this module."""
    from rltune.launch import ray_session

    with ray_session():
        yield


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the toy agent importable, here and in the workers."""
    monkeypatch.chdir(HERE)
    monkeypatch.syspath_prepend(str(HERE))


def search(folder: Path, name: str, **options: Any) -> rltune.Search:
    values = {"budget": 90, "wandb": "off", "screen": "none", "tournament": False} | options
    space = values.pop("space", SPACE)
    return rltune.Search(
        "toy:ToyAgent", "toy:ToyEnv", space, storage_path=folder, name=name, **values
    )


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search of 12 trials."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(HERE)
        patch.syspath_prepend(str(HERE))
        return search(folder, "first", trials=12, sampler="random").run().path


def test_a_search_goes_on_where_another_ended(first: Path, tmp_path: Path) -> None:
    before = rltune.open(first).trials()
    best = before.loc[before["objective"].idxmax()]
    moved = tmp_path / "moved"
    shutil.copytree(first, moved)
    result = search(tmp_path, "second", trials=3, warm_start=[moved], concurrency=1).run()
    after = result.trials()
    assert after.loc[1, "config.quality"] == best["config.quality"]
    assert after.loc[1, "hash"] == best["hash"]
    assert after["hash"].is_unique

    about = yaml.safe_load((result.path / "run.yaml").read_text())
    assert about["spec"]["warm_start"] == [str(moved)]
    [taken] = about["warm_start"]
    assert taken["run"] == "moved"
    assert taken["trials"] == 12
    assert taken["shared"] == ["quality", "at"]
    shutil.rmtree(moved)  # what was taken over lies in the run directory
    again = rltune.resume(result.path, screen="none", trials=6)
    assert len(again.trials()) == 6
    assert again.trials()["hash"].is_unique


@pytest.mark.parametrize("sampler", ["random", "qmc", "grid", "cmaes", "nsgaii"])
def test_samplers_without_a_model_take_the_best_configuration(
    sampler: str, first: Path, tmp_path: Path
) -> None:
    from rltune.study import SearchStudy

    space = Space.from_dict(SPACE)
    earlier, _ = read_earlier([first], space, DEFAULTS)
    study = SearchStudy(tmp_path / "study.db", space, sampler=sampler, earlier=earlier)
    table = rltune.open(first).trials()
    asked = [study.ask() for _ in range(3)]
    assert asked[0] is not None
    best = table.loc[table["objective"].idxmax()]
    assert asked[0].config["quality"] == best["config.quality"]
    assert study.trials()[0].attrs["proposal"] == "warm start"
    # With no result there is no reason for a second one.
    assert study.trials()[1].attrs["proposal"] != "warm start"


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
    first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def read(space: dict[str, Any], run: Path = first) -> None:
        read_earlier([run], Space.from_dict(space), DEFAULTS)

    with pytest.raises(UserError, match="none of what is searched here"):
        read({"other": {"int": [1, 5]}})
    with pytest.raises(UserError, match="none of its 12 trials lies in the ranges"):
        read({"quality": {"uniform": [2.0, 3.0]}})
    (tmp_path / "train").mkdir()
    content = yaml.safe_load((first / "run.yaml").read_text()) | {"kind": "train"}
    (tmp_path / "train" / "run.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(UserError, match="it is a training"):
        read(SPACE, tmp_path / "train")
    line = f"run toy:ToyAgent --env toy:ToyEnv --budget 90 --quality 0 1 --from {tmp_path}/no"
    assert main(line.split()) == 2
    assert "no run" in capsys.readouterr().err
    line = line.replace(f"{tmp_path}/no", str(first)) + " --dry-run"
    assert main(line.split()) == 0
    assert "learns from 12 trials of first (toy:ToyAgent on toy:ToyEnv)" in capsys.readouterr().out


def test_ranks_are_those_of_the_budget_then_the_value(first: Path, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    run = tmp_path / "edited"
    shutil.copytree(first, run)
    table = rltune.open(run).trials().head(5)
    table["state"] = ["COMPLETE", "PRUNED", "PRUNED", "FAIL", "FAIL"]
    table["reason"] = ["", "stopped", "stopped", "diverged: x", "worker died"]
    table["rung"], table["objective"] = [90, 10, 30, 10, 10], [0.1, 9.0, 5.0, None, None]
    pq.write_table(pa.Table.from_pandas(table), run / "trials.parquet")
    [earlier], _ = read_earlier([run], Space.from_dict(SPACE), DEFAULTS)
    assert earlier.ranks == (0.875, 0.375, 0.625, 0.125)
    (run / "best").mkdir(exist_ok=True)
    (run / "best" / "answer.yaml").write_text(json.dumps({"winner": 1}))
    [earlier], _ = read_earlier([run], Space.from_dict(SPACE), DEFAULTS)
    assert earlier.ranks == (0.625, 0.875, 0.375, 0.125)
