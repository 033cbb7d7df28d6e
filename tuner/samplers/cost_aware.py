"""Cost-aware Bayesian optimisation: proposals weighed by predicted return and predicted cost.

After CARBS (Fetterman et al., arXiv:2306.08055) and PufferLib's Protein: candidates come from
around the Pareto front of (return, cost), a Gaussian process predicts their return, another model
their cost, and how much the cost counts changes from proposal to proposal. Different here: choices
and conditional dimensions take part, trials at all rungs teach (how far a trial got is an input of
the model), and the score is the expected improvement divided by a power of the cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from optuna.distributions import CategoricalDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from rltune.agents.errors import UserError
from rltune.samplers.base import Draw, Sampler, SamplerOption
from rltune.samplers.cost_model import MAX_TRIALS as COST_TRIALS
from rltune.samplers.cost_model import CostModel
from rltune.samplers.parameters import Parameters
from rltune.samplers.surrogate import Array, Encoder, GaussianProcess, normal_scores
from rltune.samplers.views import is_blamed, is_evidence
from rltune.study.distributions import from_unit, to_unit
from scipy.stats import norm

if TYPE_CHECKING:
    from rltune.space.dimensions import Dimension

MAX_TRIALS = 80  # that the model of the return learns from: the best half and the latest
N_LOCAL = 72  # candidates around the front, and as many from everywhere
N_WIDE = 24
SCALES = (0.03, 0.3)  # of the steps away from the front, parts of a range
MIN_COSTS = 3  # trials of known cost before it counts
_LOWEST_PART = 0.01  # of the budget; the logarithm of a lower one counts as this


class CostAware(Sampler):
    """Draws candidates, the most promising first.

    Its options: until ``n_startup_trials`` have ended, it draws at random; a proposal's expected
    improvement is divided by its cost to the power of a random number between 0 and
    ``max_cost_exponent``.
    """

    name = "cost-aware"
    options: ClassVar = {
        "n_startup_trials": SamplerOption(8, lowest=1),
        "max_cost_exponent": SamplerOption(1.0),
    }
    learns_from_earlier = True
    needs = (MAX_TRIALS // 2, max(MAX_TRIALS, COST_TRIALS))

    def __init__(
        self,
        parameters: Parameters,
        directions: Sequence[StudyDirection],
        seed: int,
        values: Mapping[str, Any],
    ) -> None:
        super().__init__(parameters, directions, seed, values)
        self._space = parameters.space
        self._distributions = parameters.distributions
        self._sign = -1.0 if self.minimize[0] else 1.0
        self._encoder = Encoder(parameters.distributions)
        self._rows: dict[int, Array] = {}  # by the number of the trial

    def draws(
        self, trials: Sequence[FrozenTrial], known: Sequence[FrozenTrial], seed: int
    ) -> Iterator[Draw]:
        """Draw candidates; of ``known``, trials with negative numbers are of earlier searches."""
        rng = np.random.default_rng(seed)
        ended = [trial for trial in known if is_evidence(trial)]
        evidence = _best_and_latest(ended, self._sign)
        costs = self._learn_costs(ended)
        if len(evidence) < self.values["n_startup_trials"]:
            drawn = [self._draw(rng) for _ in range(N_WIDE)]
            prices = self._prices(costs, [values for values, _ in drawn])
            yield from (Draw(drawn[i][0], "random", {}) for i in _shuffled(prices, rng))
            return
        front = _front(evidence, self._sign, self._prices(costs, [_config(t) for t in evidence]))
        near = rng.choice(len(front), N_LOCAL)
        drawn = [self._draw(rng, front[i]) for i in near]
        drawn += [self._draw(rng) for _ in range(N_WIDE)]
        prices = self._prices(costs, [values for values, _ in drawn])
        running = [trial for trial in known if trial.state == TrialState.RUNNING]
        improvement = self._improvement(evidence, running, [parameters for _, parameters in drawn])
        score = np.log(improvement) - rng.uniform(0, self.values["max_cost_exponent"]) * prices
        yield from (Draw(drawn[i][0], self.name, {}) for i in np.argsort(-score))

    def merit(self, trial: FrozenTrial) -> float | None:
        """Return the value of a trial that tells something, whatever its budget was."""
        return None if is_blamed(trial) or trial.value is None else self._sign * trial.value

    # Candidates

    def _draw(
        self, rng: np.random.Generator, around: FrozenTrial | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return values of the active dimensions, and Optuna's parameters for them."""
        known = around.params if around else {}
        scale = math.exp(rng.uniform(math.log(SCALES[0]), math.log(SCALES[1])))
        parameters: dict[str, Any] = {}

        def value(dimension: Dimension) -> Any:
            name = self.parameters.names[dimension.name]
            distribution = self._distributions[name]
            if isinstance(distribution, CategoricalDistribution):
                index = int(rng.integers(len(distribution.choices)))
                stays = name in known and rng.random() > scale
                new = known[name] if stays else distribution.choices[index]
            else:
                unit = rng.random()
                if name in known:
                    unit = to_unit(distribution, known[name]) + scale * rng.normal()
                    unit = abs(unit) if unit < 1 else 2 - unit  # mirrored at the ends
                new = from_unit(distribution, min(max(unit, 0.0), 1.0))
            parameters[name] = new
            return dimension.from_internal(new)

        return self._space.suggest(value), parameters

    # The models

    def _improvement(
        self,
        evidence: Sequence[FrozenTrial],
        running: Sequence[FrozenTrial],
        candidates: Sequence[Mapping[str, Any]],
    ) -> Array:
        """Return the expected improvement at the whole budget over the best that is known."""
        y = normal_scores(_values(evidence, self._sign))
        parts = _parts(evidence)
        x = np.column_stack([self._encoded(evidence), parts])
        groups = np.append(self._encoder.owner, self._encoder.owner.max(initial=-1) + 1)
        model = GaussianProcess(groups).fit(x, y)
        if running:  # as if they were to end as predicted: the next one keeps away
            there = self._full(self._encoder.rows([trial.params for trial in running]))
            x, y = np.vstack([x, there]), np.append(y, model.predict(there)[0])
            model.learn(x, y)
        best = model.predict(self._full(x[:, :-1]))[0].max()
        mean, deviation = model.predict(self._full(self._encoder.rows(candidates)))
        gap = (mean - best) / deviation
        improvement: Array = deviation * (gap * norm.cdf(gap) + norm.pdf(gap))
        return np.maximum(improvement, 1e-12)

    def _full(self, rows: Array) -> Array:
        return np.column_stack([rows, np.ones(len(rows))])

    def _encoded(self, trials: Sequence[FrozenTrial]) -> Array:
        new = [trial for trial in trials if trial.number not in self._rows]
        rows = self._encoder.rows([trial.params for trial in new])
        known = self._rows | {t.number: row for t, row in zip(new, rows, strict=True)}
        self._rows = {number: row for number, row in known.items() if number >= 0}
        return np.array([known[trial.number] for trial in trials])

    def _learn_costs(self, trials: Sequence[FrozenTrial]) -> CostModel | None:
        latest = trials[-COST_TRIALS:]  # more would not be used
        known = [(_config(t), *cost) for t in latest if (cost := _cost(t)) is not None]
        if len(known) < MIN_COSTS:
            return None
        configs, prices, steps = zip(*known, strict=True)
        return CostModel(self._space, max(steps)).fit(configs, prices, steps)

    def _prices(self, costs: CostModel | None, configs: Sequence[Mapping[str, Any]]) -> Array:
        """Return the logarithms of the predicted costs; zeros while nothing is known."""
        if costs is None:
            return np.zeros(len(configs))
        return np.log(costs.predict([self._whole(config) for config in configs]))

    def _whole(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return it with its fixed and derived values, which may be what costs."""
        try:
            return self._space.resolve(config)
        except UserError:  # a division by zero; such a candidate will be refused
            return {**self._space.fixed, **config}


def _config(trial: FrozenTrial) -> dict[str, Any]:
    config: dict[str, Any] = trial.user_attrs["configuration"]
    return config


def _cost(trial: FrozenTrial) -> tuple[float, int] | None:
    """Return the seconds per env step, and the steps; None: not known."""
    attrs = trial.user_attrs.get("attrs", {})
    seconds, steps = attrs.get("seconds"), attrs.get("env_steps") or attrs.get("budget_reached")
    return (seconds / steps, steps) if seconds and steps else None


def _values(trials: Sequence[FrozenTrial], sign: float) -> list[float]:
    """Return the trials' last values, the greater the better; failed ones have the worst."""
    values = [None if is_blamed(t) or t.value is None else sign * t.value for t in trials]
    worst = min((value for value in values if value is not None), default=0.0)
    return [worst if value is None else value for value in values]


def _parts(trials: Sequence[FrozenTrial]) -> Array:
    """Return each trial's part of the budget on a log scale: 1 is all, 0 a hundredth or less."""
    most = max((max(t.intermediate_values, default=1) for t in trials), default=1)
    parts = [
        max(t.intermediate_values, default=most) / most if t.state == TrialState.PRUNED else 1.0
        for t in trials
    ]
    return 1 - np.log(np.maximum(parts, _LOWEST_PART)) / math.log(_LOWEST_PART)


def _best_and_latest(trials: Sequence[FrozenTrial], sign: float) -> list[FrozenTrial]:
    if len(trials) <= MAX_TRIALS:
        return list(trials)
    order = np.argsort([-value for value in _values(trials, sign)], kind="stable").tolist()
    kept = set(order[: MAX_TRIALS // 2])
    latest = [i for i in reversed(range(len(trials))) if i not in kept]
    kept.update(latest[: MAX_TRIALS - len(kept)])
    return [trials[i] for i in sorted(kept)]


def _front(trials: Sequence[FrozenTrial], sign: float, prices: Array) -> list[FrozenTrial]:
    """Return the trials than which none is both better and cheaper."""
    values = np.array(_values(trials, sign))
    front: list[FrozenTrial] = []
    cheapest = math.inf
    for i in np.lexsort([prices, -values]):  # the best first, of equal ones the cheaper
        if prices[i] < cheapest:
            front.append(trials[i])
            cheapest = prices[i]
    return front


def _shuffled(prices: Array, rng: np.random.Generator) -> list[int]:
    """Return an order by chance in which the cheap tend to come first."""
    chance = -prices + rng.gumbel(size=len(prices))
    order: list[int] = np.argsort(-chance).tolist()
    return order
