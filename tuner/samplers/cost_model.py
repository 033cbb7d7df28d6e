"""The cost model: the seconds per env step of a configuration, learned from the trials so far.

A Gaussian process on the logarithm, so that costs that multiply add up. What is known before the
first trial is in the prior: numbers that count something (epochs, steps, sizes) and choices change
the price, coefficients (a learning rate, a discount) hardly do, and the updates and samples per
env step do most of all. See Rasmussen and Williams, "Gaussian Processes for Machine
Learning" (2006): 2.7 for the linear part, 5.4.2 for leaving one out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy  # its parts are loaded when they are used: they take half a second
from numpy.typing import NDArray

if TYPE_CHECKING:
    from rltune.space.dimensions import Dimension
    from rltune.space.space import Space

Array = NDArray[np.float64]
Config = Mapping[str, Any]

MAX_TRIALS = 100  # the latest ones; a fit takes the cube of it
# Prior standard deviations of the slopes: in log seconds per log unit of a count, per unit of a
# range scaled to [0, 1], per choice.
COUNT_SLOPE, COEFFICIENT_SLOPE, CHOICE_STEP = 0.3, 0.05, 0.3
WORK_SLOPE, WORK_SPREAD = 0.45, 0.3  # of updates, and of samples, per env step
STEP_IN_UPDATES, STEP_IN_SAMPLES = 0.03, 10.0  # about what a step without any update costs
LEVEL = 10.0  # before the first trial, a step may cost anything
BEND, BEND_LENGTH = 0.3, 2.0  # what is not a power law: its size, and the log units over which
SCALES = (1.0, 4.0)  # of all influences together, should they be larger; the data choose
NOISES = (0.03, 0.1, 0.3)  # of one trial's price, relative; the data choose


class CostModel:
    """Predicts the price of configurations of one space.

    Args:
        space: what is searched. Values beyond its dimensions count too, where they differ.
        budget: env steps of a whole budget; some agents only collect at first, which is cheap

    Attributes:
        error: typical relative error of a prediction, each trial predicted from the others (the
            median); None with fewer than two trials
    """

    def __init__(self, space: Space, budget: int | None = None) -> None:
        self.space = space
        self.budget = budget or space.budget
        self.error: float | None = None
        self._features: list[_Feature] = []
        self._x: Array = np.zeros((0, 0))
        self._weights: Array = np.zeros(0)
        self._scale = 1.0

    def fit(
        self,
        configs: Sequence[Config],
        seconds_per_step: Sequence[float],
        env_steps: Sequence[int] | None = None,
    ) -> CostModel:
        """Learn from trials; those without a positive price are left out.

        Args:
            configs: configurations, with their fixed and derived values
            seconds_per_step: of each, seconds of training and evaluation per env step
            env_steps: how far each got; None: the whole budget
        """
        steps = [self.budget] * len(configs) if env_steps is None else env_steps
        rows = zip(configs, seconds_per_step, steps, strict=True)
        seen = [row for row in rows if math.isfinite(row[1]) and row[1] > 0][-MAX_TRIALS:]
        self.error, self._weights = None, np.zeros(0)
        if not seen:
            return self
        self._features = _features(self.space, [config for config, _, _ in seen])
        self._x = self._matrix([config for config, _, _ in seen], [n for _, _, n in seen])
        y = np.log([seconds for _, seconds, _ in seen])
        kernel, residual = self._kernel(self._x), y - self._prior(self._x)
        best = -math.inf
        for scale, noise in itertools.product(SCALES, NOISES):
            covariance = LEVEL**2 + scale**2 * kernel + noise**2 * np.eye(len(y))
            factor = scipy.linalg.cho_factor(covariance, lower=True)
            weights = scipy.linalg.cho_solve(factor, residual)
            fit = -0.5 * residual @ weights - np.log(np.diag(factor[0])).sum()
            if fit > best:
                best, self._weights, self._scale, chosen = fit, weights, scale, factor
        if len(y) > 1:
            inverse = scipy.linalg.cho_solve(chosen, np.eye(len(y)))
            left_out = np.abs(self._weights / np.diag(inverse))
            self.error = float(np.median(np.expm1(left_out)))
        return self

    def predict(self, configs: Sequence[Config], env_steps: int | None = None) -> Array:
        """Return the seconds per env step of each; NaN while no trial is known.

        Args:
            configs: as in `fit`
            env_steps: how far they are to run; None: the whole budget
        """
        if not len(self._weights):
            return np.full(len(configs), math.nan)
        x = self._matrix(configs, [env_steps or self.budget] * len(configs))
        covariance = LEVEL**2 + self._scale**2 * self._kernel(x, self._x)
        log: Array = self._prior(x) + covariance @ self._weights
        return np.exp(log)

    def _matrix(self, configs: Sequence[Config], env_steps: Sequence[int | None]) -> Array:
        """Return the features, a row per configuration."""
        rows = [
            [feature.read(config, steps) for feature in self._features]
            for config, steps in zip(configs, env_steps, strict=True)
        ]
        return np.array(rows, float).reshape(len(configs), len(self._features))

    def _prior(self, x: Array) -> Array:
        means: Array = np.array([feature.mean for feature in self._features])
        return x @ means

    def _kernel(self, a: Array, b: Array | None = None) -> Array:
        """Return the prior covariances of the log prices of `a` and `b`, without the level."""
        b = a if b is None else b
        spread: Array = np.array([feature.spread for feature in self._features])
        bends = np.array([feature.bends for feature in self._features], bool)
        linear: Array = (a * spread**2) @ b.T
        u, v = a[:, bends] / BEND_LENGTH, b[:, bends] / BEND_LENGTH
        squares = (u**2).sum(1)[:, None] + (v**2).sum(1)[None] - 2 * u @ v.T
        bend: Array = BEND**2 * np.exp(-0.5 * np.maximum(squares, 0))
        covariance: Array = linear + bend
        return covariance


@dataclass(frozen=True)
class _Feature:
    """A number read from a configuration, and what is believed about its influence.

    Attributes:
        read: the number, from a configuration and how many env steps it runs
        spread: prior standard deviation of its slope
        mean: prior mean of its slope
        bends: whether its influence may be no power law
    """

    read: Callable[[Config, int | None], float]
    spread: float
    mean: float = 0.0
    bends: bool = False


def _features(space: Space, configs: Sequence[Config]) -> list[_Feature]:
    """Return the features of the dimensions, of what else differs, and of the work per step."""
    features: list[_Feature] = []
    others = {name: None for config in configs for name in config if name not in space.dimensions}
    for name, dimension in space.dimensions.items():
        values = [config[name] for config in configs if name in config]
        if dimension.kind in ("int", "pow2"):
            features.append(_count(name))
        elif dimension.kind == "choice":
            features += _choices(name, [*dimension.choices, *values])
        else:
            features.append(_coefficient(dimension))
    for name in others:
        values = [config[name] for config in configs if name in config]
        if all(value == values[0] for value in values) and len(values) == len(configs):
            continue
        if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
            features.append(_count(name))
        elif not all(isinstance(value, float) for value in values):
            features += _choices(name, values)
    work = (_log_updates, _log_samples)
    return [*features, *(_Feature(read, WORK_SPREAD, WORK_SLOPE, bends=True) for read in work)]


def _count(name: str) -> _Feature:
    return _Feature(lambda config, _: _log(config.get(name)), COUNT_SLOPE, bends=True)


def _coefficient(dimension: Dimension) -> _Feature:
    """Return its place in its range, from -0.5 to 0.5."""
    internal = dimension.internal
    low, high = internal.low, internal.high
    scale: Callable[[float], float] = math.log if internal.log else float

    def read(config: Config, env_steps: int | None) -> float:
        value = config.get(dimension.name)
        if not dimension.contains(value):
            return 0.0
        place = scale(dimension.to_internal(value)) - scale(low)
        return place / (scale(high) - scale(low)) - 0.5

    return _Feature(read, COEFFICIENT_SLOPE)


def _choices(name: str, values: Sequence[Any]) -> list[_Feature]:
    """Return one feature per value, and the size of networks that are lists of widths."""
    texts = list(dict.fromkeys(map(str, values)))

    def of(text: str) -> _Feature:
        return _Feature(lambda config, _: float(str(config.get(name)) == text), CHOICE_STEP)

    features = [of(text) for text in texts]
    if any(_weights(value) for value in values):
        size = _Feature(lambda c, _: _log(_weights(c.get(name))), COUNT_SLOPE, bends=True)
        features.append(size)
    return features


def _weights(value: Any) -> float:
    """Return the weights between layers of such widths; 0 when it is no list of widths."""
    if not isinstance(value, (list, tuple)) or not value:
        return 0.0
    if not all(isinstance(width, int) and not isinstance(width, bool) for width in value):
        return 0.0
    return float(sum(a * b for a, b in zip([1, *value], [*value, 1], strict=True)))


def _log(value: Any) -> float:
    """Return the logarithm of a count; 0 for what is absent, zero or negative."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0.0
    return math.log(max(value, 1.0))


def _log_updates(config: Config, env_steps: int | None) -> float:
    """Return the log of an env step's price, in updates: a little, and its updates."""
    return math.log(STEP_IN_UPDATES + _updates(config, env_steps))


def _log_samples(config: Config, env_steps: int | None) -> float:
    """Return the log of an env step's price, in samples of a minibatch."""
    samples = _updates(config, env_steps) * _number(config, "batch_size")
    return math.log(STEP_IN_SAMPLES + samples)


def _updates(config: Config, env_steps: int | None) -> float:
    """Return the minibatches per env step, as far as the usual names tell."""
    if "n_epochs" in config:
        return _number(config, "n_epochs") / _number(config, "batch_size")
    every = _number(config, "train_freq")
    steps = every if config.get("gradient_steps") == -1 else _number(config, "gradient_steps")
    starts = config.get("learning_starts")
    learning = 1 - starts / env_steps if env_steps and isinstance(starts, int) else 1.0
    return steps / every * max(learning, 0.0)


def _number(config: Config, name: str) -> float:
    """Return a positive number of the configuration; 1 where it has none."""
    value = config.get(name)
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
    return float(value) if known else 1.0  # type: ignore[arg-type]
