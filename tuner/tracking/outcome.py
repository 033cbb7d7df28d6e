"""The outcome of a search, for the trackers that show it: answer, importances, files."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rltune.common.reading import load_yaml

LARGEST = 100_000_000  # bytes of a file that is sent away
WORTH = ("best/*", "report/index.html", "report/summary.md", "report/importances.csv")

Table = list[dict[str, Any]]


def trials(run: Path) -> Table:
    """Return a row per trial, as trials.parquet has them."""
    return _rows(run / "trials.parquet")


def importances(run: Path) -> Table:
    """Return the importances of the hyperparameters by fANOVA, largest first."""
    rows = _rows(run / "report" / "importances.parquet")
    mine = [row for row in rows if row["method"] == "fanova" and row["importance"] is not None]
    return sorted(mine, key=lambda row: -row["importance"])


def tournament(run: Path) -> Table:
    """Return a row per re-training: trial, seed, score."""
    path = run / "best" / "scores.yaml"
    scores = load_yaml(path) if path.is_file() else None
    return [
        {"trial": trial, "seed": seed, "score": score}
        for trial, seeds in (scores or {}).items()
        for seed, score in seeds.items()
    ]


def best_so_far(rows: Table) -> Iterator[dict[str, float]]:
    """Yield the objective of each trial that ran its whole budget, and the best up to it."""
    best = -math.inf
    for row in rows:
        value = row.get("objective")
        if row.get("state") == "COMPLETE" and value is not None:
            best = max(best, value)
            yield {"search/trial": row["trial"], "search/objective": value, "search/best": best}


def files(run: Path) -> Iterator[Path]:
    """Yield the files worth keeping beside the curves: the winner, and the report."""
    for pattern in WORTH:
        for path in sorted(run.glob(pattern)):
            if path.is_file() and path.stat().st_size <= LARGEST:
                yield path


def _rows(path: Path) -> Table:
    if not path.exists():
        return []
    import pyarrow.parquet as pq

    found = pq.read_table(path, partitioning=None).to_pylist()
    return [{name: _cell(value) for name, value in row.items()} for row in found]


def _cell(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
