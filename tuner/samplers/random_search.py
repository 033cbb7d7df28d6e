"""Random search: independent draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import FrozenTrial
from rltune.samplers.optuna_based import OptunaSampler


class Random(OptunaSampler):
    """Every dimension on its own."""

    name = "random"
    for_several = True
    learns = False

    def make(self, seed: int) -> BaseSampler:
        """Return Optuna's sampler for the draws of one trial."""
        return RandomSampler(seed=seed)

    def joint(self) -> dict[str, BaseDistribution]:
        """Return nothing: every dimension is drawn on its own."""
        return {}

    def left_to_chance(self) -> list[str]:
        """Return nothing: the name says it."""
        return []

    def view(self, known: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """Return nothing."""
        return []

    def source(self, relative: Mapping[str, Any]) -> str:
        """Return the sampler's name."""
        return self.name
