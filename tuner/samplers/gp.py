"""Gaussian-process Bayesian optimisation: Optuna's GP sampler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from optuna.samplers import BaseSampler, GPSampler
from optuna.trial import FrozenTrial
from rltune.samplers.base import SamplerOption
from rltune.samplers.optuna_based import OptunaSampler
from rltune.samplers.views import best_and_latest

MAX_TRIALS = 100  # the best and the latest ones: a fit takes the cube of them


class GP(OptunaSampler):
    """The most careful with few trials, and the slowest: up to half a second for a proposal."""

    name = "gp"
    options: ClassVar = {
        "n_startup_trials": SamplerOption(8, lowest=1),
        "deterministic_objective": SamplerOption(False),
    }
    for_several = True
    learns_from_earlier = True
    max_draws = 4  # each is a fit

    def make(self, seed: int) -> BaseSampler:
        """Return Optuna's sampler for the draws of one trial."""
        return GPSampler(seed=seed, **self.values)

    def view(self, known: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """Return the best and the latest trials, as ones that ran their whole budget."""
        return best_and_latest(super().view(known), MAX_TRIALS // 2, MAX_TRIALS, self.minimize)
