"""Training histories: a row per (trial, seed, iteration), and a row per finished episode.

The driver appends every row to a journal (one JSON line, one write), so the row survives a kill
of the process at a cost of microseconds. Every few seconds the journal's rows become a parquet
part, and parts become larger ones:

    history/_journal-00000017.jsonl               the rows since the last part (with their episodes)
    history/part-00000016-00000016.parquet        the rows of journal 16
    history/part-00000000-00000015.parquet        the rows of journals 0 to 15
    episodes/part-...                             the same for the episodes

Parts name the journals they hold, so whatever a killed process left behind (a journal beside the
part made from it, parts beside the larger one made from them) is recognised and read once only.

Rows are never changed. A trial that starts again writes its rows with a higher ``attempt``; a row
is superseded when a later attempt of its trial and seed has a row of the same or an earlier
iteration. pandas and pyarrow can read the folders at any time; they see the journal's last rows
and the end of superseded ones only after ``compact``, ``read_history`` sees them at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rltune.agents.errors import StorageError, storage_error
from rltune.common.files import atomic_write
from rltune.common.reading import read_table, reading

if TYPE_CHECKING:
    import pandas as pd

KEYS = ["trial", "seed", "attempt", "iteration"]
REQUIRED = ("trial", "seed", "iteration", "env_steps")
HISTORY_COLUMNS: dict[str, type] = {  # all others are metrics: floats
    **{"trial": int, "seed": int, "role": str, "iteration": int, "env_steps": int},
    **{"mean_reward": float, "best_reward": float, "episode_reward": float},
    **{"step": int, "time": float, "timestamp": float},
    **{"eval_return": float, "eval_std": float, "eval_episodes": float},
    **{"env_steps_per_second": float, "attempt": int},
    **{"memory": float, "memory_in_use": float},  # parts of the node's, in a search
    **{"node": str, "engine": str},  # on which the row was made, and by what
    # Before the row its worker did not train: for how long, and what part of it was for what.
    **{"idle_seconds": float, "save_seconds": float, "make_seconds": float},
}
EPISODE_COLUMNS: dict[str, type] = {
    **{"trial": int, "seed": int, "role": str, "iteration": int, "env_steps": int},
    **{"episode_return": float, "length": int, "timestamp": float, "attempt": int},
}
ARROW = {int: pa.int64(), float: pa.float64(), str: pa.string()}
JOURNAL_ROWS, JOURNAL_SECONDS = 500, 10.0  # a journal becomes a part at the first of the two
PATIENCE = 20.0  # seconds that a reader tries to keep up with a writer
MERGE, LARGEST = 16, 256  # so many parts of equal width become one, up to this width


class HistoryWriter:
    """The one writer of a run's histories; it goes on where a killed writer stopped."""

    def __init__(self, run: str | os.PathLike[str], tidies: bool = True) -> None:
        """Open the histories of a run directory; StorageError if it is not writable.

        Args:
            run: the run directory
            tidies: whether `append` makes parts; else `tidy` does, to be called when there is time
        """
        self._tidies = tidies
        self._folders = (Path(run) / "history", Path(run) / "episodes")
        try:
            for folder in self._folders:
                folder.mkdir(parents=True, exist_ok=True)
            for folder in self._folders:
                _remove_leftovers(folder)
        except OSError as error:
            raise storage_error(error, run) from error
        self._journal: int | None = None  # the open file
        self._pending: list[dict[str, Any]] = []  # its lines
        with reading(self._folders[0]):
            self._recover()

    def _recover(self) -> None:
        history = self._folders[0]
        parts, journals = _listing(history)
        self._number = max((last for _, last, _ in parts), default=-1) + 1
        for number, path in journals:
            self._number = number
            self._pending = _read_journal(path)
            self._seal()
        rows = _read_parts(history, KEYS)
        self._attempt = int(pc.max(rows["attempt"]).as_py() or 0) + 1
        self._attempts: dict[tuple[int, int], int] = {}
        kept = _kept(rows).sort_by("iteration")
        keys = zip(kept["trial"].to_pylist(), kept["seed"].to_pylist(), strict=True)
        self._last = dict(zip(keys, kept["iteration"].to_pylist(), strict=True))

    def last_iteration(self, trial: int, seed: int) -> int:
        """Return the last iteration on record of a trial, 0 before the first."""
        return int(self._last.get((trial, seed), 0))

    def append(self, row: Mapping[str, Any], episodes: Iterable[Mapping[str, Any]] = ()) -> None:
        """Add one finished iteration and the episodes that ended in it, durably.

        ``row`` needs trial, seed, iteration and env_steps, an episode needs env_steps and length;
        episodes take the trial, seed, role and iteration of the row.
        An iteration that is on record already supersedes that row and those after it.
        Raises StorageError when it could not be written; then nothing was, and it may be repeated.
        """
        row = _clean({"step": row["env_steps"], **row}, HISTORY_COLUMNS)
        key, iteration = (row["trial"], row["seed"]), row["iteration"]
        if iteration <= self._last.get(key, 0):
            self.rewind(*key, iteration - 1)
        row["attempt"] = self._attempts.get(key, self._attempt)
        shared = {name: row.get(name) for name in ("trial", "seed", "role", "iteration", "attempt")}
        line = {
            "row": row,
            "episodes": [_clean({**e, **shared}, EPISODE_COLUMNS, extra=False) for e in episodes],
        }
        self._write_line(line)
        self._last[key] = iteration
        if self._tidies:
            self.tidy()

    def tidy(self) -> None:
        """Make parts of the journal's rows when it is full, or old; each row is safe before."""
        if self._journal is None:
            return
        full = len(self._pending) >= JOURNAL_ROWS
        if full or time.monotonic() - self._opened >= JOURNAL_SECONDS:
            with contextlib.suppress(StorageError):  # the journal has it; the next append retries
                self._seal()
                for folder in self._folders:
                    _merge(folder)

    def _write_line(self, line: dict[str, Any]) -> None:
        path = self._journal_path()
        data = (json.dumps(line) + "\n").encode()
        try:
            if self._journal is None:
                self._journal = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
                self._opened = time.monotonic()
            before = os.fstat(self._journal).st_size
            try:
                written = os.write(self._journal, data)
                while written < len(data):
                    written += os.write(self._journal, data[written:])
            except OSError:
                os.ftruncate(self._journal, before)
                raise
        except OSError as error:
            raise storage_error(error, path) from error
        self._pending.append(line)

    def _journal_path(self) -> Path:
        return self._folders[0] / f"_journal-{self._number:08d}.jsonl"

    def _seal(self) -> None:
        """Turn the journal into parts. The history's comes last: once it is there, all is."""
        name = f"part-{self._number:08d}-{self._number:08d}.parquet"
        if self._pending:
            episodes = [episode for line in self._pending for episode in line["episodes"]]
            _write_part(self._folders[1] / name, _table(episodes, EPISODE_COLUMNS))
            rows = [line["row"] for line in self._pending]
            _write_part(self._folders[0] / name, _table(rows, HISTORY_COLUMNS))
        # From here on the parts hold the rows, whether or not the journal can be removed.
        journal, path = self._journal, self._journal_path()
        self._number += 1
        self._journal, self._pending = None, []
        with contextlib.suppress(OSError):
            if journal is not None:
                os.close(journal)
            path.unlink(missing_ok=True)

    def rewind(self, trial: int, seed: int, iteration: int) -> None:
        """Say that a trial starts again after ``iteration``, superseding the rows after it."""
        self._attempt += 1
        self._attempts[trial, seed] = self._attempt
        self._last[trial, seed] = min(iteration, self.last_iteration(trial, seed))

    def compact(self) -> None:
        """Write each folder as one file, without the superseded rows."""
        self._seal()
        history, episodes = self._folders
        rows = _kept(_read_parts(history))
        kept = rows.select(KEYS)
        _replace_parts(episodes, _of_kept(_read_parts(episodes), kept))
        _replace_parts(history, rows)

    def close(self) -> None:
        """Compact, as far as the disk allows, and stop writing."""
        with contextlib.suppress(StorageError):  # every row is safe where it is
            self.compact()
        if self._journal is not None:
            os.close(self._journal)
            self._journal = None


