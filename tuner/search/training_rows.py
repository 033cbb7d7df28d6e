"""Rows of a training as the stop rules see them: what is known of the training with each."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rltune.runs.history import HISTORY_COLUMNS

FIRST_EPISODES = 10  # the trial's beginning, with which its policy is compared


@dataclass(frozen=True)
class TrialRow:
    """A row of a training, and what is known of the training with it.

    Attributes:
        row: what it has; the history's other columns are missing
        since: env steps at which it begins
        mean: of the training episodes that ended in it; None: there was none
        varied: whether those episodes differed
        first: returns of the trial's first training episodes, `FIRST_EPISODES` at most
        largest: absolute return of an episode of the trial so far
        learned: whether the agent was updated in this row: it then has metrics of its own
        begun: whether it was updated in this row or an earlier one
    """

    row: dict[str, Any]
    since: int = 0
    mean: float | None = None
    varied: bool = False
    first: tuple[float, ...] = ()
    largest: float = 0.0
    learned: bool = False
    begun: bool = False

    def next(self, row: Mapping[str, Any], returns: Collection[float]) -> TrialRow:
        """Return the next row and what is known then; a row of a read history has NaN for gaps."""
        known = {name: v for name, v in row.items() if v is not None and v == v}
        learned = any(name not in HISTORY_COLUMNS for name in known)
        return TrialRow(
            row=known,
            since=self.row["env_steps"],
            mean=math.fsum(returns) / len(returns) if returns else None,
            varied=len(set(returns)) > 1,
            first=(*self.first, *returns)[:FIRST_EPISODES],
            largest=max(self.largest, *map(abs, returns), 0.0),
            learned=learned,
            begun=self.begun or learned,
        )

    def metric(self, names: Iterable[str]) -> float | None:
        """Return the metric, by the first name that the row has."""
        return next((float(self.row[name]) for name in names if name in self.row), None)


NOTHING = TrialRow({"iteration": 0, "env_steps": 0})  # before the first row


@functools.lru_cache(maxsize=1024)  # asked of the same episodes with every row
def _mean_and_error(values: tuple[float, ...]) -> tuple[float, float]:
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, math.sqrt(variance / len(values))


@dataclass
class TrainingRows:
    """The rows so far of a running trial on one seed."""

    rows: list[TrialRow] = field(default_factory=list)

    def add(self, row: Mapping[str, Any], returns: Collection[float]) -> None:
        """Take a row; one that comes again, after a retry, undoes those that followed it."""
        while self.rows and self.rows[-1].row["iteration"] >= row["iteration"]:
            self.rows.pop()
        self.rows.append((self.rows[-1] if self.rows else NOTHING).next(row, returns))

    def beginning(self) -> tuple[float, float] | None:
        """Return the mean of the first training episodes, and its error; None: too few yet."""
        first = self.rows[-1].first
        return _mean_and_error(first) if len(first) == FIRST_EPISODES else None

    def hopeless(
        self,
        names: Collection[str],
        is_bad: Callable[[TrialRow, float], bool],
        env_steps: float,
        n: int,
    ) -> list[float]:
        """Return a metric over the last rows, if it is bad in each, and the policy no better.

        No better than at the trial's beginning: in no evaluation, and in no row's training on
        average. Rows from before the first update say nothing about learning. The last row has to
        have the metric.

        Args:
            names: of the metric; rollouts may be longer than rows, so a row may be without it
            is_bad: judges a row by its metric
            env_steps: that the rows have to cover
            n: how many rows need the metric, and how many an evaluation

        Returns:
            the values, the last one last; none, if the trial has hope or too few rows
        """
        beginning = self.beginning()
        if beginning is None or self.rows[-1].metric(names) is None:
            return []
        values: list[float] = []
        evaluated = 0
        for seen in reversed(self.rows):
            if not seen.begun:
                break
            evaluation = seen.metric(("eval_return",))
            if any(r is not None and r > beginning[0] for r in (evaluation, seen.mean)):
                break
            value = seen.metric(names)
            if value is not None:
                if not is_bad(seen, value):
                    break
                values.append(value)
            evaluated += evaluation is not None
            covered = self.rows[-1].row["env_steps"] - seen.since
            if min(len(values), evaluated) >= n and covered >= env_steps:
                return values[::-1]
        return []
