"""Priors: the values that a user expects to be good, as an earlier search that never was.

Its trials are configurations near the expected values and others, ranked by their distance from
them. So a warm start treats a prior as it treats a search: it proposes the expected values, shows
its trials to the sampler as far as they are to be trusted, and forgets a prior that misleads. The
idea of an expectation that fades as trials come in is that of Hvarfner et al., "piBO: Augmenting
Acquisition Functions with User Beliefs" (ICLR 2022), and Mallik et al., "PriorBand" (NeurIPS 2023).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from rltune.agents.errors import UserError
from rltune.samplers.warm_start import PRIOR, Earlier, ranks
from rltune.space.dimensions import same
from rltune.study.distributions import from_unit, make_distribution, to_unit

if TYPE_CHECKING:
    from rltune.space.dimensions import Dimension
    from rltune.space.space import Space

NEAR = 40  # configurations near the expected values, the first one has them
FAR = 40  # others
SPREAD = 0.15  # standard deviation of those that are near, of the range on its internal scale
# As if it had foretold so many pairs of trials rightly, and so many wrongly: a user knows
# something, or would not say it.
BELIEF = (4.0, 1.0)


def prior_of(space: Space) -> Earlier | None:
    """Return what the priors of the dimensions say, as trials; None: there are none."""
    expected = {name: d for name, d in space.dimensions.items() if d.prior is not None}
    if not expected:
        return None
    rng = np.random.default_rng(0)
    trials = [space.sample(rng) for _ in range(NEAR + FAR)]
    for number in range(NEAR):
        moved = _near(space, trials[number], SPREAD if number else 0.0, rng)
        if _is_valid(space, moved):
            trials[number] = moved
    distances = [
        sum(_distance(expected[name], values[name]) for name in values.keys() & expected.keys())
        for values in trials
    ]
    ranked = ranks([-distance for distance in distances])
    return Earlier(PRIOR, tuple(trials), tuple(ranked), PRIOR, BELIEF)


def _near(
    space: Space, values: dict[str, Any], spread: float, rng: np.random.Generator
) -> dict[str, Any]:
    """Return the values with those of the priors, so far from them."""

    def draw(dimension: Dimension) -> Any:
        if dimension.prior is None:
            return values.get(dimension.name, dimension.sample(rng))
        if dimension.kind == "choice":
            return dimension.sample(rng) if rng.random() < spread else dimension.prior
        place = _place(dimension, dimension.prior) + spread * rng.normal()
        return dimension.from_internal(
            from_unit(make_distribution(dimension), min(max(place, 0.0), 1.0))
        )

    return space.suggest(draw)


def _is_valid(space: Space, values: dict[str, Any]) -> bool:
    try:
        return not space.violations(space.resolve(values))
    except UserError:  # such as a derived value that divides by zero
        return False


def _distance(dimension: Dimension, value: Any) -> float:
    """Return the squared distance of a value from the one that is expected, of the range."""
    if dimension.kind == "choice":
        return 0.0 if same(value, dimension.prior) else 0.25
    return (_place(dimension, value) - _place(dimension, dimension.prior)) ** 2


def _place(dimension: Dimension, number: Any) -> float:
    return to_unit(make_distribution(dimension), dimension.to_internal(number))
