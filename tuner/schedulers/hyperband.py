"""Hyperband: asynchronous halvings in several brackets, each with rungs of its own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rltune.schedulers.base import Rung, Scheduler
from rltune.schedulers.halving import OPTIONS, Halving, default_rungs

if TYPE_CHECKING:
    from rltune.schedulers.base import Place, Reports, Setup


class Hyperband(Scheduler):
    """Halvings side by side, each with a smallest rung of its own, the last without any.

    Li et al., "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization" (JMLR 2018,
    arXiv:1603.06560), with asynchronous halvings. It is a hedge: where curves cross late, trials
    that are not judged early find it. A trial's number decides on its bracket, so nothing has to be
    kept for a resume.

    Args:
        rungs: of the bracket that begins first; the others leave out its smallest ones
        reduction_factor, min_population, direction, margin, seconds: of each, as in `Halving`
    """

    name = "hyperband"
    options = OPTIONS

    def __init__(
        self,
        rungs: Sequence[int],
        reduction_factor: float = 3,
        min_population: int = 5,
        direction: str = "maximize",
        margin: float = 1,
        seconds: float | None = None,
    ) -> None:
        n = len(rungs)
        self.brackets = [
            Halving(rungs[first:], reduction_factor, min_population, direction, margin, seconds)
            for first in range(n)
        ]
        # As many trials as give each bracket about the same budget.
        trials = [math.ceil(n / (n - b) * reduction_factor ** (n - 1 - b)) for b in range(n)]
        self._ends = [sum(trials[: b + 1]) / sum(trials) for b in range(n)]

    @classmethod
    def create(cls, setup: Setup) -> Hyperband:
        """Return the scheduler of a search."""
        options = setup.options
        return cls(
            default_rungs(setup.budget, options["reduction_factor"], options["n_rungs"]),
            options["reduction_factor"],
            options["min_population"],
            setup.direction,
            options["margin"],
            options["seconds"],
        )

    def bracket_of(self, trial: int) -> Halving:
        """Return the bracket of a trial; those of neighbours are spread evenly."""
        place = (0.5 + trial * (5**0.5 - 1) / 2) % 1.0
        return next(b for b, end in zip(self.brackets, self._ends, strict=True) if place < end)

    def decide(
        self,
        trial: int,
        env_steps: int,
        value: float | None,
        standard_error: float = 0.0,
        training: float | None = None,
    ) -> str:
        """Return "continue" or "stop"."""
        return self.bracket_of(trial).decide(trial, env_steps, value, standard_error, training)

    def cutoff(self, trial: int, env_steps: int) -> float | None:
        """Return the value with which a trial would go on in its bracket."""
        return self.bracket_of(trial).cutoff(trial, env_steps)

    def is_among_best(self, trial: int) -> bool:
        """Whether a trial is among the best part of those of its bracket with a whole budget."""
        return self.bracket_of(trial).is_among_best(trial)

    def reason(self, trial: int) -> str:
        """Return the reason why the trial was stopped; empty when it was not."""
        return self.bracket_of(trial).reason(trial)

    def restore(
        self, reports: Reports, stopped: Iterable[int] = (), training: Reports | None = None
    ) -> None:
        """Start over from what the study knows."""
        ended = list(stopped)
        for bracket in self.brackets:
            mine = {t: values for t, values in reports.items() if self.bracket_of(t) is bracket}
            bracket.restore(mine, [t for t in ended if self.bracket_of(t) is bracket], training)

    def places(self, trial: int) -> list[Place]:
        """Return the places of a trial at the rungs of its bracket, smallest budget first."""
        return self.bracket_of(trial).places(trial)

    def table(self) -> list[Rung]:
        """Return the rungs of all brackets, smallest budget first, with the first one's cutoffs."""
        tables = [bracket.table() for bracket in self.brackets]
        return [
            Rung(
                budget=rung.budget,
                entered=sum(r.entered for t in tables for r in t if r.budget == rung.budget),
                stopped=sum(r.stopped for t in tables for r in t if r.budget == rung.budget),
                cutoff=rung.cutoff,
                seconds=rung.seconds,
            )
            for rung in tables[0]
        ]
