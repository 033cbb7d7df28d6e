"""CMA-ES: covariance matrix adaptation, rebuilt from the study for every trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState
from rltune.agents.errors import UserError
from rltune.samplers.base import SamplerOption
from rltune.samplers.optuna_based import OptunaSampler
from rltune.samplers.parameters import Parameters
from rltune.study.distributions import from_unit, to_unit

GENERATION = "cmaes:generation"


class CMAES(OptunaSampler):
    """CMA-ES on the numeric dimensions without a condition; the others at random."""

    name = "cmaes"
    options: ClassVar = {"popsize": SamplerOption(None, lowest=4), "sigma": SamplerOption(0.3)}
    left_kinds = "conditional and choice"

    def __init__(
        self,
        parameters: Parameters,
        directions: Sequence[StudyDirection],
        seed: int,
        values: Mapping[str, Any],
    ) -> None:
        super().__init__(parameters, directions, seed, values)
        if len(self.joint()) < 2:
            raise UserError(
                "sampler 'cmaes' needs at least two numeric dimensions without a condition; "
                "use tpe, gp, nsgaii, qmc or random for this space"
            )

    def make(self, seed: int) -> BaseSampler:
        """Return the sampler for the draws of one trial."""
        return ReplayedCMA(seed, **self.values)

    def joint(self) -> dict[str, BaseDistribution]:
        """Return the numeric dimensions without a condition."""
        return self.parameters.numbers()


class ReplayedCMA(BaseSampler):
    """CMA-ES (Hansen, arXiv:1604.00772) on the unit cube.

    Rebuilt for every trial by replaying the finished ones, generation by generation; Optuna's own
    keeps a pickle in the study. Starts belong to the first generation.
    """

    def __init__(self, seed: int, popsize: int | None, sigma: float) -> None:
        self._rng = np.random.default_rng(seed)
        self._popsize = popsize
        self._sigma = sigma
        self._random = optuna.samplers.RandomSampler(seed=seed)

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return nothing: `sample_relative` is told what to draw."""
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Draw the next member of the current generation."""
        from cmaes import CMA

        size = len(search_space)
        cma = CMA(
            mean=np.full(size, 0.5),
            sigma=self._sigma,
            bounds=np.tile([0.0, 1.0], (size, 1)),
            seed=int(self._rng.integers(2**31)),
            population_size=self._popsize,
        )
        complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        # In the order in which they ended: a late one must not rewrite its generation.
        complete.sort(key=lambda t: (t.datetime_complete is None, t.datetime_complete, t.number))
        sign = -1.0 if study.direction == StudyDirection.MAXIMIZE else 1.0
        while True:
            generation = [
                t for t in complete if t.system_attrs.get(GENERATION, 0) == cma.generation
            ]
            members = generation[: cma.population_size]
            if len(members) < cma.population_size:
                break
            points = [[to_unit(d, t.params[n]) for n, d in search_space.items()] for t in members]
            losses = [sign * t.value for t in members if t.value is not None]
            cma.tell(list(zip(np.array(points), losses, strict=True)))
        study._storage.set_trial_system_attr(0, GENERATION, cma.generation)
        return {
            name: from_unit(distribution, u)
            for (name, distribution), u in zip(search_space.items(), cma.ask(), strict=True)
        }

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Draw what is not drawn together, at random."""
        return self._random.sample_independent(study, trial, param_name, param_distribution)
