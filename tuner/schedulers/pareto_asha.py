"""ASHA for several objectives: a rung lets the best part of its trials go on, front by front.

Schmucker et al., "Multi-objective Asynchronous Successive Halving" (arXiv:2106.12639), in the
stopping variant and with all that makes our ASHA safe for noisy learners (`halving.py`). All trials
of a rung are ordered by non-dominated fronts, those of one front by how far apart they lie
(`pareto.select`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rltune.schedulers.halving import Halving
from rltune.stats.pareto import ranks, select

if TYPE_CHECKING:
    from rltune.objectives.goals import FurtherObjectives


class ParetoASHA(Halving):
    """At each rung, lets the best `1 / reduction_factor` go on: whole fronts, then spread ones.

    Between twins, which have the same values, the same decides as in `Halving`.

    Args:
        rungs, reduction_factor, min_population: as in `Halving`
        margin: standard errors that a trial's first objective is raised by when it is judged
        others: what is known of the other objectives at the time of `decide` and `restore`
    """

    def __init__(
        self,
        rungs: Sequence[int],
        reduction_factor: float,
        min_population: int,
        margin: float,
        others: FurtherObjectives,
    ) -> None:
        super().__init__(rungs, reduction_factor, min_population, "maximize", margin)
        self.others = others

    def cutoff(self, trial: int, env_steps: int) -> None:
        """Several objectives have no cutoff."""

    def _cutoff(self, rung: int) -> float | None:
        """Several objectives have no cutoff."""
        return None

    def _rank(self, rung: int, trial: int) -> None:
        """Several objectives have no order."""

    def _shortfall(self, trial: int, rung: int, value: float | None, doubt: float) -> str | None:
        entries = self._entries[rung]
        if len(entries) < self.min_population:
            return None
        if value is None:
            return "no value"
        values = self.others.values
        standings = self._standings[rung]
        # Of twins, the earlier one is selected first.
        trials = sorted(entries, key=lambda t: standings[t], reverse=True)
        points = {t: (entries[t][1], *values[t][entries[t][0]]) for t in trials}
        points[trial] = (value + doubt, *points[trial][1:])
        minimize = [False, *(goal.minimize for goal in self.others.goals)]
        everyone = list(points.values())
        go_on = math.ceil(len(everyone) / self.reduction_factor)
        own = trials.index(trial)
        if own in select(everyone, minimize, go_on):
            return None
        front = ranks(everyone, minimize)[own]
        place = "on the front, in a dense part of it" if front == 0 else f"{front} fronts behind"
        place = "one front behind" if front == 1 else place
        return f"{place}, not in the best {self._share()} of {len(everyone)}"
