"""Ray Tune's schedulers that decide as rltune's do."""

from __future__ import annotations

import math
from typing import Any

from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from rltune.agents.errors import UserError
from rltune.schedulers.base import Scheduler
from rltune.schedulers.registry import EARLY_STOPPING, make_scheduler
from rltune.tune.modes import direction_of

TIME = "env_steps"


def scheduler(
    budget: int,
    metric: str | None = None,
    mode: str = "max",
    *,
    name: str = "asha",
    time_attr: str = TIME,
    **options: Any,
) -> TuneScheduler:
    """Return a scheduler for Ray Tune.

    It stops nothing before enough trials have reached a rung, nor for a difference that is within
    its error, and decides the same after `tune.Tuner.restore`.

    Args:
        budget: the value of ``time_attr`` at which a trial is whole
        metric: of the results; None: the one of Tune's configuration
        mode: "max" or "min"
        name: of an early-stopping scheduler, as in ``rltune run --scheduler``
        time_attr: of the results, what ``budget`` counts
        options: of the scheduler, as in ``--scheduler-options``

    Raises:
        UserError: an unknown scheduler or option, or one out of its range.
    """
    if name not in EARLY_STOPPING:
        raise UserError(
            f"scheduler {name!r} can't be used in Ray Tune; write {', '.join(EARLY_STOPPING)}"
        )
    own = make_scheduler(name, budget, options, direction_of(mode))
    return TuneScheduler(own, metric, mode, time_attr)


class TuneScheduler(FIFOScheduler):  # type: ignore[misc]
    """Asks a scheduler of rltune's whether a trial goes on.

    Args:
        scheduler: that decides
        metric, mode: what it decides by
        time_attr: what counts
    """

    def __init__(self, scheduler: Scheduler, metric: str | None, mode: str, time_attr: str) -> None:
        super().__init__()
        self.scheduler, self.time_attr = scheduler, time_attr
        self._metric, self._mode = metric, mode
        self._numbers: dict[str, int] = {}  # by the trials' ids

    @property
    def metric(self) -> str | None:
        """What it decides by."""
        return self._metric

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Take over what Tune's configuration says, where nothing was said before."""
        if metric is not None and self._metric is not None and metric != self._metric:
            return False
        self._metric = self._metric or metric
        return self._metric is not None

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Return whether the trial goes on."""
        number = self._numbers.setdefault(trial.trial_id, len(self._numbers))
        metric = str(self._metric)
        for name in (metric, self.time_attr):
            if name not in result:
                raise UserError(f"a result of trial {trial.trial_id} has no {name!r}")
        value = float(result[metric])
        decision = self.scheduler.decide(
            number, int(result[self.time_attr]), value if math.isfinite(value) else math.nan
        )
        return str(TrialScheduler.STOP if decision == "stop" else TrialScheduler.CONTINUE)

    def debug_string(self) -> str:
        """Return the rungs in one line."""
        rungs = [f"{rung.budget:,}: {rung.entered}" for rung in self.scheduler.table()]
        return f"rltune's {self.scheduler.name}, trials at rungs {', '.join(rungs)}"
