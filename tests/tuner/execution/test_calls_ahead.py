"""Calls ahead: workers train on while the driver looks at their last row, where it can't end."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from rltune.execution.ahead import GOES_ON, IS_SHORT, CallsAhead
from rltune.execution.messages import PAYLOAD, TASK, JobFailure
from rltune.execution.trainable import AgentTrainable
from rltune.search.driver import Driver
from searching import POPULATION, SPACE, check_history, search
from serial import Serial

TOY: dict[str, Any] = {**POPULATION, "agent": "toy:ToyAgent", "space": SPACE}
TOY = {k: v for k, v in TOY.items() if k not in ("name", "scheduler_options")}


def make_task(folder: Path, **options: Any) -> Any:
    return Serial(folder, **{**TOY, "scheduler": "asha", **options}).driver.next_job()


def test_a_call_ahead_is_refused_after_a_row_that_is_judged(tmp_path: Path, toy: None) -> None:
    task = make_task(tmp_path)
    assert task["judged_at"] == [50, 100, 300]
    job = AgentTrainable({TASK: {**task, "judged_at": [100, 300]}})
    rows, refused = [], []
    while not rows or not rows[-1].finished:
        result = job.train(ahead=True)
        if not result:
            refused.append(rows[-1].row["env_steps"])
            assert job.train(ahead=True) == {}
            result = job.train()
        rows.append(result[PAYLOAD])
        assert result[GOES_ON] == (rows[-1].row["env_steps"] not in (100, 300))
    assert refused == [100]
    assert [row.iteration for row in rows] == [1, 2, 3, 4, 5, 6]
    assert job.train(ahead=True) == {}
    job.cleanup()


@pytest.mark.parametrize("mode", ["mistake", "raise"])
def test_a_job_that_has_failed_does_nothing_ahead(
    tmp_path: Path, toy: None, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv("TOY_FOLDER", str(tmp_path))
    task = make_task(tmp_path, scheduler="none")
    job = AgentTrainable({TASK: {**task, "config": {**task["config"], "mode": mode, "at": 7}}})
    assert job.train()[GOES_ON]
    if mode == "raise":
        with pytest.raises(RuntimeError, match="broke"):
            job.train(ahead=True)
    else:
        assert isinstance(job.train(ahead=True)[PAYLOAD], JobFailure)
    assert job.train(ahead=True) == {}
    job.reset({TASK: task})
    assert job.train(ahead=True)[PAYLOAD].iteration == 1  # of the next job
    job.cleanup()


def test_every_row_may_end_a_job_that_is_judged_by_its_seconds(tmp_path: Path, toy: None) -> None:
    assert make_task(tmp_path)["judged_at"] == [50, 100, 300]
    by_time = make_task(tmp_path / "by_time", scheduler_options={"seconds": 10})
    assert by_time["judged_at"] == by_time["points"]


class Actor:
    """Counts the calls that it gets."""

    def __init__(self) -> None:
        self.train, self.calls = self, list[dict[str, Any]]()

    def remote(self, **named: Any) -> int:
        self.calls.append(named)
        return len(self.calls)


def test_workers_with_long_iterations_get_no_calls_ahead() -> None:
    ahead, worker, actor = CallsAhead(), AgentTrainable, Actor()
    told: list[Any] = []
    heard = ahead.listening(lambda worker, result: told.append(result))
    ahead.give(worker, actor)
    assert ahead.take(worker) is None  # nothing is known of it yet
    heard(worker, {GOES_ON: True, IS_SHORT: True, "row": 1})
    assert told == [{"row": 1}]
    ahead.give(worker, actor)
    assert actor.calls == [{"ahead": True}]
    assert (ahead.take(worker), ahead.take(worker)) == (1, None)
    ahead.give(worker, actor)
    heard(worker, {GOES_ON: False, IS_SHORT: True})
    assert ahead.take(worker) is None  # it was refused
    heard(worker, {GOES_ON: True, IS_SHORT: False})
    ahead.give(worker, actor)
    assert ahead.take(worker) is None
    assert len(actor.calls) == 2


@pytest.mark.slow
def test_a_slow_driver_keeps_no_worker_waiting_between_rows(
    tmp_path: Path, toy: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, on_result = 0.1, Driver.on_result

    def thoughtful(driver: Driver, *args: Any) -> bool:
        time.sleep(slow)
        return on_result(driver, *args)

    monkeypatch.setattr(Driver, "on_result", thoughtful)
    space = {"space": {"quality": {"uniform": [0.5, 1.0]}}, "fixed": {"sleep": 0.2}}
    result = search(
        tmp_path, space, budget=90, evaluations=9, trials=2, concurrency=1, objective="last",
        eval_episodes=1, test_seeds=2,
    )  # fmt: skip
    history = result.history()
    check_history(history)
    judged = history["env_steps"].shift().isin([10, 30]) & (history["role"] == "tune")
    first = history["iteration"] == 1
    waits = history["idle_seconds"]
    assert waits[judged & ~first].min() >= slow
    # The first rows of a search have no calls ahead: how long a row takes is not known yet.
    later = history.sort_values("timestamp").index[6:]
    assert waits[~judged & ~first].loc[lambda rows: rows.index.isin(later)].median() < slow / 2


@pytest.mark.parametrize("known", [0, 1, 2])
def test_a_checkpoint_made_ahead_holds_the_row_before_it_too(
    tmp_path: Path, toy: None, known: int
) -> None:
    task = make_task(tmp_path, scheduler="none")
    job = AgentTrainable({TASK: task})
    rows = [job.train()[PAYLOAD], job.train(ahead=True)[PAYLOAD]]
    job.cleanup()  # the driver was killed; of these rows, it has as many as are known
    again = AgentTrainable({TASK: {**task, "since": [0, *task["points"]][known]}})
    came = [again.train()[PAYLOAD] for _ in range(3 - known)]
    again.cleanup()
    assert [result.iteration for result in came] == [1, 2, 3][known:]
    assert [result.restored for result in came] == [True] * (2 - known) + [False]
    assert [result.row for result in came[:-1]] == [result.row for result in rows[known:]]
