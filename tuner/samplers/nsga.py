"""Genetic algorithms: Optuna's NSGA-II and NSGA-III."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from optuna.samplers import BaseSampler, NSGAIIISampler, NSGAIISampler
from optuna.trial import FrozenTrial
from rltune.samplers.base import SamplerOption
from rltune.samplers.optuna_based import OptunaSampler
from rltune.samplers.views import of_first_generation


class NSGAII(OptunaSampler):
    """NSGA-II (Deb et al., 2002)."""

    name = "nsgaii"
    options: ClassVar = {
        # Optuna's default population of 50 would be a random search in most of ours.
        "population_size": SamplerOption(10, lowest=2),
        "crossover_prob": SamplerOption(0.9),
        "swapping_prob": SamplerOption(0.5),
    }
    for_several = True
    generation: ClassVar[str] = "NSGAIISampler:generation"  # where Optuna keeps that of a trial

    def make(self, seed: int) -> BaseSampler:
        """Return Optuna's sampler for the draws of one trial."""
        return NSGAIISampler(seed=seed, **self.values)

    def view(self, known: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """Return the trials with those that have no generation, such as starts, in the first."""
        return of_first_generation(super().view(known), self.generation)


class NSGAIII(NSGAII):
    """NSGA-III (Deb and Jain, 2014)."""

    name = "nsgaiii"
    generation = "NSGAIIISampler:generation"

    def make(self, seed: int) -> BaseSampler:
        """Return Optuna's sampler for the draws of one trial."""
        return NSGAIIISampler(seed=seed, **self.values)
