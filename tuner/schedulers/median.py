"""The median rule: a trial is stopped where it is below the median of those that got there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from rltune.schedulers.halving import COMPARING, Halving
from rltune.schedulers.options import SchedulerOption

if TYPE_CHECKING:
    from rltune.schedulers.base import Setup


class MedianStopping(Halving):
    """Divides the budget into `n_rungs` equal steps and compares trials from the second one on.

    In rungs of that many a better half goes on. The arguments are those of `Halving`.
    """

    name = "median"
    options: ClassVar[Mapping[str, SchedulerOption]] = {
        "n_rungs": SchedulerOption(10, 1, whole=True),
        **COMPARING,
    }

    @classmethod
    def create(cls, setup: Setup) -> MedianStopping:
        """Return the scheduler of a search."""
        options, budget = setup.options, setup.budget
        n = options["n_rungs"]
        rungs = [rung for k in range(2, n + 1) if (rung := round(budget * k / n)) >= 1]
        return cls(
            rungs or [budget],
            2,
            options["min_population"],
            setup.direction,
            options["margin"],
            options["seconds"],
        )
