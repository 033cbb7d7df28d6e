"""Stored parameters: how a study's file has the hyperparameters, for Optuna's own tools.

The file has them by their names, with their real values. In memory, where the samplers see them,
the parameters have their internal values; so they have in the files of earlier versions, which are
read as well.

Starts may lie outside of the ranges. The file has their values, too: a range is as wide there as
the starts need it, a choice has theirs beside its own, and a schedule is the number that it begins
with. A value that is none of these (such as null for a number) is in no parameter; the whole
configuration is the trial's user attribute "configuration".
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from rltune.agents.schedules import parse_schedule
from rltune.space.dimensions import choice_label
from rltune.study.distributions import make_distribution, parameter_name

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial
    from rltune.space.dimensions import Dimension
    from rltune.space.space import Space


class StoredParameters:
    """Writes the parameters of trials for the file, and reads them back for the samplers.

    Args:
        space: what is searched
        starts: the configurations of the starts
    """

    def __init__(self, space: Space, starts: Sequence[Mapping[str, Any]] = ()) -> None:
        self._space = space
        self._distributions = {
            name: _stored_distribution(
                dimension, [value for start in starts for value in _stored(dimension, start)]
            )
            for name, dimension in space.dimensions.items()
        }

    def to_file(self, trial: FrozenTrial) -> Iterator[tuple[str, Any, BaseDistribution]]:
        """Yield name, value and distribution of each parameter as the file has it."""
        config = trial.user_attrs["configuration"]
        is_start = trial.user_attrs.get("origin") != "sampler"
        active = self._space.active(config) if is_start else ()
        for name, dimension in self._space.dimensions.items():
            parameter = parameter_name(dimension)
            if parameter in trial.params:
                renamed = parameter != name
                value = config[name] if renamed else trial.params[parameter]
                yield name, value, self._distributions[name]
            elif name in active:
                for value in _stored(dimension, config):
                    distribution = self._distributions[name]
                    if not _holds(distribution, value):
                        distribution = _stored_distribution(dimension, [value], log=False)
                    yield name, value, distribution

    def from_file(self, trial: FrozenTrial) -> FrozenTrial:
        """Return a trial of the file as the samplers see it: with what is in its range."""
        config = trial.user_attrs.get("configuration", {})
        params: dict[str, Any] = {}
        distributions: dict[str, BaseDistribution] = {}
        for name, value in trial.params.items():
            dimension = self._space.dimensions.get(name)
            if dimension is None:  # such as log2(n_steps), of an earlier version
                params[name], distributions[name] = value, trial.distributions[name]
            elif dimension.contains(config.get(name, value)):
                parameter = parameter_name(dimension)
                params[parameter] = value if parameter == name else dimension.to_internal(value)
                distributions[parameter] = make_distribution(dimension)
        copied = copy.copy(trial)
        copied.params, copied.distributions = params, distributions
        return copied


def _stored(dimension: Dimension, config: Mapping[str, Any]) -> list[Any]:
    """Return the configuration's value as the file can have it; empty: it can't."""
    if dimension.name not in config:
        return []
    value = config[dimension.name]
    if dimension.kind == "choice":
        label = choice_label(value)
        return [label] if label is None or isinstance(label, (bool, int, float, str)) else []
    try:
        number = parse_schedule(value).initial
    except (TypeError, ValueError):
        return []
    if isinstance(value, bool) or not math.isfinite(number):
        return []
    if dimension.kind in ("int", "pow2"):
        return [int(number)] if number == int(number) else []
    return [number]


def _stored_distribution(
    dimension: Dimension, values: Sequence[Any], log: bool = True
) -> BaseDistribution:
    """Return a distribution of the dimension's real values and of these; no sampler draws from it.

    Args:
        dimension: of the space
        values: of starts; those that a logarithmic scale can't have are left out
        log: whether the scale may be logarithmic
    """
    own = make_distribution(dimension)
    if isinstance(own, CategoricalDistribution):
        missing = [value for value in values if not _holds(own, value)]
        return CategoricalDistribution((*own.choices, *dict.fromkeys(missing))) if missing else own
    if dimension.kind in ("int", "pow2"):
        log = log and (dimension.kind == "pow2" or dimension.log)
        whole = IntDistribution(int(dimension.low), int(dimension.high), log, dimension.step)
        outside = [v for v in values if not _holds(whole, v) and (v >= 1 or not log)]
        low, high = min([whole.low, *outside]), max([whole.high, *outside])
        return IntDistribution(low, high, log, 1) if outside else whole
    log = log and dimension.kind == "log"
    numbers = [dimension.low, dimension.high, *(v for v in values if v > 0 or not log)]
    return FloatDistribution(min(numbers), max(numbers), log)


def _holds(distribution: BaseDistribution, value: Any) -> bool:
    if isinstance(distribution, CategoricalDistribution):
        return value in distribution.choices
    return distribution._contains(float(value))
