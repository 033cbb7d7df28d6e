"""The trials table: trials.parquet, with a row per trial."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from rltune.common.files import atomic_write
from rltune.common.reading import read_table, reading
from rltune.objectives.goals import Goal
from rltune.study.lineage import news_of
from rltune.study.records import pareto_front

if TYPE_CHECKING:
    import pandas as pd
    from rltune.objectives.goals import Goal
    from rltune.study.records import TrialRecord

# The table is written at most this often (seconds), and in at most this part of the time.
WRITTEN_EVERY = 2.0
WRITTEN_SHARE = 0.02

COLUMNS: dict[str, pa.DataType] = {
    "trial": pa.int64(),
    "state": pa.string(),
    "reason": pa.string(),
    "origin": pa.string(),
    "hash": pa.string(),
    "objective": pa.float64(),
    "objective_mean": pa.float64(),
    "budget_reached": pa.int64(),
    "rung": pa.int64(),
    "env_steps": pa.int64(),  # over all seeds
    "seeds": pa.list_(pa.int64()),
    "seed_objectives": pa.list_(pa.float64()),  # at the end of the trial, in the seeds' order
    "role": pa.string(),
    "seconds": pa.float64(),
    "started": pa.float64(),  # unix seconds
    "finished": pa.float64(),
    "retries": pa.int64(),
    "traceback": pa.string(),
}
# Of what a study's record says beside.
ATTRS = (
    "objective_mean",
    "budget_reached",
    "env_steps",
    "seeds",
    "seed_objectives",
    "seconds",
    "started",
    "finished",
    "retries",
    "traceback",
)
NEEDED = ("trial",)


def write_trials(path: str | os.PathLike[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the table, wholly or not at all."""
    others = dict.fromkeys(name for row in rows for name in row if name not in COLUMNS)
    arrays = {
        name: pa.array([row.get(name) for row in rows], kind) for name, kind in COLUMNS.items()
    }
    arrays |= {name: _column([row.get(name) for row in rows]) for name in others}
    table = pa.table(arrays)
    atomic_write(path, lambda temporary: pq.write_table(table, temporary))


class TrialsTable:
    """trials.parquet of a search, written again and again while it runs."""

    def __init__(self, path: Path, goals: Sequence[Goal] = ()) -> None:
        self._path, self._goals = path, goals
        self._due = 0.0

    @property
    def is_due(self) -> bool:
        """Whether it has not been written for a while."""
        return time.monotonic() >= self._due

    def write(self, trials: Callable[[], list[TrialRecord]], force: bool = False) -> None:
        """Write the table of the trials; only now and then unless forced."""
        if not (force or self.is_due):
            return
        started = time.monotonic()
        records = trials()
        rows = [trial_row(record) for record in records]
        if self._goals:
            add_columns(rows, records, self._goals)
        write_trials(self._path, rows)
        done = time.monotonic()
        self._due = done + max(WRITTEN_EVERY, (done - started) / WRITTEN_SHARE)


def trial_row(record: TrialRecord) -> dict[str, Any]:
    """Return the trial's row of trials.parquet."""
    return {
        "trial": record.number,
        "state": record.state,
        "reason": record.reason,
        "origin": record.origin,
        "hash": record.hash,
        **{f"config.{name}": value for name, value in record.config.items()},
        "objective": record.value,
        "rung": max(record.intermediate, default=None),
        "role": "tune",
        **{name: record.attrs.get(name) for name in ATTRS},
        **({"schedule": news_of(record)} if "schedule" in record.attrs else {}),
    }


def read_trials(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Return the table; empty before the first trial."""
    if os.path.exists(path):
        table = read_table(Path(path))
        with reading(path):
            table = _checked(table)
    else:
        table = pa.table({name: pa.array([], kind) for name, kind in COLUMNS.items()})
    frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    return frame


def _checked(table: pa.Table) -> pa.Table:
    """Return the table with every column of its type; ValueError: a required column is missing."""
    for name, kind in COLUMNS.items():
        if name not in table.column_names:  # of an older version, unless it is needed
            if name in NEEDED:
                raise ValueError(f"no column {name}")
            table = table.append_column(name, pa.nulls(len(table), kind))
            continue
        column = table[name].cast(kind)
        if name in NEEDED and column.null_count:
            raise ValueError(f"{name} is empty in a row")
        table = table.set_column(table.column_names.index(name), name, column)
    return table


def _column(values: list[Any]) -> pa.Array:
    """Return a column of floats, integers or bools; text where they are mixed, or anything else."""
    plain = [v.item() if hasattr(v, "item") else v for v in values]
    kinds = {type(value) for value in plain if value is not None}
    for accepted, arrow in (
        ({int}, pa.int64()),
        ({int, float}, pa.float64()),
        ({bool}, pa.bool_()),
    ):
        if kinds and kinds <= accepted:
            with contextlib.suppress(OverflowError, pa.ArrowInvalid):
                return pa.array(plain, arrow)
    return pa.array([None if v is None else as_text(v) for v in plain], pa.string())


def as_text(value: Any) -> str:
    """Return the value as a column of text has it."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def add_columns(
    rows: Sequence[dict[str, Any]], trials: Sequence[TrialRecord], others: Sequence[Goal]
) -> None:
    """Add the other objectives, and the membership in the search's front, to the trials' rows."""
    best = {
        record.number
        for record in pareto_front(trials, [False, *(goal.minimize for goal in others)])
    }
    for row, trial in zip(rows, trials, strict=True):
        values = trial.others or [None] * len(others)
        row |= {f"objective.{g.name}": v for g, v in zip(others, values, strict=True)}
        row["on_front"] = trial.number in best
