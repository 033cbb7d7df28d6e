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
import rltune

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "scripts"


@pytest.fixture
def speed(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import benchmark_speed

    return benchmark_speed


def test_the_rows_have_the_settings_of_the_presets(speed: ModuleType) -> None:
    for row in (*speed.ROWS, *(row for row in speed.HELD_OUT if not row.own)):
        assert row.settings() == rltune.preset(row.agent, row.env, "zoo"), row.name


def test_a_window_lies_between_two_updates(speed: ModuleType) -> None:
    for row in (*speed.ROWS, *speed.HELD_OUT):
        values = row.settings()
        rollout = values.get("n_steps", 0) * values.get("n_envs", 1)
        every = rollout or int(values.get("train_freq", 1))
        assert row.first % every == row.last % every == 0, row.name
        assert 0 <= row.first < row.last <= row.total


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
    assert [speed.ratio(pair) for pair in stored] == [3.0] * 3
    assert {pair["took"] for pair in stored} == {"numpy"}


def test_the_interval_of_a_median(speed: ModuleType) -> None:
    assert speed.interval([3.0, 1.0, 2.0, 5.0, 4.0]) == (1.0, 5.0, 0.9375)
    low, high, confidence = speed.interval([float(n) for n in range(10)])
    assert (low, high) == (1.0, 8.0)
    assert confidence == pytest.approx(0.978, abs=1e-3)


def test_a_held_out_slice_is_trained_and_its_ratio_is_not_printed(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    file = tmp_path / "speed.jsonl"
    command = [sys.executable, str(SCRIPTS / "benchmark_speed.py"), "held-out", "--quiet"]
    command += ["--slices", "1", "--env-steps", "32", "--results", str(file)]
    command += ["--only", "sac MountainCarContinuous"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == ""
    pair = json.loads(file.read_text())
    assert pair["ours"]["env_steps"] == pair["theirs"]["env_steps"] == 32
    assert pair["ours"]["cpu_seconds"] > 0


def test_a_profile_adds_up(speed: ModuleType) -> None:
    from speed.profiles import group_of, products, profiled
    from speed.rows import row_named

    row = row_named("dqn CartPole-v1")
    shares = profiled(lambda: sum(n * n for n in range(2_000_000)))
    assert sum(shares.values()) == pytest.approx(1)
    assert group_of(sys._getframe()) == "rest"
    shapes = products(row, 0, None)
    # Half an update an env step: three layers of 64 rows, the gradients of their weights and of the
    # inputs of two. The target network values the rows of 128 updates at once.
    of_learning = {shape: n for shape, n in shapes.items() if 64 in shape[1:]}
    assert sum(of_learning.values()) == pytest.approx(0.5 * (3 + 3 + 2))
    assert shapes[1, 64 * 128, 256, 256] == pytest.approx(1 / 256)
