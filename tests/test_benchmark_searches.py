"""The benchmarks of whole searches, in miniature: search, train what was named, print a table."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
MINUTES = 0.4
pytestmark = pytest.mark.slow


@pytest.fixture
def script(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module(request.param)


def rows(file: Path, what: str) -> list[dict[str, Any]]:
    found = (json.loads(line) for line in file.read_text().splitlines())
    return [row for row in found if row["what"] == what]


@pytest.mark.parametrize("script", ["benchmark_tuners"], indirect=True)
@pytest.mark.parametrize(
    ("tuner", "minutes"),
    [("rltune", MINUTES), ("tune", MINUTES), ("optuna", MINUTES), ("zoo", 1.5)],
)
def test_a_tuner_searches_and_its_winner_is_trained(
    script: ModuleType,
    tuner: str,
    minutes: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if tuner == "zoo":
        pytest.importorskip("rl_zoo3")
    monkeypatch.setattr(script, "SETTINGS", (script.Setting("ppo", "CartPole-v1", 3_000, 15.0),))
    monkeypatch.setattr(script, "REPETITIONS", 1)
    monkeypatch.setattr(script, "SEEDS", range(2))
    file = tmp_path / "tuners.jsonl"
    for _ in range(2):  # the second time, nothing is left to do
        script.run(file, {"tuner": [tuner]}, minutes, searches_only=False)
    (search,) = rows(file, "search")
    assert search["config"]
    assert search["trials"]
    assert 0 < search["seconds"] < 60 * minutes + script.GRACE + 5
    assert {row["seed"] for row in rows(file, "test")} == {0, 1}
    assert all(9 <= row["score"] <= 500 for row in rows(file, "test"))
    capsys.readouterr()
    script.table(file)
    assert f"| {tuner} | {len(search['trials'])} |" in capsys.readouterr().out


@pytest.mark.parametrize("script", ["benchmark_known_good"], indirect=True)
def test_what_a_search_names_is_compared_with_known_good_settings(
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(script, "PAIRS", (script.Pair("ppo", "CartPole-v1", 3_000),))
    monkeypatch.setattr(script, "SEEDS", range(2))
    file = tmp_path / "known-good.jsonl"
    script.search(file, MINUTES, tmp_path / "runs", ["a2c"])
    assert not file.exists()
    for _ in range(2):
        script.search(file, MINUTES, tmp_path / "runs", [])
        script.test(file, 2, [], script.WHO)
    (search,) = rows(file, "search")
    assert (tmp_path / "runs" / "ppo-CartPole-v1" / "run.yaml").exists()
    assert not search["resumed"]
    own = script.same_as(search) is None
    assert len(rows(file, "test")) == 2 * (len(script.WHO) - 1 + own)
    capsys.readouterr()
    script.table(file)
    assert f"| PPO, CartPole-v1, 3,000 | {search['trials']} |" in capsys.readouterr().out
    monkeypatch.setattr(script, "ROOT", tmp_path)
    script.picture(file, tmp_path / "known-good.png")
    assert (tmp_path / "known-good.png").stat().st_size > 5_000


@pytest.mark.parametrize("script", ["benchmark_known_good"], indirect=True)
@pytest.mark.parametrize(
    ("origins", "twin"),
    [
        (["default"], "defaults"),
        (["start:0"], "known-good"),
        (["start:1"], None),
        (["sampler"], None),
    ],
)
def test_settings_that_everyone_knows_are_trained_once(
    script: ModuleType,
    origins: list[str],
    twin: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = script.Pair("ppo", "CartPole-v1", 3_000)
    monkeypatch.setattr(script, "PAIRS", (pair,))
    monkeypatch.setattr(script, "SEEDS", range(2))
    file = tmp_path / "known-good.jsonl"
    script.store(file, {"what": "search", **pair._asdict(), "origins": origins, "config": {}})
    todo = list(script.tests(file, [], script.WHO))
    assert [job["who"] for job in todo if job["who"] == "rltune"] == ["rltune"] * 2 * (not twin)
    assert {job["who"] for job in script.tests(file, [], ["defaults"])} == {"defaults"}
    for place, job in enumerate(todo):
        script.store(file, {**job, "score": float(place)})
    found = script.scores(file, pair)
    assert list(found["rltune"]) == [0, 1]
    assert [who for who in script.WHO[1:] if found[who] == found["rltune"]] == [twin] * bool(twin)


@pytest.mark.parametrize("script", ["benchmark_auto"], indirect=True)
def test_what_auto_names_is_compared_with_searches_of_each_agent(
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(script, "AUTO", "ppo,a2c")  # all that act there would take a quarter hour
    monkeypatch.setattr(script, "TRIAL_TIME", "1s")
    monkeypatch.setattr(script, "SEEDS", range(2))
    file = tmp_path / "auto.jsonl"
    script.search(file, 1.0, ["Pendulum-v1"])
    (named,) = rows(file, script.AUTO)
    assert {row["agent"] for row in rows(file, "search")} == set(named["budgets"]) == {"ppo", "a2c"}
    script.test(file, 2)
    assert len(rows(file, "test")) == 2 * 3
    capsys.readouterr()
    script.table(file)
    assert f"| Pendulum-v1 | {named['agent']} |" in capsys.readouterr().out
