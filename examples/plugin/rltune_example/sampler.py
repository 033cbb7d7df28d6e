"""A sampler with Optuna's interface: each dimension keeps the best trial's value, or is drawn anew.

It is made anew for every trial: all that it knows comes from the study.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.search_space import intersection_search_space
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState


class Mutation(BaseSampler):
    """`keep` is an option: --sampler-options "{keep: 0.8}"; the seed is the search's."""

    def __init__(self, keep: float = 0.5, seed: int | None = None) -> None:
        self.keep = keep
        self.rng = np.random.default_rng(seed)
        self.random = RandomSampler(seed)

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return intersection_search_space(study.get_trials(deepcopy=False))

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if not done:
            return {}
        best = max(done, key=lambda trial: trial.value)
        return {
            name: best.params[name]
            if self.rng.random() < self.keep
            else self.random.sample_independent(study, trial, name, distribution)
            for name, distribution in search_space.items()
        }

    def sample_independent(
        self, study: Study, trial: FrozenTrial, name: str, distribution: BaseDistribution
    ) -> Any:
        return self.random.sample_independent(study, trial, name, distribution)
