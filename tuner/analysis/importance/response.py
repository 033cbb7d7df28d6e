"""A Gaussian process of the trials' values over the space and the budget.

All values of a trial take part, not only its last: then the likelihood is right whatever chose the
trials and stopped them. A trial's luck stays with it, so its values have it in common; each
budget has a mean of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from rltune.analysis.importance.fanova import Array, DesignColumn

MAX_STEPS = 20  # of the optimiser of the length scales
NEVER = np.inf  # the length scale of a column without influence
_JITTER = 1e-6
# Normal priors of the logarithms: mean and deviation. A length scale of 1 spans a whole range.
_LENGTH, _SIZE, _LUCK, _NOISE = (0.5, 1.0), (0.0, 1.0), (np.log(0.1), 1.5), (np.log(0.2), 1.5)
_BOUNDS = (-2.0, 3.5), (-4.0, 2.0), (-7.0, 4.0), (-7.0, 4.0)


@dataclass(frozen=True)
class Values:
    """Values of trials, at one or several budgets.

    Attributes:
        x: 0..1, shape (n, columns)
        trial: numbers of the trials, shape (n,)
        budget: 0..1, 1 is the full one, shape (n,)
        y: shape (n,)
    """

    x: Array
    trial: NDArray[np.intp]
    budget: Array
    y: Array


@dataclass(frozen=True)
class Scales:
    """The scales of a Gaussian process: lengths, luck and noise.

    Attributes:
        lengths: of the columns and of the budget, shape (columns + 1,)
        sizes: of the differences between trials at each budget, 1 at the full one, shape (budgets,)
        luck: variance that a trial's values have in common, as a part of the process's own
        noise: variance of each value, likewise
    """

    lengths: Array
    sizes: Array
    luck: float
    noise: float

    def with_length(self, i: int, length: float) -> Scales:
        """Return it with another length scale of a column."""
        lengths = self.lengths.copy()
        lengths[i] = length
        return replace(self, lengths=lengths)


class Response:
    """The response surface: a Gaussian process, and its fit to the values.

    Args:
        columns: of the space
        values: of the trials
    """

    def __init__(self, columns: Sequence[DesignColumn], values: Values) -> None:
        self.columns, self.values = columns, values
        _, rung = np.unique(values.budget, return_inverse=True)
        self.means = np.eye(int(rung.max()) + 1)[rung]
        self.same = (values.trial[:, None] == values.trial).astype(np.float64)
        self.x = np.column_stack([values.x, values.budget])
        self.distances = self.between(self.x, self.x)
        self._n, self._budgets = len(columns), self.means.shape[1]
        free = np.ones(self._n + 1 + self._budgets + 2, dtype=np.bool_)
        free[self._n] = self._budgets > 1
        free[-3] = False  # the size at the whole budget
        free[-2] = self.same.sum() > len(values.y)
        self._free = free
        kinds = [_LENGTH] * (self._n + 1) + [_SIZE] * self._budgets + [_LUCK, _NOISE]
        self._priors = np.array(kinds)
        self._bounds = np.array(
            [_BOUNDS[0]] * (self._n + 1) + [_BOUNDS[1]] * self._budgets + [*_BOUNDS[2:]]
        )

    def between(self, x: Array, other: Array) -> Array:
        """Return the distances of points by column, the budget the last, (columns + 1, m, n).

        Args:
            x: shape (m, columns + 1)
            other: shape (n, columns + 1)
        """
        found = np.empty((x.shape[1], len(x), len(other)))
        for i in range(x.shape[1]):
            np.abs(x[:, i, None] - other[:, i], out=found[i])
        for i, column in enumerate(self.columns):
            if column.kind == "choice":  # two different choices are at a distance of 1
                found[i] = found[i] > 1e-9
        return found

    def fit(self, start: Scales | None = None, without: int | None = None) -> Scales:
        """Return the scales of the greatest posterior.

        Args:
            start: where to begin
            without: a column that is to have no influence
        """
        import scipy.optimize

        free = self._free.copy()
        theta = self._priors[:, 0].copy()
        if start is not None:
            theta = np.log([*start.lengths, *start.sizes, max(start.luck, 1e-9), start.noise])
        if not free[-2]:
            theta[-2] = -np.inf
        if without is not None:
            theta[without], free[without] = np.inf, False

        def loss(part: Array) -> tuple[float, Array]:
            theta[free] = part
            value, slope = self._loss(theta, free)
            return value, slope[free]

        bounds = self._bounds[free]
        found = scipy.optimize.minimize(
            loss,
            np.clip(theta[free], *bounds.T),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds.tolist(),
            options={"maxiter": MAX_STEPS},
        )
        theta[free] = found.x
        return self._scales(theta)

    def _loss(self, theta: Array, free: NDArray[np.bool_]) -> tuple[float, Array]:
        """Return the negative logarithm of the posterior and its gradient."""
        scales = self._scales(theta)
        process = Process(self, scales)
        y = self.values.y
        py = process.p @ y
        square = float(y @ py)
        value = process.log + 0.5 * process.n * np.log(square)
        slope = 0.5 * (process.p - (process.n / square) * np.outer(py, py))
        gradient = np.zeros_like(theta)
        weighted = slope * process.kernel
        for j in np.flatnonzero(free[: self._n + 1]):
            r = np.sqrt(5) / scales.lengths[j] * self.distances[j]
            gradient[j] = np.vdot(weighted, r * r * (1 + r) / (3 + 3 * r + r * r))
        shared = slope * (process.kernel + process.luck)
        gradient[self._n + 1 : -2] = 2 * (self.means.T @ shared).sum(axis=1)
        gradient[-2] = np.vdot(slope, process.luck)
        gradient[-1] = scales.noise * np.trace(slope)
        gap = np.where(free, theta - self._priors[:, 0], 0.0) / self._priors[:, 1]
        return float(value + 0.5 * gap @ gap), gradient + gap / self._priors[:, 1]

    def _scales(self, theta: Array) -> Scales:
        lengths, sizes, rest = np.split(np.exp(theta), [self._n + 1, len(theta) - 2])
        return Scales(lengths, sizes, float(rest[0]), float(rest[1]))


def correlation(distances: Array, lengths: Array) -> Array:
    """Return the product of a Matern 5/2 kernel in each column, shape (m, n).

    Args:
        distances: shape (columns, m, n)
        lengths: shape (columns,)
    """
    total, growth = np.zeros(distances.shape[1:]), np.ones(distances.shape[1:])
    for own, length in zip(distances, lengths, strict=True):
        if length < NEVER:
            r = own * (np.sqrt(5) / length)
            total += r
            growth *= 1 + r + r * r / 3
    return np.asarray(growth * np.exp(-total))


class Process:
    """A Gaussian process with given scales, that has learned from values at the trials.

    What is said of values y holds for many at once, shape (n, sets): they are the columns. The
    process's variance is profiled out: it is taken from each of them.

    Attributes:
        kernel: covariance of the process at the trials, shape (n, n)
        p: precision of the values when nothing is known of their means, shape (n, n)
        n: values less means
        log: half the logarithm of the determinant
    """

    def __init__(self, response: Response, scales: Scales) -> None:
        import scipy.linalg

        self._response, self.scales = response, scales
        means = response.means
        self._size = means @ scales.sizes  # of each value
        both = np.outer(self._size, self._size)
        self.kernel = both * correlation(response.distances, scales.lengths)
        self.luck = scales.luck * both * response.same
        self.rest = self.luck + (scales.noise + _JITTER) * np.eye(len(means))
        factor = scipy.linalg.cholesky(self.kernel + self.rest, lower=True, check_finite=False)
        inverse, _ = scipy.linalg.lapack.dpotri(factor, lower=1)
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        half = means.T @ inverse
        middle = half @ means
        self.p: Array = inverse - half.T @ np.linalg.solve(middle, half)
        self.n = len(means) - means.shape[1]
        self.log = np.log(np.diag(factor)).sum() + 0.5 * float(np.linalg.slogdet(middle)[1])

    def variance(self, y: Array) -> Array:
        """Return the variance of the process, for each set of values."""
        return np.asarray((y * (self.p @ y)).sum(0) / self.n)

    def likelihood(self, y: Array) -> Array:
        """Return the logarithm of the likelihood of each set, up to a constant."""
        return np.asarray(-self.log - 0.5 * self.n * np.log(self.variance(y)))

    def imagine(self, y: Array, count: int, rng: np.random.Generator) -> Array:
        """Return values as the process might have at these trials, shape (n, count).

        Of another function, with other luck and noise, on the scale of ``y``.
        """
        drawn = normal(self.kernel + self.rest, count, rng)
        return np.asarray(drawn * np.sqrt(self.variance(y)))

    def among(self, distances: Array) -> Array:
        """Return the covariance of points at the whole budget, (columns + 1, m, m) -> (m, m)."""
        return correlation(distances, self.scales.lengths)

    def with_values(self, distances: Array) -> Array:
        """Return the covariance of such points with the values, (columns + 1, m, n) -> (m, n)."""
        return self._size * correlation(distances, self.scales.lengths)


def normal(covariance: Array, count: int, rng: np.random.Generator) -> Array:
    """Return draws with this covariance, shape (n, count)."""
    jitter = 1e-8 * np.eye(len(covariance))
    for _ in range(6):
        try:
            factor = np.linalg.cholesky(covariance + jitter)
            break
        except np.linalg.LinAlgError:
            jitter = jitter * 10
    return np.asarray(factor @ rng.normal(size=(len(covariance), count)))
