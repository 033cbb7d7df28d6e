"""Earlier searches for a warm start, read into the dimensions of a new one (`--from RUN`).

Read once, when the search begins: what was taken over lies in the run directory then, and a resume
does not need the earlier runs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from rltune.agents.errors import UserError
from rltune.common.formats import plural
from rltune.common.reading import reading
from rltune.runs.directory import RunDir
from rltune.runs.reader import read_run
from rltune.runs.trials_table import as_text
from rltune.samplers.warm_start import Earlier, ranks
from rltune.space.dimensions import same
from rltune.study.distributions import nearest
from rltune.study.reasons import blames
from rltune.study.records import merit

if TYPE_CHECKING:
    from rltune.space.dimensions import Dimension
    from rltune.space.space import Space

FILE = "warm_start.json"


@dataclass(frozen=True)
class Taken:
    """The trials taken over from an earlier search, for people to read.

    Attributes:
        run: its name
        path: its run directory
        agent, env: what it was about
        trials: that were taken over
        left_out: that tell something, but lie outside of the ranges of this search
        shared: dimensions whose values are the earlier ones
        filled: dimensions that it does not have; they are at the agent's default
    """

    run: str
    path: str
    agent: str
    env: str
    trials: int
    left_out: int
    shared: list[str]
    filled: list[str]

    def __str__(self) -> str:
        text = f"{plural(self.trials, 'trial')} of {self.run} ({self.agent} on {self.env})"
        if self.left_out:
            text += f", {self.left_out} outside of the ranges left out"
        return text + (f", without {', '.join(self.filled)}" if self.filled else "")


def read_earlier(
    runs: Sequence[str | os.PathLike[str]], space: Space, defaults: Mapping[str, Any]
) -> tuple[list[Earlier], list[Taken]]:
    """Read the trials of earlier searches, each search's ranked among themselves.

    Those of equal budget are ranked by their objective, and all of them after those that got
    further; the winner of the tournament is the best. Dimensions that a search does not have are at
    the default.

    Args:
        runs: run directories, their names, or latest
        space: of the new search
        defaults: the agent's configuration

    Raises:
        UserError: there is no such search, or nothing in it is of use here.
    """
    pairs = [_read(os.fspath(run), space, defaults) for run in runs]
    return [earlier for earlier, _ in pairs], [taken for _, taken in pairs]


def take_over(
    run: RunDir, runs: Sequence[str], space: Space, defaults: Mapping[str, Any]
) -> list[Earlier]:
    """Return the earlier searches of this one; read and kept when it begins, then read back."""
    path = run.path / FILE
    if not path.exists() and runs:
        earlier, taken = read_earlier(runs, space, defaults)
        run.write_text(FILE, json.dumps([asdict(search) for search in earlier]))
        run.content["warm_start"] = [asdict(search) for search in taken]
        run.write_yaml("run.yaml", run.content)
    if not path.exists():
        return []
    with reading(path):
        kept = json.loads(path.read_text())
        return [Earlier(k["name"], tuple(k["values"]), tuple(k["ranks"])) for k in kept]


def _read(path: str, space: Space, defaults: Mapping[str, Any]) -> tuple[Earlier, Taken]:
    run = read_run(path)
    if run.rundir.kind != "search":
        raise UserError(f"--from {path}: it is a training; only a search can be taken over.")
    winner = (run.answer or {}).get("winner")
    table: list[dict[str, Any]] = run.trials().to_dict("records")  # type: ignore[assignment]
    rows = [row for row in table if _merit(row, winner) is not None]
    if not rows:
        raise UserError(f"--from {path}: none of its trials has ended with a value yet.")
    names = {name for row in rows for name in space.dimensions if _known(row, name)}
    if not names:
        searched = ", ".join(space.dimensions)
        raise UserError(f"--from {path}: it has none of what is searched here ({searched}).")
    values, merits = [], []
    for row in rows:
        try:
            values.append(space.suggest(lambda d: _value(d, row, defaults)))  # noqa: B023
        except LookupError:  # outside of the ranges
            continue
        merits.append(_merit(row, winner))
    if not values:
        raise UserError(
            f"--from {path}: none of its {plural(len(rows), 'trial')} lies in the ranges that are "
            "searched here."
        )
    taken = Taken(
        run=run.name,
        path=str(run.path),
        agent=str(run.spec.get("agent")),
        env=str(run.spec.get("env")),
        trials=len(values),
        left_out=len(rows) - len(values),
        shared=[name for name in space.dimensions if name in names],
        filled=[name for name in space.dimensions if name not in names],
    )
    return Earlier(run.name, tuple(values), tuple(ranks(merits))), taken


def _merit(row: Mapping[str, Any], winner: int | None) -> tuple[int, float, float] | None:
    """Return the sort key of a trial, the winner above all others; None: it tells nothing."""
    value, state = row["objective"], row["state"]
    if state == "FAIL":
        return merit(state, 0) if blames(row["reason"]) else None
    if value is None or value != value or state not in ("COMPLETE", "PRUNED"):
        return None
    if row["trial"] == winner:
        return 3, 0, 0
    return merit(state, value, row["rung"])


def _known(row: Mapping[str, Any], name: str) -> bool:
    value = row.get(f"config.{name}")
    return value is not None and value == value  # NaN: the configuration doesn't have it


def _value(dimension: Dimension, row: Mapping[str, Any], defaults: Mapping[str, Any]) -> Any:
    """Return the trial's value, or the default; LookupError: it is outside of the dimension."""
    name = dimension.name
    known = _known(row, name)
    value = row[f"config.{name}"] if known else defaults.get(name)
    if isinstance(value, np.generic):
        value = value.item()
    if dimension.kind == "choice":
        for choice in dimension.choices:
            if same(choice, value) or as_text(choice) == as_text(value):
                return choice
        raise LookupError(name)
    number = nearest(dimension, value)
    outside = number in (dimension.low, dimension.high) and not dimension.contains(value)
    if number is None or (known and outside):
        raise LookupError(name)
    return int(number) if dimension.kind in ("int", "pow2") else number
