"""The resource of a trial: how far it is, in env steps or by the seconds that it took.

Trials of one space differ up to 40-fold in price. With `seconds` among its options the scheduler
compares trials that took equally long: rungs stay fractions of the budget, and a trial is as far in
it as its seconds are in those of the option.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rltune.schedulers.registry import rungs_of

if TYPE_CHECKING:
    import pandas as pd
    from rltune.objectives.seeds import SeedPlan
    from rltune.runs.search_spec import SearchSpec
    from rltune.schedulers.base import Reports


class Resource:
    """The resource that trials have used.

    Args:
        budget: env steps of a whole budget
        seconds: of training and evaluation that stand for the whole budget; None: env steps count
        plan: which seeds a trial is judged on, and where
    """

    def __init__(
        self, budget: int, seconds: float | None = None, plan: SeedPlan | None = None
    ) -> None:
        self.budget = budget
        self.seconds = seconds
        self.plan = plan
        # trial -> point -> seed -> seconds
        self._times: dict[int, dict[int, dict[int, float]]] = {}

    @classmethod
    def of(
        cls,
        spec: SearchSpec,
        options: Mapping[str, Any] | None = None,
        *,
        read_history: Callable[[], pd.DataFrame] | None = None,
    ) -> Resource:
        """Return the resource of a search, with these options of a scheduler instead of its own.

        ``read_history`` returns the history that is recorded of it.
        """
        options = spec.scheduler_options if options is None else options
        resource = cls(spec.budget, options.get("seconds"), spec.seed_plan(rungs_of(spec)))
        if resource.seconds is not None and read_history is not None:
            history = read_history()
            rows = history[(history["role"] == "tune") & history["eval_return"].notna()]
            for row in rows[["trial", "seed", "iteration", "time"]].to_dict("records"):
                point = spec.points[row["iteration"] - 1]
                resource.note(row["trial"], row["seed"], point, row["time"])
        return resource

    def note(self, trial: int, seed: int, point: int, seconds: float) -> None:
        """Record the seconds that a trial has taken on a seed until a point in env steps."""
        if self.seconds is not None:
            self._times.setdefault(trial, {}).setdefault(point, {})[seed] = seconds

    def at(self, trial: int, point: int) -> int:
        """Return the trial's resource at the point, out of the budget: the mean over its seeds.

        Those are the seeds of every trial; with racing, others may come to it later.
        """
        known = self._times.get(trial, {}).get(point, {})
        seeds = known if self.plan is None else self.plan.seeds(self.plan.count)
        times = [known[seed] for seed in seeds if seed in known]
        return self.after(sum(times) / len(times)) if times else point

    def after(self, seconds: float) -> int:
        """Return the resource of a trial that took so many seconds."""
        assert self.seconds is not None
        return max(1, round(self.budget * seconds / self.seconds))

    def reports(self, reports: Reports) -> Reports:
        """Return the reports of trials by their resource instead of env steps."""
        return {
            trial: {self.at(trial, point): value for point, value in values.items()}
            for trial, values in reports.items()
        }
