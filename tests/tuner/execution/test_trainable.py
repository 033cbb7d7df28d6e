"""Jobs in a worker: which configuration they train with."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from rltune.agents.loop import checkpoint
from rltune.common.save_timer import SaveTimer
from rltune.execution import trainable
from rltune.execution.beside import Beside
from rltune.execution.messages import PAYLOAD, TASK
from rltune.execution.trainable import AgentTrainable
from searching import POPULATION
from serial import Serial


def make_task(folder: Path) -> Any:
    options = {name: value for name, value in POPULATION.items() if name != "name"}
    return Serial(folder, **options).driver.next_job()


def test_a_job_goes_on_from_a_checkpoint_with_its_own_configuration(
    tmp_path: Path, toy: None
) -> None:
    task = make_task(tmp_path)
    job = AgentTrainable({TASK: task})
    job.step()
    job.cleanup()
    rate = task["config"]["rate"] / 2
    new = {**task, "since": task["points"][0], "config": {**task["config"], "rate": rate}}
    job = AgentTrainable({TASK: new})
    job.step()
    assert job.agent is not None
    assert job.agent.env_steps == task["points"][1]
    assert job.agent.config.rate == rate
    job.cleanup()


def test_a_job_with_changes_follows_them(tmp_path: Path, toy: None) -> None:
    task = make_task(tmp_path)
    rate = task["config"]["rate"] / 2
    changes = [{"env_steps": task["points"][0], "config": {"rate": rate}}]
    job = AgentTrainable({TASK: {**task, "changes": changes}})
    for wanted in (task["config"]["rate"], rate, rate):
        job.step()
        assert job.agent is not None
        assert job.agent.config.rate == wanted
    job.cleanup()


def test_a_job_without_changes_compares_no_configurations(
    tmp_path: Path, toy: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise AssertionError

    task = make_task(tmp_path)
    monkeypatch.setattr(trainable, "with_config", fail)
    job = AgentTrainable({TASK: task})
    job.step()
    job.step()
    job.cleanup()


def test_an_evaluation_ends_when_it_is_clearly_too_low(tmp_path: Path, toy: None) -> None:
    search: dict[str, Any] = {"scheduler": "asha", "scheduler_options": {}, "agent": "toy:ToyAgent"}
    search |= {"space": {"space": {"quality": {"uniform": [0.0, 1.0]}}}}
    search |= {"eval_episodes": 6, "eval_share": 0.9, "objective": "last"}
    options = {**POPULATION, **search}
    options.pop("name")
    task = Serial(tmp_path, **options).driver.next_job()
    assert task is not None
    plan = task["evaluation_plan"]
    assert plan is not None
    assert plan["stops"] == [50, 100, 300]
    found = {}
    names = ("below", 1e9), ("above", -1e9), ("even", None), ("unknown", None), ("dear", -1e9)
    for name, cutoff in names:
        cutoffs = {} if name == "unknown" else {50: found.get("above", cutoff)}
        told = {**task, "evaluation_plan": {**plan, "cutoffs": cutoffs}}
        if name == "dear":  # there is nothing left to spare
            told["evaluation_plan"]["env_steps"] = 0.0
        job = AgentTrainable({TASK: {**told, "checkpoint": str(tmp_path / name)}})
        rows = [job.step()[PAYLOAD].row for _ in range(6)]
        job.cleanup()
        found[name] = rows[0]["eval_return"]
        episodes = [3 if name == "below" else 6, 6, 3, 3, 3, 6]
        if name == "dear":
            episodes = [3, 6, 1, 1, 1, 6]
        assert [row["eval_episodes"] for row in rows] == episodes
    assert found["above"] == found["even"] == found["unknown"] != found["below"]


def test_rows_say_how_long_their_worker_did_not_train(tmp_path: Path, toy: None) -> None:
    task = make_task(tmp_path)
    job = AgentTrainable({TASK: task})
    first = job.step()[PAYLOAD].row
    assert "idle_seconds" not in first  # how long a process took to start is not known to it
    time.sleep(0.1)  # the driver thinks
    second = job.step()[PAYLOAD].row
    assert 0.1 <= second["idle_seconds"] - second["save_seconds"] <= 5
    assert second["make_seconds"] == 0
    # The time between two jobs belongs to the first row of the next one.
    other = {**task, "job": "1", "checkpoint": str(tmp_path / "other.pt")}
    job.reset({TASK: other})
    third = job.step()[PAYLOAD].row
    assert third["iteration"] == 1
    assert 0 < third["make_seconds"] < third["idle_seconds"]
    job.cleanup()
    assert Path(task["checkpoint"]).exists()
    assert Path(other["checkpoint"]).exists()


def test_a_job_that_ends_has_its_checkpoint_before_it_says_so(
    tmp_path: Path, toy: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise AssertionError

    task = make_task(tmp_path)
    monkeypatch.setattr(Beside, "run", fail)
    job = AgentTrainable({TASK: {**task, "save_at": task["points"][:1]}})
    monkeypatch.setattr(SaveTimer, "is_due", False)
    job.step()
    assert checkpoint.read(task["checkpoint"])["extra"]["results"][-1]["iteration"] == 1
