"""PED-ANOVA: the distance of the best trials' hyperparameters from those of all trials.

Watanabe et al., "PED-ANOVA: Efficiently Quantifying Hyperparameter Importance in Arbitrary
Subspaces" (IJCAI 2023), by Optuna's evaluator. Here a parameter is judged on the trials in which it
is active.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.study import StudyDirection
from optuna.trial import create_trial
from rltune.analysis.importance.fanova import Design
from rltune.samplers.views import View

BEST = 0.1  # of the trials are the best ones, but
MIN_BEST = 15


class Divergence:
    """The divergence of a column's values in the best trials from those in all trials.

    Args:
        design: the trials
        i: the column
    """

    def __init__(self, design: Design, i: int) -> None:
        column, x = design.columns[i], design.x[:, i]
        cells = column.cells(x).tolist()
        distribution: BaseDistribution
        if column.kind == "choice":
            distribution = CategoricalDistribution(tuple(range(len(column.edges) - 1)))
        elif column.kind == "levels":
            distribution = IntDistribution(0, len(column.edges) - 2)
        else:
            distribution, cells = FloatDistribution(0, 1), x.tolist()
        known: dict[str, BaseDistribution] = {"x": distribution}
        self._trials = [
            create_trial(params={"x": cell}, distributions=known, value=value)
            for cell, value in zip(cells, design.y.tolist(), strict=True)
        ]
        for number, trial in enumerate(self._trials):
            trial.number = trial._trial_id = number
        self._active = design.active[:, i]

    def of(self, drawn: NDArray[np.intp]) -> float:
        """Return it for these trials, some perhaps several times; shape (n,)."""
        trials = [self._trials[row] for row in drawn[self._active[drawn]]]
        if len({trial.value for trial in trials}) < 2:
            return 0.0
        evaluator = PedAnovaImportanceEvaluator(
            target_quantile=min(0.5, max(BEST, MIN_BEST / len(trials)))
        )
        found = evaluator.evaluate(View(trials, [StudyDirection.MAXIMIZE], {}), params=["x"])
        return float(found["x"])
