"""TPE: Optuna's tree-structured Parzen estimator (Bergstra et al., NeurIPS 2011)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import FrozenTrial
from rltune.agents.errors import UserError
from rltune.samplers.base import SamplerOption
from rltune.samplers.optuna_based import OptunaSampler
from rltune.samplers.views import for_tpe, tpe_needs


class TPE(OptunaSampler):
    """All dimensions jointly, conditional ones in groups."""

    name = "tpe"
    options: ClassVar = {
        # Optuna's default of 10 random trials is half of a search of 20.
        "n_startup_trials": SamplerOption(8, lowest=1),
        "n_ei_candidates": SamplerOption(24, lowest=1),
        "multivariate": SamplerOption(True),
        "group": SamplerOption(True),
        "constant_liar": SamplerOption(True),
    }
    for_several = True
    learns_from_earlier = True

    @classmethod
    def checked_options(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of all options; UserError: a wrong value, or group alone."""
        filled = super().checked_options(values)
        if filled["group"] and not filled["multivariate"]:
            raise UserError(
                "sampler 'tpe': group needs multivariate; set both to false, or neither"
            )
        return filled

    @property
    def needs(self) -> tuple[int, int] | None:  # type: ignore[override]
        """The trials that `for_tpe` keeps; of several objectives, the best are a matter of all."""
        return tpe_needs() if len(self.directions) == 1 else None

    def make(self, seed: int) -> BaseSampler:
        """Return Optuna's sampler for the draws of one trial."""
        return TPESampler(seed=seed, **self.values)

    def joint(self) -> dict[str, BaseDistribution]:
        """Return nothing: TPE finds its groups itself."""
        return {}

    def left_to_chance(self) -> list[str]:
        """Return nothing: every group is learned."""
        return []

    def view(self, known: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """Return the trials with those that were stopped early and those that failed."""
        return for_tpe(known, self.minimize)
