"""The surrogate model of the objective: a Gaussian process on encoded configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy  # its parts are loaded when they are used: they take half a second
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution
from rltune.study.distributions import to_unit

Array = NDArray[np.float64]

MAX_STEPS = 12  # of the optimiser of the length scales; more change little
_JITTER = 1e-6
# Normal priors of the logarithms: mean and deviation. A length scale of 1 spans a whole range.
_LENGTH, _AMPLITUDE, _NOISE = (0.0, 1.0), (0.0, 1.0), (np.log(0.05), 1.5)


class Encoder:
    """Turns configurations into rows: numbers in 0..1 on their own scale, a column per choice.

    An inactive number is in the middle of its range, an inactive choice is none of its values.

    Args:
        distributions: Optuna's, by the name of the parameter

    Attributes:
        owner: the number of the parameter that each column belongs to, shape (columns,)
    """

    def __init__(self, distributions: Mapping[str, BaseDistribution]) -> None:
        self._distributions = {n: d for n, d in distributions.items() if not d.single()}
        widths = [
            len(d.choices) if isinstance(d, CategoricalDistribution) else 1
            for d in self._distributions.values()
        ]
        self.owner: NDArray[np.int64] = np.repeat(np.arange(len(widths)), widths)

    def rows(self, parameters: Sequence[Mapping[str, Any]]) -> Array:
        """Return a row for each set of Optuna's parameters, shape (n, columns)."""
        rows = [self._row(params) for params in parameters]
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(self.owner))

    def _row(self, parameters: Mapping[str, Any]) -> list[float]:
        row: list[float] = []
        for name, distribution in self._distributions.items():
            if isinstance(distribution, CategoricalDistribution):
                places = [0.0] * len(distribution.choices)
                if name in parameters:
                    # Two different choices are at a distance of 1.
                    places[int(distribution.to_internal_repr(parameters[name]))] = 0.5**0.5
                row += places
            else:
                row.append(to_unit(distribution, parameters[name]) if name in parameters else 0.5)
        return row


def normal_scores(values: Sequence[float]) -> Array:
    """Return the values' ranks as quantiles of a normal distribution: outliers lose their weight.

    Shape (n,); ties share their mean rank.
    """
    ranks = scipy.stats.rankdata(values)
    return np.asarray(scipy.stats.norm.ppf((ranks - 0.5) / max(len(ranks), 1)), dtype=np.float64)


class GaussianProcess:
    """Gaussian-process regression (Rasmussen and Williams, 2006) with a Matern 5/2 kernel.

    One length scale per group of columns, found by maximum a posteriori.

    Args:
        groups: the group of each column, shape (columns,), numbered from 0
    """

    def __init__(self, groups: NDArray[np.int64]) -> None:
        self._groups = groups
        self._n = int(groups.max(initial=-1)) + 1
        self._theta = np.concatenate([np.full(self._n, _LENGTH[0]), [_AMPLITUDE[0], _NOISE[0]]])

    def fit(self, x: Array, y: Array) -> GaussianProcess:
        """Find the length scales and learn the values.

        Args:
            x: shape (n, columns), in 0..1
            y: shape (n,), about standard normal
        """
        squares = (x[:, None, :] - x[None, :, :]) ** 2
        by_group = np.zeros((self._n, len(x) * len(x)))
        for column, group in enumerate(self._groups):
            by_group[group] += squares[:, :, column].ravel()
        found = scipy.optimize.minimize(
            _negative_log_posterior,
            self._theta,
            args=(by_group, y),
            jac=True,
            method="L-BFGS-B",
            bounds=[(-3.5, 3.5)] * self._n + [(-3.0, 3.0), (-8.0, 1.0)],
            options={"maxiter": MAX_STEPS},
        )
        self._theta = found.x
        return self.learn(x, y)

    def learn(self, x: Array, y: Array) -> GaussianProcess:
        """Learn the values with the length scales as they are; arguments as for `fit`."""
        self._x = x
        self._mean = float(np.mean(y))
        noise = np.exp(self._theta[-1]) + _JITTER
        self._factor = scipy.linalg.cho_factor(
            self._kernel(x, x) + noise * np.eye(len(x)), lower=True
        )
        self._weights = scipy.linalg.cho_solve(self._factor, y - self._mean)
        return self

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Return the mean and the standard deviation at the rows, without noise, shape (n,)."""
        cross = self._kernel(x, self._x)
        mean = self._mean + cross @ self._weights
        half = scipy.linalg.solve_triangular(self._factor[0], cross.T, lower=True)
        variance = np.exp(self._theta[-2]) - (half**2).sum(axis=0)
        return mean, np.sqrt(np.maximum(variance, 1e-12))

    def _kernel(self, a: Array, b: Array) -> Array:
        scale = np.exp(-self._theta[: self._n])[self._groups]
        a, b = a * scale, b * scale
        squares = (a**2).sum(1)[:, None] + (b**2).sum(1)[None, :] - 2 * a @ b.T
        r = np.sqrt(5 * np.maximum(squares, 0))
        kernel: Array = np.exp(self._theta[-2]) * (1 + r + r**2 / 3) * np.exp(-r)
        return kernel


def _negative_log_posterior(theta: Array, squares: Array, y: Array) -> tuple[float, Array]:
    """Return the value and its gradient.

    Args:
        theta: logarithms of the length scales, of the amplitude and of the noise
        squares: squared distances by group, shape (groups, n * n)
        y: shape (n,)
    """
    n, groups = len(y), len(squares)
    amplitude, noise = np.exp(theta[-2]), np.exp(theta[-1])
    inverse_squares = np.exp(-2 * theta[:groups])
    r = np.sqrt(5 * (inverse_squares @ squares)).reshape(n, n)
    decay = amplitude * np.exp(-r)
    kernel = decay * (1 + r + r**2 / 3)
    try:
        factor = scipy.linalg.cho_factor(kernel + (noise + _JITTER) * np.eye(n), lower=True)
    except np.linalg.LinAlgError:
        return 1e10, np.zeros_like(theta)
    inverse = scipy.linalg.cho_solve(factor, np.eye(n))
    y = y - y.mean()
    weights = inverse @ y
    value = 0.5 * y @ weights + np.log(np.diag(factor[0])).sum()
    slope = 0.5 * (inverse - np.outer(weights, weights))
    gradient = np.empty_like(theta)
    gradient[:groups] = (squares @ (slope * decay * (1 + r)).ravel()) * inverse_squares * (5 / 3)
    gradient[-2] = (slope * kernel).sum()
    gradient[-1] = noise * np.trace(slope)
    for part, (mean, deviation) in (
        (slice(0, groups), _LENGTH),
        (slice(groups, groups + 1), _AMPLITUDE),
        (slice(groups + 1, groups + 2), _NOISE),
    ):
        gap = (theta[part] - mean) / deviation
        value += 0.5 * float(gap @ gap)
        gradient[part] += gap / deviation
    return float(value), gradient
