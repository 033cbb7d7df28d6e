"""`rltune doctor`: what is installed, and what the machine offers."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import pytest
from rltune.cli import main
from rltune.installation import checks
from rltune.installation.checks import NOTE, OK, PROBLEM, findings


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what takes seconds."""
    for name in ("_libraries", "_training"):
        monkeypatch.setattr(checks, name, lambda: (OK, ""))


def said(name: str) -> tuple[str, str]:
    (found,) = [finding for finding in findings() if finding.name == name]
    return found.state, found.text


def test_a_good_installation(
    capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    by_name = {line.split()[1]: line for line in lines}
    assert len(by_name) == len(lines) == 9
    assert not any(line.startswith(PROBLEM) for line in lines)
    assert "torch" in by_name["packages"]
    assert "products" in by_name["libraries"]
    assert "env steps a second" in by_name["training"]
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("quick")
def test_packages_that_are_missing_or_too_old(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    version = importlib.metadata.version

    def other(name: str) -> str:
        if name == "optuna":
            raise importlib.metadata.PackageNotFoundError
        return "1.0" if name == "torch" else version(name)

    monkeypatch.setattr(importlib.metadata, "version", other)
    assert main(["doctor", "--json"]) == 1
    found = {finding["name"]: finding for finding in json.loads(capsys.readouterr().out)}
    assert found["packages"]["state"] == PROBLEM
    assert "torch is 1.0, but must be >=2.6, optuna is missing" in found["packages"]["text"]
    assert found["disk"]["state"] == OK


@pytest.mark.usefixtures("quick")
def test_what_is_little_or_odd_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    state, text = said("cores")
    assert state == NOTE
    assert "OMP_NUM_THREADS=64" in text
    monkeypatch.setattr(checks, "free_memory", lambda: 10**8)
    assert said("memory")[0] == NOTE
    monkeypatch.setattr(checks, "STORAGE", "/proc/nowhere/runs")  # has no room at all
    assert said("disk") == (NOTE, "0.0 GiB free in /proc: little for checkpoints")
    monkeypatch.setattr(checks, "STORAGE", "s3://bucket/runs")
    assert said("disk") == (OK, "runs go to s3://bucket/runs")


@pytest.mark.usefixtures("quick")
def test_a_check_that_fails_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> tuple[str, str]:
        raise OSError("libgomp is broken\nand more")

    monkeypatch.setattr(checks, "_training", fails)
    assert said("training") == (PROBLEM, "OSError: libgomp is broken")
