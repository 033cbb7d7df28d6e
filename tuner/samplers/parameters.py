"""The space as Optuna's parameters: a distribution for each dimension, on its internal scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState
from rltune.samplers.views import changed
from rltune.study.distributions import make_distribution, nearest, parameter_name

if TYPE_CHECKING:
    from rltune.space.space import Space


class Parameters:
    """The dimensions of a space as Optuna knows them.

    Attributes:
        space: what is searched
        names: of the parameter, by the name of the dimension
        distributions: Optuna's, by the name of the parameter
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self.names = {name: parameter_name(d) for name, d in space.dimensions.items()}
        self.distributions = {
            self.names[name]: make_distribution(d) for name, d in space.dimensions.items()
        }

    def of(self, values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
        """Return Optuna's parameters and distributions for those values that are in their range."""
        dimensions = self.space.dimensions
        parameters = {
            self.names[name]: dimensions[name].to_internal(values[name])
            for name in self.space.active(values)
            if name in values and dimensions[name].contains(values[name])
        }
        return parameters, {name: self.distributions[name] for name in parameters}

    def numbers(self) -> dict[str, BaseDistribution]:
        """Return the distributions of the numeric dimensions without a condition."""
        return {
            self.names[name]: self.distributions[self.names[name]]
            for name, dimension in self.space.dimensions.items()
            if not dimension.when and dimension.kind != "choice"
        }

    def unconditional(self) -> dict[str, BaseDistribution]:
        """Return the distributions of the dimensions without a condition, with several values."""
        return {
            self.names[name]: self.distributions[self.names[name]]
            for name, dimension in self.space.dimensions.items()
            if not dimension.when and not self.distributions[self.names[name]].single()
        }

    def inside(self, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """Return the trials that are not waiting, each inside of the ranges.

        Starts have the nearest value for what lies outside of its range; those for which there is
        none, such as with a choice that isn't searched, are left out.
        """
        inside = (self._inside(trial) for trial in trials if trial.state != TrialState.WAITING)
        return [trial for trial in inside if trial is not None]

    def _inside(self, trial: FrozenTrial) -> FrozenTrial | None:
        if trial.user_attrs.get("origin") == "sampler":
            return trial
        config = trial.user_attrs.get("configuration", {})
        params, distributions = dict(trial.params), dict(trial.distributions)
        for name in self.space.active(config):
            if (parameter := self.names[name]) in params:
                continue
            value = nearest(self.space.dimensions[name], config.get(name))
            if value is None:
                return None
            params[parameter] = self.space.dimensions[name].to_internal(value)
            distributions[parameter] = self.distributions[parameter]
        return changed(trial, params=params, distributions=distributions)