# --------------------------------------------------------------------------------------- reading


def read_history(run: str | os.PathLike[str]) -> pd.DataFrame:
    """Return the history of the run directory ``run``, a row per (trial, seed, iteration).

    Exact whenever it is called: also beside a running writer, and after one was killed.
    """
    with reading(Path(run) / "history"):
        return _frame(_read(Path(run))[0], "iteration")


def read_episodes(run: str | os.PathLike[str]) -> pd.DataFrame:
    """Return the finished training episodes of the run directory ``run``, a row per episode."""
    with reading(Path(run) / "episodes"):
        return _frame(_read(Path(run))[1], "env_steps")


def _frame(table: pa.Table, last_key: str) -> pd.DataFrame:
    table = table.drop_columns(["attempt"])
    frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    return frame.sort_values(["trial", "seed", last_key], kind="stable", ignore_index=True)


def _read(run: Path) -> tuple[pa.Table, pa.Table]:
    """Return the kept rows and the kept episodes."""
    history, episodes = run / "history", run / "episodes"
    until = time.monotonic() + PATIENCE
    while True:
        try:
            parts, journals = _listing(history)
            episode_parts, _ = _listing(episodes)
            lines = [line for _, path in journals for line in _read_journal(path)]
            pending = {number for number, _ in journals}
            rows = _concat([read_table(path) for *_, path in parts], lines, "row")
            # The episodes of a journal that is still there are read from it, not from a part
            # that the writer has just made or was killed after making.
            tables = [read_table(path) for first, _, path in episode_parts if first not in pending]
            ended = _concat(tables, lines, "episodes")
            break
        except FileNotFoundError:  # the writer has just replaced this file by a larger one
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
    rows = _kept(rows)
    return rows, _of_kept(ended, rows.select(KEYS))


