"""Exploration in population based bandits (PB2): a Gaussian process says where gains are likely.

The numbers that a member goes on with are those of the highest upper confidence bound of a Gaussian
process, which has seen what every member has gained with which values from one pause to the next.
What was good early counts the less the longer ago it was. Choices change as in PBT.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rltune.agents.errors import UserError
from rltune.agents.schedules import parse_schedule
from rltune.schedulers.explorers import Explorer, Observation, PopulationMember, perturb
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

if TYPE_CHECKING:
    from rltune.agents.config import Hyperparameter
    from rltune.space.dimensions import Dimension
    from rltune.space.space import Space

Array = NDArray[np.float64]

CANDIDATES = 400  # one half from all of the space, one near the parent
MAX_OBSERVATIONS = 500  # the latest: a fit takes the longer the more there are, with their cube
# The confidence bound's width, beta = C1 * log(C2 * observations), as the authors chose it.
C1, C2 = 0.2, 0.4


class Points(NamedTuple):
    """Points at which a gain was seen, or is asked for; a row each."""

    x: Array  # (n, dimensions) in the unit cube
    before: Array  # (n,) objective at the beginning, standardised
    segment: Array  # (n,)

    def and_also(self, others: Points) -> Points:
        """Return both, one behind the other."""
        return Points(*(np.concatenate(pair) for pair in zip(self, others, strict=True)))


class TimeVaryingGP:
    """A Gaussian process whose past fades: covariances shrink by ``(1 - epsilon)^(segments / 2)``.

    Over the hyperparameters and over the objective at the beginning the kernel is a squared
    exponential. Length scales, epsilon and noise are those of the largest likelihood.

    Args:
        points: where gains were seen
        gains: (n,) of them
    """

    def __init__(self, points: Points, gains: Array) -> None:
        self.points = points
        self.mean, self.scale = float(gains.mean()), float(gains.std()) or 1.0
        self.y = (gains - self.mean) / self.scale
        # Logarithms of the two length scales and of the noise's variance, and epsilon.
        bounds = [(math.log(0.05), math.log(3.0)), (math.log(0.3), math.log(10.0))]
        bounds += [(math.log(1e-3), 0.0), (0.0, 0.5)]
        start = [math.log(0.5), math.log(2.0), math.log(0.1), 0.1]
        fit = minimize(self._loss, start, method="L-BFGS-B", bounds=bounds, options={"maxiter": 50})
        self.hyper: Array = fit.x
        self._solve = cho_factor(self._noisy(points))
        self._weights = cho_solve(self._solve, self.y)

    def _kernel(self, a: Points, b: Points, hyper: Array | None = None) -> Array:
        length, length_before, _, epsilon = self.hyper if hyper is None else hyper
        square = ((a.x[:, None] - b.x[None]) ** 2).sum(-1) / math.exp(2 * length)
        square += (a.before[:, None] - b.before[None]) ** 2 / math.exp(2 * length_before)
        fading = (1 - epsilon) ** (np.abs(a.segment[:, None] - b.segment[None]) / 2)
        kernel: Array = np.exp(-0.5 * square) * fading
        return kernel

    def _noisy(self, points: Points, hyper: Array | None = None) -> Array:
        noise = math.exp((self.hyper if hyper is None else hyper)[2])
        return self._kernel(points, points, hyper) + noise * np.eye(len(points.x))

    def _loss(self, hyper: Array) -> float:
        """The negative logarithm of the likelihood."""
        factor = cho_factor(self._noisy(self.points, hyper))
        half_log_det = float(np.log(np.diag(factor[0])).sum())
        return 0.5 * float(self.y @ cho_solve(factor, self.y)) + half_log_det

    def expect(self, points: Points) -> Array:
        """Return the gains that are expected: (n,)."""
        expected: Array = self.mean + self.scale * (
            self._kernel(points, self.points) @ self._weights
        )
        return expected

    def deviation(self, points: Points, pending: Points | None = None) -> Array:
        """Return the standard deviations of the gains: (n,).

        Args:
            points: where
            pending: where others have been sent already: what they will see is not known, but that
                they will see it
        """
        seen = self.points if pending is None else self.points.and_also(pending)
        factor = self._solve if pending is None else cho_factor(self._noisy(seen))
        cross = self._kernel(points, seen)
        variance = 1 - np.einsum("ij,ji->i", cross, cho_solve(factor, cross.T))
        deviation: Array = self.scale * np.sqrt(np.maximum(variance, 1e-12))
        return deviation


class PB2Explorer(Explorer):
    """Changes numbers where the Gaussian process says, and choices as `explorers.Explorer` does."""

    def __init__(self, space: Space, known: Mapping[str, Hyperparameter], resample: float) -> None:
        super().__init__(space, known, resample)
        self.numbers = [
            space.dimensions[name]
            for name in self.mutable
            if space.dimensions[name].kind != "choice"
        ]
        if not self.numbers:
            raise UserError(
                "pb2 needs a number to change while an agent trains, and of this space "
                f"({', '.join(space.dimensions)}) only choices can; take --scheduler pbt."
            )
        self._gp: TimeVaryingGP | None = None
        self._pending: Points | None = None
        self._before = (0.0, 1.0)  # mean and standard deviation of the objectives at the beginning

    def learn(self, observations: Sequence[Observation]) -> None:
        """Fit the Gaussian process; a training that failed has gained as little as the worst."""
        self._gp = self._pending = None
        seen = sorted(observations, key=lambda o: o.segment)[-MAX_OBSERVATIONS:]
        gains = [o.gain for o in seen if o.gain is not None]
        if len(gains) < 2:
            return
        before = np.array([o.before for o in seen])
        self._before = float(before.mean()), float(before.std()) or 1.0
        rows = [self._points([o.config], o.before, o.segment) for o in seen]
        points = Points(*(np.concatenate(column) for column in zip(*rows, strict=True)))
        worst = min(gains)
        values = [worst if o.gain is None else o.gain for o in seen]
        self._gp = TimeVaryingGP(points, np.array(values))

    def explore(
        self, parent: PopulationMember, segment: int, rng: np.random.Generator
    ) -> dict[str, Any]:
        """Return the candidate of the highest upper confidence bound; before the fit, as in PBT."""
        if self._gp is None:
            return super().explore(parent, segment, rng)
        candidates = [self._candidate(parent, i % 2 == 0, rng) for i in range(CANDIDATES)]
        points = self._points(candidates, parent.value, segment)
        beta = max(0.0, C1 * math.log(C2 * len(self._gp.y)))
        deviation = self._gp.deviation(points, self._pending)
        best = int(np.argmax(self._gp.expect(points) + math.sqrt(beta) * deviation))
        chosen = Points(*(column[best : best + 1] for column in points))
        self._pending = chosen if self._pending is None else self._pending.and_also(chosen)
        return candidates[best]

    def _candidate(
        self, parent: PopulationMember, near: bool, rng: np.random.Generator
    ) -> dict[str, Any]:
        def change(dimension: Dimension, value: Any) -> Any:
            if dimension.kind != "choice" and not near:
                return dimension.sample(rng)
            return perturb(dimension, value, rng, self.resample)

        return self.changed(parent.config, change)

    def _points(self, configs: Sequence[Mapping[str, Any]], before: float, segment: int) -> Points:
        x = [[unit(dimension, config[dimension.name]) for dimension in self.numbers]
             for config in configs]  # fmt: skip
        mean, deviation = self._before
        n = len(configs)
        return Points(
            np.array(x), np.full(n, (before - mean) / deviation), np.full(n, float(segment))
        )


def unit(dimension: Dimension, value: Any) -> float:
    """Return the position of a value on the dimension's own scale, 0 to 1; outside of it, its end.

    A schedule counts as its first value.
    """
    internal = dimension.internal
    number = parse_schedule(value).initial
    number = min(max(number, dimension.low), dimension.high)
    if dimension.kind == "pow2":
        x = math.log2(number)
    elif dimension.kind == "one_minus_log":
        x = min(max(1 - number, internal.low), internal.high)
    else:
        x = number
    low, high = float(internal.low), float(internal.high)
    if internal.log:
        low, high, x = math.log(low), math.log(high), math.log(x)
    return (x - low) / (high - low)
