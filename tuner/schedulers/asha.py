"""ASHA: asynchronous successive halving.

The stopping variant of Li et al., "A System for Massively Parallel Hyperparameter Tuning" (MLSys
2020), made safe for noisy learners (`halving.py`).

A weakness that asynchronous halving has by design: a trial that reaches a rung early is judged
among few, so early arrivals get through more easily than late ones. `min_population` makes that
kinder still: the price is a few whole budgets more, the gain is that no good configuration dies by
the luck of its order. No configuration is exempt, the defaults and the known-good settings
included: the tournament at the end trains them again in any case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltune.schedulers.halving import OPTIONS, Halving, default_rungs
from rltune.schedulers.pareto_asha import ParetoASHA

if TYPE_CHECKING:
    from rltune.schedulers.base import Scheduler, Setup


class ASHA(Halving):
    """Asynchronous successive halving; the arguments are those of `Halving`."""

    name = "asha"
    options = OPTIONS
    several_objectives = True

    @classmethod
    def create(cls, setup: Setup) -> Scheduler:
        """Return the scheduler of a search: with several objectives, a `ParetoASHA`."""
        options = setup.options
        rungs = default_rungs(setup.budget, options["reduction_factor"], options["n_rungs"])
        if setup.others is not None and setup.has_several_objectives:
            return ParetoASHA(
                rungs,
                options["reduction_factor"],
                options["min_population"],
                options["margin"],
                setup.others,
            )
        return cls(
            rungs,
            options["reduction_factor"],
            options["min_population"],
            setup.direction,
            options["margin"],
            options["seconds"],
        )
