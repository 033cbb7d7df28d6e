"""The suite of speed: its rows are those that were named, and both sides train with one setting."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "scripts"


@pytest.fixture
def speed(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import benchmark_speed

    return benchmark_speed


def test_the_rows_train_with_the_presets_between_two_updates(speed: ModuleType) -> None:
    for row in (*speed.ROWS, *speed.HELD_OUT):
        values = row.settings()
        if row in speed.ROWS:
            expected = preset_in_the_file(row.agent, row.env)
            assert {name: values[name] for name in expected} == expected, row.name
        rollout = values.get("n_steps", 0) * values.get("n_envs", 1)
        every = rollout or values["train_freq"]
        assert row.first % every == row.last % every == 0, row.name
        assert 0 <= row.first < row.last <= row.total


def preset_in_the_file(agent: str, env: str) -> dict[str, Any]:
    starts = yaml.safe_load((ROOT / "search_spaces" / f"{agent}.yaml").read_text())["start"]
    (found,) = (s for s in starts if s["name"] == "zoo" and env in s["env"])  # a text, or a list
    return {name: number(value) for name, value in found.items() if name not in ("name", "env")}


def number(value: Any) -> Any:
    """Return what YAML 1.1 takes for a text, such as 3e-4."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


def test_held_out_are_the_rows_that_were_named(speed: ModuleType) -> None:
    text = (ROOT / "docs" / "benchmarks" / "held-out.md").read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("| speed"))
    named = set()
    for agents, env in re.findall(r"((?:[A-Z0-9]+(?: and )?)+) on ([\w-]+)", line):
        named |= {f"{agent.lower()} {env}" for agent in agents.split(" and ")}
    assert {row.name for row in speed.HELD_OUT} == named
    assert not named & {row.name for row in speed.ROWS}


def test_both_sides_are_asked_in_turn_and_once(
    speed: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from speed.tables import ratio

    asked: list[str] = []

    def measured(job: dict[str, Any], args: Any) -> dict[str, Any]:
        asked.append(job["side"])
        seconds = 1.0 if job["side"] == "rltune" else 3.0
        found = {"env_steps": 100, "cpu_seconds": seconds, "kernels": {"numpy": "a", "torch": "b"}}
        return {**found, "engine": "numpy"} if job["side"] == "rltune" else found

    monkeypatch.setattr(speed, "measured", measured)
    file = tmp_path / "speed.jsonl"
    words = ["run", "--only", "dqn", "--results", str(file)]
    for slices in ("2", "3", "3"):
        monkeypatch.setattr(sys, "argv", ["benchmark_speed.py", *words, "--slices", slices])
        speed.main()
    assert asked == ["rltune", "sb3", "sb3", "rltune", "rltune", "sb3"]
    stored = [json.loads(line) for line in file.read_text().splitlines()]
    assert [ratio(pair) for pair in stored] == [3.0] * 3
    assert {pair["took"] for pair in stored} == {"numpy"}


def test_the_interval_of_a_median(speed: ModuleType) -> None:
    from speed.tables import interval

    assert interval([3.0, 1.0, 2.0, 5.0, 4.0]) == (1.0, 5.0, 0.9375)
    low, high, confidence = interval([float(n) for n in range(10)])
    assert (low, high) == (1.0, 8.0)
    assert confidence == pytest.approx(0.978, abs=1e-3)


def test_times_to_the_threshold_are_compared_by_medians(
    speed: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    about = {"what": "threshold", "agent": "ppo", "env": "CartPole-v1", "state": "after"}
    about |= {"blas": "stock", "engine": None, "when": "today", "processor": "one", "versions": {}}
    times = {"rltune": (9.0, 6.0, 6.0), "tune_sb3": (12.0, None, 8.0), "zoo": (None, None, 5.0)}
    speed.print_tables(
        [
            {**about, "tuner": tuner, "seconds_to_threshold": at}
            for tuner, values in times.items()
            for at in values
        ]
    )
    said = capsys.readouterr().out
    assert "| ppo CartPole-v1 | tune_sb3 | 6, 6, 9 | 8, 12, never | 0.50 |" in said
    assert "| zoo | 6, 6, 9 | 5, never, never | the other never reached it |" in said


@pytest.mark.slow
def test_a_search_ends_with_the_first_trial_at_the_threshold(tmp_path: Path) -> None:
    file = tmp_path / "speed.jsonl"
    command = [sys.executable, str(SCRIPTS / "benchmark_speed.py"), "thresholds"]
    command += ["--slices", "1", "--only", "ppo CartPole-v1", "--results", str(file)]
    subprocess.run(command, capture_output=True, text=True, check=True)
    ours, theirs = (json.loads(line) for line in file.read_text().splitlines())
    assert (ours["tuner"], theirs["tuner"]) == ("rltune", "tune_sb3")
    assert ours["seconds_to_threshold"] < ours["seconds"] < 60 * ours["minutes"]
    assert ours["trials"] >= 1


@pytest.mark.slow
def test_a_held_out_slice_of_ours(speed: ModuleType) -> None:
    job = {"what": "slice", "side": "rltune", "seed": 0, "engine": None, "core": None}
    found = speed.one({**job, "row": "sac MountainCarContinuous-v0", "env_steps": 32})
    assert found["env_steps"] == 32
    assert found["cpu_seconds"] > 0
    assert found["kernels"]["numpy"].startswith("OpenBLAS")


@pytest.mark.slow
def test_a_held_out_pair_is_measured_and_its_ratio_is_not_printed(tmp_path: Path) -> None:
    file = tmp_path / "speed.jsonl"
    command = [sys.executable, str(SCRIPTS / "benchmark_speed.py"), "held-out", "--quiet"]
    command += ["--slices", "1", "--env-steps", "32", "--results", str(file)]
    command += ["--only", "sac MountainCarContinuous"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == ""
    pair = json.loads(file.read_text())
    assert pair["ours"]["env_steps"] == pair["theirs"]["env_steps"] == 32


@pytest.mark.slow
def test_a_profile_adds_up(speed: ModuleType) -> None:
    from speed.profiles import group_of, products, profiled
    from speed.rows import row_named

    row = row_named("dqn CartPole-v1")
    shares = profiled(lambda: sum(n * n for n in range(500_000)))
    assert sum(shares.values()) == pytest.approx(1)
    assert group_of(sys._getframe()) == "rest"
    shapes = products(row, 0, env_steps=256)
    # Half an update an env step: three layers of 64 rows, the gradients of their weights and of the
    # inputs of two. The target network values the rows of 128 updates at once.
    of_learning = {shape: n for shape, n in shapes.items() if 64 in shape[1:]}
    assert sum(of_learning.values()) == pytest.approx(0.5 * (3 + 3 + 2))
    assert shapes[1, 64 * 128, 256, 256] == pytest.approx(1 / 256)
