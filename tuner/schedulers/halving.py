"""Successive halving: rungs at which the best part of the trials goes on.

The part that ASHA, its form for several objectives and the median rule have in common, made safe
for noisy learners: a rung stops nothing before enough trials have reached it, NaN is stopped and
never recorded, and the rungs are rebuilt from the study (`restore`), so a search that was killed
decides like one that was not.

Equal values are put in an order: by the return of training episodes, then by chance, which depends
on the trial's number alone. Where many trials are at the floor (-500 on Acrobot), a rung would
otherwise stop none of them.
"""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rltune.agents.errors import UserError
from rltune.common.formats import rung_at
from rltune.schedulers.base import Place, Rung, Scheduler
from rltune.schedulers.options import SchedulerOption

if TYPE_CHECKING:
    from rltune.schedulers.base import Reports

# Options of all that compare trials at rungs; of `seconds`, see `resource.py`.
COMPARING = {
    "min_population": SchedulerOption(5, 1, whole=True),
    "margin": SchedulerOption(1, 0),
    "seconds": SchedulerOption(None, 0.001),
}
OPTIONS = {
    "reduction_factor": SchedulerOption(3, 1.1),
    "n_rungs": SchedulerOption(3, 1, whole=True),
    **COMPARING,
}


def default_rungs(budget: int, reduction_factor: float = 3, n_rungs: int = 3) -> list[int]:
    """Return the rungs up to the whole budget, each `reduction_factor` times the one before.

    50,000 env steps give 5,556, 16,667 and 50,000.
    """
    rungs = {round(budget / reduction_factor**k) for k in range(n_rungs)}
    return sorted(rung for rung in rungs if rung >= 1)


class Standing(NamedTuple):
    """A trial's place in the order of a rung: by its value; the rest decides between equal ones."""

    value: float  # as if to be maximised
    training: float  # mean return of training episodes
    chance: float

    @classmethod
    def of(cls, trial: int, value: float, training: float | None) -> Standing:
        """Return the standing of a trial."""
        if training is None or not math.isfinite(training):
            training = -math.inf
        return cls(value, training, random.Random(trial).random())


