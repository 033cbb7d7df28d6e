"""The idle time of workers, from a search's history."""

from __future__ import annotations

import pandas as pd
import pytest
from rltune.analysis.idle import idle_shares

ROWS = [  # trial, iteration, time, idle, save, make
    (0, 1, 2.0, None, None, None),  # the first row of a process
    (0, 2, 4.0, 0.5, 0.2, 0.0),
    (1, 1, 3.0, 1.0, 0.1, 0.4),
    (1, 2, 5.5, 0.5, 0.0, 0.0),
]
COLUMNS = ["trial", "iteration", "time", "idle_seconds", "save_seconds", "make_seconds"]


def test_shares_are_parts_of_the_time_from_the_first_row_on() -> None:
    history = pd.DataFrame(ROWS[::-1], columns=COLUMNS).assign(seed=0)
    found = idle_shares(history)
    assert found is not None
    whole = 2.0 + (2.0 + 3.0 + 2.5)  # idle, and trained in the same rows
    assert found.saving == pytest.approx(0.3 / whole)
    assert found.making == pytest.approx(0.4 / whole)
    assert found.waiting == pytest.approx(1.3 / whole)
    assert found.whole == pytest.approx(2.0 / whole)


def test_histories_of_before_have_none() -> None:
    history = pd.DataFrame(ROWS, columns=COLUMNS).assign(seed=0)
    assert idle_shares(history.drop(columns="idle_seconds")) is None
    assert idle_shares(history.assign(idle_seconds=float("nan"))) is None
