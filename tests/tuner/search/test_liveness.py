"""Workers that hang, and environments that do not answer, as the driver sees them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from rltune.execution.messages import JobFailure
from searching import POPULATION
from serial import Serial

pytestmark = pytest.mark.usefixtures("toy")


def test_a_worker_that_has_not_reported_for_long_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {name: value for name, value in POPULATION.items() if name != "name"}
    driver = Serial(tmp_path, **options).driver
    tasks = [driver.next_job(), driver.next_job()]
    first, second = (task["job"] for task in tasks if task is not None)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def pass_by(seconds: int) -> list[str]:
        """Look for hanging workers every ten seconds."""
        nonlocal now
        found = list[str]()
        for _ in range(seconds // 10):
            now += 10
            found += driver.hanging()
        return found

    assert pass_by(5000) == []  # none has begun
    driver.on_start(first)
    assert pass_by(500) == []
    driver.on_start(second)
    now += 3000  # the laptop's lid was closed
    assert driver.hanging() == []
    assert pass_by(150) == [first]  # and that once
    driver.on_retry(first, JobFailure("worker died", ""))
    assert "hung: nothing came of it for 10:00; trying again" in driver.parts.view.messages[-1]
    driver.liveness.longest_silence = 100.0  # then 50 minutes are too much, not 10
    assert pass_by(2800) == []
    assert pass_by(200) == [second]
    driver.on_failure(second, JobFailure("worker died", ""))
    reasons = [trial.reason for trial in driver.parts.study.trials()]
    assert "hung: nothing came of it for 50:00" in reasons


def test_an_environment_that_does_not_answer_is_told_once(tmp_path: Path) -> None:
    options = {name: value for name, value in POPULATION.items() if name != "name"}
    driver = Serial(tmp_path, **options).driver
    tasks = [driver.next_job(), driver.next_job()]
    for task in tasks:
        assert task is not None
        driver.on_silence(task["job"], "reset()")
    said = "trial 0: nothing has come from the environment's reset() for 10 s"
    assert list(driver.parts.view.messages) == [said]
    assert [training.silent for training in driver.parts.view.running.values()] == [
        "reset()",
        "reset()",
    ]
    driver.on_silence("0", "")
    assert [training.silent for training in driver.parts.view.running.values()] == ["", "reset()"]
    driver.on_silence("77", "reset()")  # it has ended