def _concat(tables: list[pa.Table], lines: list[dict[str, Any]], what: str) -> pa.Table:
    columns = HISTORY_COLUMNS if what == "row" else EPISODE_COLUMNS
    rows = [r for line in lines for r in ([line["row"]] if what == "row" else line["episodes"])]
    return pa.concat_tables([*tables, _table(rows, columns)], promote_options="permissive")


def _read_parts(folder: Path, columns: list[str] | None = None) -> pa.Table:
    tables = [read_table(path, columns) for *_, path in _listing(folder)[0]]
    kind = HISTORY_COLUMNS if folder.name == "history" else EPISODE_COLUMNS
    empty = _table([], kind).select(columns or list(kind))
    return pa.concat_tables([empty, *tables], promote_options="permissive")


def _read_journal(path: Path) -> list[dict[str, Any]]:
    """Return the complete lines; the last one may be torn, and then it was never acknowledged."""
    lines = path.read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines]


def _kept(rows: pa.Table) -> pa.Table:
    """Drop the rows that a later attempt of the same trial and seed supersedes."""
    if not len(rows):
        return rows
    trial, seed, attempt, iteration = (rows[name].to_numpy() for name in KEYS)
    order = np.lexsort((iteration, attempt, seed, trial))
    # In this order a row is superseded if a row of the same trial and seed with the same or a
    # lower iteration follows. Adding a step at each new trial or seed keeps these apart.
    new = np.diff(trial[order], prepend=0) | np.diff(seed[order], prepend=0)
    value = iteration[order] + np.cumsum(new != 0) * (iteration.max() + 1)
    lowest_from_here = np.minimum.accumulate(value[::-1])[::-1]
    kept = np.ones(len(rows), bool)
    kept[order[:-1]] = lowest_from_here[1:] > value[:-1]
    return rows.filter(pa.array(kept))


