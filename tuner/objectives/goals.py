"""Multi-objective search: the objectives beside the first one, and the values of trials in them.

They are costs (`COSTS`), or metrics of the history's evaluations, put together like the first
objective (`metrics.py`). Values are kept as they are reported, each with its direction: seconds
are seconds, the lower the better.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import UserError
from rltune.objectives.metrics import metric_of, objective_of
from rltune.objectives.seeds import judged

if TYPE_CHECKING:
    from rltune.objectives.seeds import TrialSeeds

# Of a training so far, its evaluations included -> the history's column.
COSTS = {"seconds": "time", "cpu_seconds": "cpu_time"}
STEPS = "env_steps"


@dataclass(frozen=True)
class Goal:
    """An objective: its name, and whether lower is better."""

    name: str
    minimize: bool

    @property
    def is_cost(self) -> bool:
        """Whether it adds up while a trial is trained."""
        return self.name in COSTS

    @property
    def direction(self) -> str:
        """Its direction, as Optuna writes it."""
        return "minimize" if self.minimize else "maximize"


def parse_goal(text: str) -> Goal:
    """Return the objective that ``--against TEXT`` names; UserError: there is none."""
    name = text.removeprefix("-")
    if name == STEPS:
        raise UserError(
            "--against env_steps: all whole budgets are the same, so the front is a view on an "
            "ordinary search; run that, then rltune show RUN --against env_steps."
        )
    if name in COSTS and text != name:
        raise UserError(f"--against {text}: a cost is always the lower the better; write {name}.")
    if not name:
        raise UserError("--against needs a cost (seconds, cpu_seconds) or the name of a metric.")
    return Goal(name, name in COSTS or text != name)


class FurtherObjectives:
    """The objectives of a search beside the first one; none in most searches.

    Args:
        goals: which
        objective: how evaluations of a metric become one number, see `metrics.py`
        over_seeds: how several seeds do, see `seeds.judged`; of costs it is the mean

    Attributes:
        values: trial -> env_steps -> values, of all that was judged
    """

    def __init__(
        self, goals: Sequence[Goal] = (), objective: str = "last", over_seeds: str = "iqm"
    ) -> None:
        self.goals = list(goals)
        self.objective = objective
        self.over_seeds = over_seeds
        self.values: dict[int, dict[int, tuple[float, ...]]] = {}

    def restore(self, known: Mapping[int, Mapping[int, tuple[float, ...]]]) -> None:
        """Take over what the study knows: trial -> env_steps -> values."""
        self.values = {trial: dict(values) for trial, values in known.items()}

    def measure(self, row: Mapping[str, Any]) -> list[float]:
        """Return the values in an evaluated row of the history, one an objective.

        Raises:
            ValueError: it isn't reported, or is not finite.
        """
        found = [metric_of(row, COSTS.get(goal.name, goal.name)) for goal in self.goals]
        for goal, value in zip(self.goals, found, strict=True):
            if not math.isfinite(value):
                raise ValueError(f"{goal.name} is {value}")
        return found

    def total(self, measured: Sequence[Sequence[float]]) -> tuple[float, ...]:
        """Return the value of each after these evaluations of one training, at least one."""
        return tuple(
            column[-1]
            if goal.is_cost
            else _signed(goal, objective_of([_signed(goal, v) for v in column], self.objective))
            for goal, column in zip(self.goals, zip(*measured, strict=True), strict=True)
        )

    def judge(self, trial: int, seeds: TrialSeeds, point: int) -> tuple[float, ...]:
        """Return the value of each over the trial's seeds at a point that all have reached."""
        if not self.goals:
            return ()
        totals = [
            self.total([run.measured[at] for at in sorted(run.measured) if at <= end])
            for run in map(seeds.run, seeds.seeds)
            if (end := run.point_at(point)) is not None
        ]
        found = tuple(
            sum(column) / len(column)
            if goal.is_cost
            else _signed(goal, judged([_signed(goal, v) for v in column], self.over_seeds))
            for goal, column in zip(self.goals, zip(*totals, strict=True), strict=True)
        )
        self.values.setdefault(trial, {})[point] = found
        return found


def _signed(goal: Goal, value: float) -> float:
    """Return the value as if it were to be maximised, or such a value as it was."""
    return -value if goal.minimize else value
