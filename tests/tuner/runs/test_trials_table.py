"""trials.parquet: whatever the configurations hold, the table is written and its types hold."""

from __future__ import annotations

import os

import numpy as np
import pandas as pd
import pytest
from rltune.agents.errors import StorageError
from rltune.runs.trials_table import COLUMNS, read_trials, write_trials


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trials.parquet"


def test_rows_come_back(path):
    rows = [
        {
            **{"trial": 0, "state": "COMPLETE", "reason": "", "origin": "default", "hash": "abc"},
            **{"objective": 475, "budget_reached": 100_000, "seeds": [0, 1], "started": 1.5},
            "config.learning_rate": 1e-3,
        },
        {"trial": 1, "state": "WAITING"},
    ]
    write_trials(path, rows)
    frame = read_trials(path)
    assert frame["trial"].tolist() == [0, 1]
    assert frame["objective"].tolist()[0] == 475.0
    assert list(frame["seeds"][0]) == [0, 1]
    assert frame["config.learning_rate"].tolist()[0] == 1e-3
    assert pd.isna(frame["reason"][1])
    assert set(COLUMNS) <= set(frame)
    assert os.listdir(path.parent) == ["trials.parquet"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, None], [1, 2, None]),
        ([1, 0.5], [1.0, 0.5]),
        ([np.int64(3), np.float32(0.5)], [3.0, 0.5]),
        ([True, False], [True, False]),
        ([1, "auto"], ["1", "auto"]),
        ([True, 1], ["true", "1"]),
        ([[64, 64], (32,)], ["[64, 64]", "[32]"]),
        ([None, None], [None, None]),
        ([2**70, 1], [str(2**70), "1"]),
        (["a", None], ["a", None]),
        ([{"x": 1}, "lin_1e-3"], ['{"x": 1}', "lin_1e-3"]),
    ],
)
def test_configuration_columns_of_every_kind(path, values, expected):
    write_trials(path, [{"trial": i, "config.x": value} for i, value in enumerate(values)])
    column = read_trials(path)["config.x"]
    assert [None if pd.isna(v) else v for v in column] == expected


def test_types_do_not_depend_on_the_rows(path):
    full = {
        **{"trial": 1, "state": "FAIL", "reason": "NaN", "origin": "sampler", "hash": "x"},
        **{"objective": 1.0, "objective_mean": 1.0, "budget_reached": 10, "rung": 3, "seeds": [0]},
        **{"env_steps": 10, "seed_objectives": [1.0]},
        **{"role": "tune", "seconds": 1, "started": 1, "finished": 2, "retries": 0},
        "traceback": "Traceback ...",
    }
    assert set(full) == set(COLUMNS)
    schemas = []
    for rows in ([], [{"trial": 0}], [full], [full, {"trial": 0}]):
        write_trials(path, rows)
        schemas.append(read_trials_schema(path))
    assert all(schema == schemas[0] for schema in schemas)


def read_trials_schema(path):
    import pyarrow.parquet as pq

    return pq.read_schema(path)


def test_before_the_first_trial(path):
    assert len(read_trials(path)) == 0
    assert set(COLUMNS) == set(read_trials(path))


def test_a_full_disk_leaves_the_old_table(small_disk):
    path = small_disk / "trials.parquet"
    write_trials(path, [{"trial": 0}])
    noise = np.random.default_rng(0)
    with pytest.raises(StorageError, match="disk is full"):
        write_trials(path, [{"trial": i, "traceback": noise.bytes(99).hex()} for i in range(9999)])
    assert len(read_trials(path)) == 1
    assert os.listdir(small_disk) == ["trials.parquet"]
