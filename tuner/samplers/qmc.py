"""Quasi-Monte Carlo: a low-discrepancy sequence, Sobol's or Halton's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from optuna.samplers import BaseSampler, QMCSampler, RandomSampler
from optuna.trial import FrozenTrial
from rltune.samplers.base import SamplerOption
from rltune.samplers.optuna_based import OptunaSampler


class QMC(OptunaSampler):
    """One sequence for the whole search; it learns nothing."""

    name = "qmc"
    options: ClassVar = {
        "qmc_type": SamplerOption("sobol", choices=("sobol", "halton")),
        "scramble": SamplerOption(True),
    }
    for_several = True
    learns = False

    def make(self, seed: int) -> BaseSampler:
        """Return Optuna's sampler for the draws of one trial."""
        independent = RandomSampler(seed=seed)
        # The seed of the search: the scrambling must not change with the trial.
        return QMCSampler(seed=self.seed, independent_sampler=independent, **self.values)

    def view(self, known: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """Return nothing."""
        return []