def _of_kept(episodes: pa.Table, kept: pa.Table) -> pa.Table:
    """Drop episodes of history rows that are superseded or were never finished."""
    ordered = episodes.append_column("_order", pa.array(range(len(episodes)), pa.int64()))
    joined = ordered.join(kept, KEYS, join_type="left semi")
    return joined.sort_by("_order").select(episodes.column_names)


# ----------------------------------------------------------------------------- files and columns


def _listing(folder: Path) -> tuple[list[tuple[int, int, Path]], list[tuple[int, Path]]]:
    """Return the parts (first, last, path) that no larger part covers, and the open journals."""
    names: list[str] = []
    while (found := sorted(os.listdir(folder) if folder.is_dir() else [])) != names:
        names = found  # until two listings agree: a rename may slip through a single one
    matches = [m for n in names if (m := re.fullmatch(r"part-(\d+)-(\d+)\.parquet", n))]
    ranges = sorted(((int(m[1]), int(m[2]), folder / m[0]) for m in matches), key=_widest_first)
    parts: list[tuple[int, int, Path]] = []
    for first, last, path in ranges:
        if not parts or first > parts[-1][1]:
            parts.append((first, last, path))
    journals = [
        (int(m[1]), folder / m[0])
        for name in names
        if (m := re.fullmatch(r"_journal-(\d+)\.jsonl", name))
    ]
    covered = [range(first, last + 1) for first, last, _ in parts]
    return parts, [j for j in journals if not any(j[0] in c for c in covered)]


def _widest_first(part: tuple[int, int, Path]) -> tuple[int, int]:
    return part[0], -part[1]


def _remove_leftovers(folder: Path) -> None:
    """Remove temporary files of killed writers, and files that a larger part covers."""
    parts, journals = _listing(folder)
    wanted = {path for *_, path in (*parts, *journals)}
    for path in folder.iterdir():
        ours = path.name.startswith(("part-", "_journal-"))
        if (ours and path not in wanted) or re.fullmatch(r"\.part-.*\.tmp", path.name):
            with contextlib.suppress(OSError):  # it is not read: a larger part covers it
                path.unlink()


def _write_part(path: Path, table: pa.Table) -> None:
    atomic_write(path, lambda temporary: pq.write_table(table, temporary))


def _merge(folder: Path) -> None:
    """Merge the last parts while MERGE in a row are equally wide: few files, little rewriting."""
    while True:
        parts = _listing(folder)[0][-MERGE:]
        widths = {last - first + 1 for first, last, _ in parts}
        if len(parts) < MERGE or len(widths) > 1 or widths.pop() >= LARGEST:
            return
        tables = [read_table(path) for *_, path in parts]
        table = pa.concat_tables(tables, promote_options="permissive")
        _write_part(folder / f"part-{parts[0][0]:08d}-{parts[-1][1]:08d}.parquet", table)
        _remove_leftovers(folder)


def _replace_parts(folder: Path, table: pa.Table) -> None:
    parts = _listing(folder)[0]
    if parts:
        _write_part(folder / f"part-{parts[0][0]:08d}-{parts[-1][1]:08d}.parquet", table)
        _remove_leftovers(folder)


def _clean(row: Mapping[str, Any], columns: dict[str, type], extra: bool = True) -> dict[str, Any]:
    """Return the row with every value of its column's type."""
    clean: dict[str, Any] = {name: int(row[name]) for name in REQUIRED}
    for name, value in row.items():
        if value is None or name in REQUIRED or not (extra or name in columns):
            continue
        try:
            clean[name] = columns.get(name, float)(value)
        except (TypeError, ValueError):
            warnings.warn(f"the metric {name!r} is no number; left out", stacklevel=3)
    return clean


def _table(rows: list[dict[str, Any]], columns: dict[str, type]) -> pa.Table:
    names = dict.fromkeys([*columns, *sorted({name for row in rows for name in row})])
    return pa.table(
        {
            name: pa.array([row.get(name) for row in rows], ARROW[columns.get(name, float)])
            for name in names
        }
    )
