"""A search that is killed again and again ends like one that never was.

The driver, the study, the histories and the trainings are real; only Ray's place is taken by a loop
in this process, so that a kill can hit every single write. `test_search.py` kills real processes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import rltune
from rltune.analysis.replay_sampler import proposed_again
from rltune.runs.history import HistoryWriter
from rltune.study.database import Database

SPACE: dict[str, Any] = {
    "space": {"quality": {"uniform": [0.0, 1.0]}, "at": {"int": [1, 1000]}},
    "fixed": {"luck": 0.1},
}
TRADE: dict[str, Any] = {
    "space": {"quality": {"uniform": [0.0, 1.0]}, "waste": {"uniform": [0.0, 1.0]}},
    "fixed": {"luck": 0.1},
}
TIMES = [
    "time",
    "timestamp",
    "env_steps_per_second",
    "attempt",
    "seconds",
    "started",
    "finished",
    "cpu_time",
    "memory",
    "memory_in_use",
    "idle_seconds",
    "save_seconds",
    "make_seconds",
]


class Killed(BaseException):
    """The stand-in for SIGKILL."""


class Death:
    """Lets so many writes happen; the next one, before or after it is done, is the last."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.dead = False
        self.writes = 0

    def around(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if self.dead:
                raise Killed
            self.writes += 1
            if self.left is None:
                return write(*args, **kwargs)
            self.left -= 1
            if self.left == 0:
                self.dead = True
                raise Killed
            result = write(*args, **kwargs)
            self.left -= 1
            if self.left == 0:
                self.dead = True
                raise Killed
            return result

        return wrapped


@pytest.fixture
def death(monkeypatch: pytest.MonkeyPatch, no_ray: None) -> Death:
    death = Death()
    monkeypatch.setattr(os, "replace", death.around(os.replace))
    for owner, name in (
        (HistoryWriter, "_write_line"),
        (Database, "add"),
        (Database, "start"),
        (Database, "report"),
        (Database, "set_attrs"),
        (Database, "finish"),
    ):
        monkeypatch.setattr(owner, name, death.around(getattr(owner, name)))

    return death


def start(folder: Path, **options: Any) -> rltune.SearchResult:
    values = {"budget": 90, "evaluations": 9, "trials": 12, "eval_episodes": 1, "finalists": 2}
    values |= {
        "test_seeds": 3,
        "wandb": "off",
        "report": False,
        "screen": "none",
        "name": "run",
        **options,
    }
    agent, space = values.pop("agent", "toy:ToyAgent"), values.pop("space", SPACE)
    search = rltune.Search(agent, "toy:ToyEnv", space, storage_path=folder, **values)  # type: ignore[arg-type]
    return search.run()


def frames(path: Path) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    run = rltune.open(path)
    tables = (run.trials(), run.history(), run.episodes())
    return tuple(table.drop(columns=TIMES, errors="ignore") for table in tables)  # type: ignore[return-value]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(
            {"eval_episodes": 6, "eval_share": 0.9}, id="few episodes", marks=pytest.mark.slow
        ),
        pytest.param({"seeds": "racing"}, id="racing", marks=pytest.mark.slow),
        pytest.param(
            {"sampler": "random", "scheduler": "median", "seeds": 2},
            id="two seeds",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {
                "agent": "toy_trade:TradeAgent",
                "space": TRADE,
                "against": "-price",
                "trials": 8,
                "test_seeds": 2,
            },
            id="two objectives",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_kills_change_nothing(tmp_path: Path, death: Death, options: dict[str, Any]) -> None:
    whole = start(tmp_path / "whole", **options)
    writes = death.writes
    rng = np.random.default_rng(0)
    path = tmp_path / "killed" / "run"
    for kill in range(20):
        death.left, death.dead = int(rng.integers(1, writes // 6)), False
        with contextlib.suppress(Killed):
            if (path / "run.yaml").exists():
                rltune.resume(path, screen="none")
            else:
                start(tmp_path / "killed", **options)
            assert kill > 5, "it was never killed"
        if death.dead:
            frames(path)  # readable at every moment
    death.left, death.dead = None, False
    again = rltune.resume(path, screen="none")
    for expected, found in zip(frames(whole.path), frames(again.path), strict=True):
        pd.testing.assert_frame_equal(found, expected)
    proposed, proposals = proposed_again(path)
    assert proposed == proposals > 5
    assert again.best == whole.best
    assert again.answer == whole.answer
    if "eval_share" in options:
        history = again.history()
        rung = history[(history["role"] == "tune") & (history["iteration"] == 3)]
        assert set(rung["eval_episodes"]) == {3, 6}  # some were clear at the second rung
    if "against" in options:
        pd.testing.assert_frame_equal(again.front(), whole.front())