class Halving(Scheduler):
    """At each rung, the best `1 / reduction_factor` of the trials that have reached it go on.

    A trial enters a rung with its first value at or above the rung's budget, and each rung once. A
    trial that jumps over rungs enters the highest that it has reached, alone: its value says
    nothing about the lower ones, and they are not filled in later. After a resume a trial reports
    at the points that it reported at before.

    Args:
        rungs: budgets in env steps at which trials are compared. The last is the whole budget:
            values are recorded there for the table, no trial is stopped.
        reduction_factor: one in so many goes on
        min_population: values that a rung needs before it stops a trial, the trial's own included
        direction: "maximize" or "minimize"
        margin: standard errors by which a value may miss the cutoff, so that only trials are
            stopped that are unlikely to be among the best
        seconds: that stand for the whole budget, where seconds count (`resource.py`); a trial that
            has used them up is stopped

    Raises:
        UserError: no rungs, or an argument out of its range.
    """

    def __init__(
        self,
        rungs: Sequence[int],
        reduction_factor: float = 3,
        min_population: int = 5,
        direction: str = "maximize",
        margin: float = 1,
        seconds: float | None = None,
    ) -> None:
        if not rungs or min(rungs) < 1:
            raise UserError(f"the scheduler needs rungs of at least 1 env step; got {list(rungs)}")
        if not reduction_factor > 1:
            raise UserError(f"reduction_factor must be greater than 1; got {reduction_factor}")
        if min_population < 1:
            raise UserError(f"min_population must be at least 1; got {min_population}")
        self.rungs = sorted(set(rungs))
        self.reduction_factor = reduction_factor
        self.min_population = min_population
        self.margin = margin
        self.seconds = seconds
        self._sign = {"maximize": 1.0, "minimize": -1.0}[direction]
        self._clear()

    def _clear(self) -> None:
        # rung -> trial -> (env_steps, value), and the last report of each trial
        self._entries: dict[int, dict[int, tuple[int, float]]] = {r: {} for r in self.rungs}
        # rung -> the ranks of its entries, the worst first, and that of each trial
        self._order: dict[int, list[Standing]] = {r: [] for r in self.rungs}
        self._standings: dict[int, dict[int, Standing]] = {r: {} for r in self.rungs}
        self._last: dict[int, int] = {}
        self._stopped: dict[int, int] = {}
        self._reasons: dict[int, str] = {}

    def decide(
        self,
        trial: int,
        env_steps: int,
        value: float | None,
        standard_error: float = 0.0,
        training: float | None = None,
    ) -> str:
        """Take a trial's value at `env_steps` (see `resource.py`); return "continue" or "stop".

        NaN and infinite values are stopped at once and never recorded. A missing value (None) is
        judged as the worst, and the rung stays open for the next value. A report that a resumed
        trial repeats is recorded again and judged only if it was the trial's last: the earlier ones
        were decided.
        """
        if value is not None and not math.isfinite(value):
            return self._stop(
                trial, self._rung_at(env_steps), f"{value} at {env_steps:,} env_steps"
            )
        rung = self._enter(trial, env_steps, value, training)
        if rung is None:
            return "continue"
        if rung == self.rungs[-1]:
            if self.seconds is None:
                return "continue"
            return self._stop(trial, rung, f"stopped: its {self.seconds:,.6g} seconds are used up")
        why = self._shortfall(trial, rung, value, self.margin * standard_error)
        if why is None:
            return "continue"
        took = f" ({rung_at(rung, self._seconds_at(rung))})" if self.seconds else ""
        return self._stop(trial, rung, f"stopped at rung {rung:,}{took}: {why}")

    def cutoff(self, trial: int, env_steps: int) -> float | None:
        """Return the value with which a trial would go on; see `Scheduler.cutoff`."""
        rung = self._rung_at(env_steps)
        if rung is None or rung == self.rungs[-1] or self.seconds is not None:  # not known before
            return None
        order, own = self._order[rung], self._standings[rung].get(trial)
        others = len(order) - (own is not None)
        go_on = math.ceil((others + 1) / self.reduction_factor)
        if others + 1 < self.min_population or go_on > others:
            return None
        if own is not None and own >= order[-go_on]:
            go_on += 1  # the last of the others to go on
        return self._sign * order[-go_on].value

    def is_among_best(self, trial: int) -> bool:
        """Whether a trial would go on at the last rung, too, if there were a further one."""
        entries = self._entries[self.rungs[-1]]
        if trial not in entries or len(entries) < self.min_population:
            return False
        return self._shortfall(trial, self.rungs[-1], entries[trial][1], 0.0) is None

    def reason(self, trial: int) -> str:
        """Return the reason why the trial was stopped; empty when it was not."""
        return self._reasons.get(trial, "")

    def restore(
        self, reports: Reports, stopped: Iterable[int] = (), training: Reports | None = None
    ) -> None:
        """Rebuild the rungs from the study's intermediate values, forgetting all else."""
        self._clear()
        for trial, values in reports.items():
            returns = (training or {}).get(trial, {})
            for env_steps in sorted(values):
                if math.isfinite(values[env_steps]):
                    self._enter(trial, env_steps, values[env_steps], returns.get(env_steps))
        for trial in stopped:
            rung = self._rung_at(self._last.get(trial, 0))
            if rung is not None:
                self._stopped[trial] = rung

    def table(self) -> list[Rung]:
        """Return the rungs, smallest budget first."""
        stopped = list(self._stopped.values())
        return [
            Rung(
                budget=rung,
                entered=len(self._entries[rung]),
                stopped=stopped.count(rung),
                cutoff=None if rung == self.rungs[-1] else self._cutoff(rung),
                seconds=self._seconds_at(rung),
            )
            for rung in self.rungs
        ]

    def places(self, trial: int) -> list[Place]:
        """Return the places of a trial at the rungs that it has reached, smallest budget first."""
        return [
            Place(
                rung=rung,
                value=entry[1],
                rank=self._rank(rung, trial),
                entered=len(entries),
                cutoff=self._cutoff(rung),
                seconds=self._seconds_at(rung),
            )
            for rung, entries in self._entries.items()
            if (entry := entries.get(trial)) is not None
        ]

    def _seconds_at(self, rung: int) -> float | None:
        return None if self.seconds is None else self.seconds * rung / self.rungs[-1]

    def _rank(self, rung: int, trial: int) -> int | None:
        order = self._order[rung]
        return 1 + len(order) - bisect.bisect_right(order, self._standings[rung][trial])

    def _shortfall(self, trial: int, rung: int, value: float | None, doubt: float) -> str | None:
        """Return the reason why a trial in the rung may not go on; None: it may."""
        last = self._last_to_go_on(rung)
        if last is None:
            return None
        cutoff = self._sign * last.value
        entered = len(self._entries[rung])
        if value is not None:
            own = self._standings[rung][trial]
            if own >= last or (doubt and own.value + doubt >= last.value):
                return None
            if own.value == last.value:
                by = "training return" if own.training < last.training else "chance"
                return f"{value:,.6g} like the best {self._share()} of {entered}, decided by {by}"
        worse = "no value" if value is None else f"{value:,.6g}"
        worse += f" (± {doubt:,.3g})" if doubt else ""
        sign = "<" if self._sign > 0 else ">"
        return f"{worse} {sign} {cutoff:,.6g}, the best {self._share()} of {entered}"

    def _enter(
        self, trial: int, env_steps: int, value: float | None, training: float | None
    ) -> int | None:
        """Record the value; return the rung at which it has to be judged, if any."""
        last = self._last.get(trial, 0)
        rung = self._rung_at(env_steps)
        if value is not None:
            self._last[trial] = max(last, env_steps)
        if rung is None:
            return None
        entry = self._entries[rung].get(trial)
        if entry is not None and entry[0] != env_steps:
            return None  # in this rung since an earlier report
        if entry is None and env_steps < last:
            return None  # jumped over
        if value is not None:
            standings, order = self._standings[rung], self._order[rung]
            if entry is not None:
                order.remove(standings[trial])
            self._entries[rung][trial] = (env_steps, value)
            standings[trial] = Standing.of(trial, self._sign * value, training)
            bisect.insort(order, standings[trial])
        return rung if env_steps >= last else None

    def _rung_at(self, env_steps: int) -> int | None:
        return max((rung for rung in self.rungs if rung <= env_steps), default=None)

    def _cutoff(self, rung: int) -> float | None:
        """The worst value that goes on, or None while the rung has too few values."""
        last = self._last_to_go_on(rung)
        return None if last is None else self._sign * last.value

    def _last_to_go_on(self, rung: int) -> Standing | None:
        order = self._order[rung]
        if len(order) < self.min_population:
            return None
        return order[-math.ceil(len(order) / self.reduction_factor)]

    def _stop(self, trial: int, rung: int | None, reason: str) -> str:
        if rung is not None:
            self._stopped[trial] = rung
        self._reasons[trial] = reason
        return "stop"

    def _share(self) -> str:
        words = {2.0: "half", 3.0: "third", 4.0: "quarter", 5.0: "fifth"}
        return words.get(float(self.reduction_factor), f"1/{self.reduction_factor:g}")
