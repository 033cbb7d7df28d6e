"""Where the next configuration comes from: Optuna's samplers, asked without creating trials.

A sampler is built anew for every trial from the search's seed and the trial's number, and learns
from a view of the study, so a search that was killed goes on as if it had not been. The view shows
what Optuna's own would hide or distort:

- Trials that failed through their configuration (`BLAMED`) are the worst of all; Optuna's samplers
  ignore failed trials and go back there.
- To the samplers that know complete trials only (gp, cmaes, nsgaii), a trial that was stopped early
  is a complete one, not better than the worst that ran its full budget.
- Starts outside of the ranges appear at the nearest value inside; else one such start would break
  up TPE's joint model, or be lost.
- A candidate that was refused appears as running, so that the next draw keeps away from it.
"""

from __future__ import annotations

import contextlib
import copy
import math
import warnings
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial
from rltune.agents.errors import UserError, unknown
from rltune.agents.schedules import parse_schedule

if TYPE_CHECKING:
    from rltune.dimensions import Dimension
    from rltune.space import Space

# Kinds of failure that the configuration is to blame for: the text before the colon of a reason.
BLAMED = ("diverged", "error", "out of memory")
# Draws for one trial before the candidate comes from the space itself. The GP fits for each draw.
MAX_DRAWS = {"gp": 4}
DEFAULT_MAX_DRAWS = 50
# A fit takes the longer the more trials there are, the GP's with their cube: they see the best and
# the latest ones.
MAX_GP_TRIALS = 100
MAX_TPE_TRIALS = 500

# Every option and its default. None: the sampler's own choice; the type is then int.
OPTIONS: dict[str, dict[str, Any]] = {
    # Optuna's default of 10 random trials is half of a search of 20.
    "tpe": {
        "n_startup_trials": 8,
        "n_ei_candidates": 24,
        "multivariate": True,
        "group": True,
        "constant_liar": True,
    },
    "random": {},
    "qmc": {"qmc_type": "sobol", "scramble": True},
    "cmaes": {"popsize": None, "sigma": 0.3},
    "gp": {"n_startup_trials": 8, "deterministic_objective": False},
    # Optuna's default population of 50 would be a random search in most of ours.
    "nsgaii": {"population_size": 10, "crossover_prob": 0.9, "swapping_prob": 0.5},
    # Values of a range; a choice has all of its own.
    "grid": {"points": 5},
}
_LOWEST = {
    "n_startup_trials": 1,
    "n_ei_candidates": 1,
    "popsize": 4,
    "population_size": 2,
    "points": 2,
}
_CMA_GENERATION = "cmaes:generation"
_NSGA_GENERATION = "NSGAIISampler:generation"  # Optuna's own key
_GRID_INDEX = "grid:index"
_SHARED = "study:"  # prefix of what a sampler wrote for the whole study, kept with the trial
_LIARS = ("tpe:relative_params", "gp:relative_params")  # the parameters again, of no use here


@dataclass(frozen=True)
class Draw:
    """A candidate.

    Attributes:
        values: of the active dimensions
        source: the sampler's name, or "random" while it has too little to learn from
        system_attrs: what the sampler has to find again beside the trial
    """

    values: dict[str, Any]
    source: str
    system_attrs: dict[str, Any]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence Optuna's log and warnings inside, and leave the user's own settings as they were."""
    with silent_log(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def silent_log() -> Iterator[None]:
    """Silence Optuna's log; around many `quiet`, it spares their asking all loggers anew."""
    level = optuna.logging.get_verbosity()
    if level != optuna.logging.CRITICAL:
        optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    try:
        yield
    finally:
        if level != optuna.logging.CRITICAL:
            optuna.logging.set_verbosity(level)


def check_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of the sampler, defaults filled in.

    Raises:
        UserError: unknown sampler or option, or a value of the wrong type or out of range.
    """
    if name not in OPTIONS:
        raise unknown("sampler", name, OPTIONS)
    values = dict(OPTIONS[name])
    for option, value in options.items():
        if option not in values:
            if not values:
                raise UserError(f"sampler {name!r} has no options; remove {option!r}")
            raise unknown(f"option of sampler {name!r}", option, values)
        values[option] = _checked(f"sampler {name!r}: {option}", option, values[option], value)
    if name == "qmc" and values["qmc_type"] not in ("sobol", "halton"):
        raise unknown("qmc_type", values["qmc_type"], ("sobol", "halton"))
    if name == "tpe" and values["group"] and not values["multivariate"]:
        raise UserError("sampler 'tpe': group needs multivariate; set both to false, or neither")
    return values


def _checked(where: str, option: str, default: Any, value: Any) -> Any:
    if isinstance(default, (bool, str)):
        if not isinstance(value, type(default)):
            kind = "true or false" if isinstance(default, bool) else "a text"
            raise UserError(f"{where} must be {kind}; got {value!r}")
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UserError(f"{where} must be a number; got {value!r}")
    if isinstance(default, float):
        if not 0 < value <= 1:
            raise UserError(f"{where} must be above 0 and at most 1; got {value!r}")
        return float(value)
    if value != int(value) or value < _LOWEST[option]:
        raise UserError(
            f"{where} must be a whole number of at least {_LOWEST[option]}; got {value!r}"
        )
    return int(value)


class Proposer:
    """Draws candidates for one search.

    Args:
        space: what is searched
        name: of the sampler
        options: of the sampler; `OPTIONS` has the names and the defaults
        seed: of the search
        direction: "maximize" or "minimize"

    Raises:
        UserError: unknown sampler or option, or a space that the sampler cannot search.
    """

    def __init__(
        self, space: Space, name: str, options: Mapping[str, Any], seed: int, direction: str
    ) -> None:
        self.space = space
        self.name = name
        self.options = check_options(name, options)
        self.seed = seed
        self.direction = StudyDirection[direction.upper()]
        self.parameters = {n: parameter_name(d) for n, d in space.dimensions.items()}
        self.distributions = {
            self.parameters[n]: make_distribution(d) for n, d in space.dimensions.items()
        }
        if name == "cmaes" and len(self._joint_numbers()) < 2:
            raise UserError(
                "sampler 'cmaes' needs at least two numeric dimensions without a condition; "
                "use tpe, gp, nsgaii, qmc or random for this space"
            )

    def describe(self) -> str:
        """Say in one sentence what the sampler does in this space, and what it leaves to chance."""
        startup = {
            "tpe": "n_startup_trials",
            "gp": "n_startup_trials",
            "nsgaii": "population_size",
        }.get(self.name)
        parts = []
        if self.name == "grid":
            size = math.prod(map(len, self._ladders().values()))
            parts.append(f"{size:,} points, the invalid ones included")
        if startup:
            parts.append(f"until {self.options[startup]} trials have ended, it draws at random")
        joint = self._joint()
        left = [name for name, p in self.parameters.items() if p not in joint]
        if self.name not in ("tpe", "random", "grid") and left:
            kinds = "conditional and choice" if self.name == "cmaes" else "conditional"
            parts.append(f"always at random: {', '.join(left)} ({kinds} dimensions)")
        return f"{self.name}: {'; '.join(parts)}" if parts else self.name

    def draws(self, trials: Sequence[FrozenTrial]) -> Iterator[Draw]:
        """Draw candidates for the trial that comes after `trials`, until the caller accepts one.

        Args:
            trials: all trials of the study, by number
        """
        if self.name == "grid":
            yield from self._grid(trials)
            return
        number = len(trials)
        seed = int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0])
        trial = _running(number, {}, {})
        shared = _shared_attrs(trials)
        with quiet():
            sampler = self._make(seed)
            view = _View(self._seen(trials), self.direction, shared)
            joint = self._joint() or self._groups(sampler, view, trial)
        for attempt in range(MAX_DRAWS.get(self.name, DEFAULT_MAX_DRAWS)):
            with quiet():
                relative = sampler.sample_relative(view, trial, joint) if joint else {}
                draw = partial(self._value, sampler, view, trial, relative)
                values = self.space.suggest(draw)
            source = self.name if relative or self.name == "random" else "random"
            yield Draw(values, source, view.notes.of_the_trial())
            view.trials_seen.append(_running(number + 1 + attempt, *self.as_parameters(values)))

    def _grid(self, trials: Sequence[FrozenTrial]) -> Iterator[Draw]:
        """Go on through the grid, each point once, neighbours far apart in time."""
        ladders = self._ladders()
        size = math.prod(map(len, ladders.values()))
        stride = next(
            n for n in range(int(size * 0.618) + 1, 2 * size + 2) if math.gcd(n, size) == 1
        )
        first = self.seed % size
        begin = max((t.system_attrs.get(_GRID_INDEX, -1) for t in trials), default=-1) + 1
        for index in range(begin, size):
            place, point = (first + stride * index) % size, {}
            for name, ladder in ladders.items():
                place, step = divmod(place, len(ladder))
                point[name] = ladder[step]
            yield Draw(self.space.suggest(lambda d: point[d.name]), "grid", {_GRID_INDEX: index})  # noqa: B023

    def _ladders(self) -> dict[str, list[Any]]:
        return {n: _ladder(d, self.options["points"]) for n, d in self.space.dimensions.items()}

    def as_parameters(
        self, values: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
        """Return Optuna's parameters and distributions for those values that are in their range."""
        parameters = {
            self.parameters[name]: self.space.dimensions[name].to_internal(values[name])
            for name in self.space.active(values)
            if name in values and self.space.dimensions[name].contains(values[name])
        }
        return parameters, {name: self.distributions[name] for name in parameters}

    def _value(
        self,
        sampler: BaseSampler,
        view: _View,
        trial: FrozenTrial,
        relative: Mapping[str, Any],
        dimension: Dimension,
    ) -> Any:
        name = self.parameters[dimension.name]
        distribution = self.distributions[name]
        if isinstance(distribution, CategoricalDistribution) and distribution.single():
            return dimension.from_internal(distribution.choices[0])
        if name in relative:
            return dimension.from_internal(relative[name])
        return dimension.from_internal(sampler.sample_independent(view, trial, name, distribution))

    def _make(self, seed: int) -> BaseSampler:
        options = self.options
        if self.name == "tpe":
            return optuna.samplers.TPESampler(seed=seed, **options)
        if self.name == "random":
            return optuna.samplers.RandomSampler(seed=seed)
        if self.name == "qmc":
            # One sequence for the whole search: its scrambling must not change with the trial.
            independent = optuna.samplers.RandomSampler(seed=seed)
            return optuna.samplers.QMCSampler(
                seed=self.seed, independent_sampler=independent, **options
            )
        if self.name == "cmaes":
            return _CmaEs(seed, **options)
        if self.name == "gp":
            return optuna.samplers.GPSampler(seed=seed, **options)
        return optuna.samplers.NSGAIISampler(seed=seed, **options)

    def _joint(self) -> dict[str, BaseDistribution]:
        """What the sampler draws together. Empty for tpe, which finds its groups itself."""
        if self.name in ("tpe", "random"):
            return {}
        if self.name == "cmaes":
            return self._joint_numbers()
        names = [n for n, dimension in self.space.dimensions.items() if not dimension.when]
        return {
            self.parameters[n]: self.distributions[self.parameters[n]]
            for n in names
            if not self.distributions[self.parameters[n]].single()
        }

    def _joint_numbers(self) -> dict[str, BaseDistribution]:
        return {
            self.parameters[n]: self.distributions[self.parameters[n]]
            for n, dimension in self.space.dimensions.items()
            if not dimension.when and dimension.kind != "choice"
        }

    def _groups(
        self, sampler: BaseSampler, view: _View, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Let TPE find the groups of parameters that appear together.

        One trial for each set of parameters tells as much as all of them, much faster.
        """
        one_each: dict[frozenset[str], FrozenTrial] = {}
        for seen in view.trials_seen:
            if seen.state in (TrialState.COMPLETE, TrialState.PRUNED):
                one_each.setdefault(frozenset(seen.params), seen)
        small = _View(list(one_each.values()), self.direction, {})
        return sampler.infer_relative_search_space(small, trial)

    # The study as the sampler sees it

    def _seen(self, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        if self.name in ("random", "qmc"):
            return []  # they learn nothing
        inside = [self._inside(trial) for trial in trials if trial.state != TrialState.WAITING]
        known = [trial for trial in inside if trial is not None]
        if self.name == "tpe":
            seen = [seen for trial in known if (seen := _seen_by_tpe(trial)) is not None]
            minimize = self.direction == StudyDirection.MINIMIZE
            # Of the good ones TPE takes 25 at most: a tenth is enough.
            return _best_and_latest(seen, MAX_TPE_TRIALS // 10, MAX_TPE_TRIALS, minimize)
        return self._all_complete(known)

    def _inside(self, trial: FrozenTrial) -> FrozenTrial | None:
        """Give a start the nearest value for what it has outside of its range; None: impossible."""
        if trial.user_attrs.get("origin") == "sampler":
            return trial
        config = trial.user_attrs.get("configuration", {})
        parameters, distributions = dict(trial.params), dict(trial.distributions)
        for name in self.space.active(config):
            if (parameter := self.parameters[name]) in parameters:
                continue
            value = _nearest(self.space.dimensions[name], config.get(name))
            if value is None:
                return None
            parameters[parameter] = self.space.dimensions[name].to_internal(value)
            distributions[parameter] = self.distributions[parameter]
        return _changed(trial, params=parameters, distributions=distributions)

    def _all_complete(self, trials: list[FrozenTrial]) -> list[FrozenTrial]:
        """The trials for a sampler that learns from complete ones only and needs every value."""
        joint = self._joint().keys()
        trials = [trial for trial in trials if joint <= trial.params.keys()]
        minimize = self.direction == StudyDirection.MINIMIZE
        worse = max if minimize else min
        complete = [
            t.value for t in trials if t.state == TrialState.COMPLETE and t.value is not None
        ]
        bar = worse(complete, default=-math.inf if minimize else math.inf)
        seen: list[FrozenTrial] = []
        failed: list[FrozenTrial] = []
        for trial in trials:
            if trial.state in (TrialState.COMPLETE, TrialState.RUNNING):
                seen.append(trial)
            elif trial.state == TrialState.PRUNED and trial.value is not None:
                seen.append(_complete(trial, worse(bar, trial.value)))
            elif is_blamed(trial):
                failed.append(trial)
        values = [trial.value for trial in seen if trial.value is not None]
        seen += [_complete(trial, worse(values, default=0.0)) for trial in failed]
        if self.name == "nsgaii":  # starts are of the first generation
            seen = [
                _changed(t, system_attrs={_NSGA_GENERATION: 0, **t.system_attrs})
                if t.state == TrialState.COMPLETE
                else t
                for t in seen
            ]
        if self.name == "gp":
            seen = _best_and_latest(seen, MAX_GP_TRIALS // 2, MAX_GP_TRIALS, minimize)
        return sorted(seen, key=lambda trial: trial.number)


def parameter_name(dimension: Dimension) -> str:
    """Return the name under which Optuna keeps it: its tools show what the sampler works on."""
    if dimension.kind == "pow2":
        return f"log2({dimension.name})"
    return f"1-{dimension.name}" if dimension.kind == "one_minus_log" else dimension.name


def make_distribution(dimension: Dimension) -> BaseDistribution:
    """Return Optuna's distribution of the internal values."""
    internal = dimension.internal
    if internal.type == "categorical":
        return CategoricalDistribution(internal.choices)
    if internal.type == "int":
        return IntDistribution(
            int(internal.low), int(internal.high), log=internal.log, step=internal.step
        )
    return FloatDistribution(internal.low, internal.high, log=internal.log)


def _ladder(dimension: Dimension, points: int) -> list[Any]:
    """Return the dimension's values on a grid: both ends, evenly on its own scale."""
    internal = dimension.internal
    if internal.type == "categorical":
        return list(dimension.choices)
    low, high = float(internal.low), float(internal.high)
    if internal.log:
        low, high = math.log(low), math.log(high)
    values = [low + (high - low) * k / (points - 1) for k in range(points)]
    if internal.log:
        values = [math.exp(value) for value in values]
    if internal.type == "int":
        steps = [round((value - internal.low) / internal.step) for value in values]
        values = [internal.low + internal.step * step for step in steps]
    inside = [min(max(value, internal.low), internal.high) for value in values]
    return [dimension.from_internal(value) for value in dict.fromkeys(inside)]


def is_blamed(trial: FrozenTrial) -> bool:
    """Whether it failed through its configuration, so that the sampler has to keep away."""
    reason = str(trial.user_attrs.get("reason", ""))
    return trial.state == TrialState.FAIL and reason.split(":")[0].strip() in BLAMED


def _seen_by_tpe(trial: FrozenTrial) -> FrozenTrial | None:
    if trial.state in (TrialState.COMPLETE, TrialState.RUNNING):
        return trial
    if trial.state == TrialState.PRUNED:
        return trial if trial.intermediate_values else None
    if is_blamed(trial):
        # To TPE, a pruned trial without a value is worse than every other.
        return _changed(trial, state=TrialState.PRUNED, intermediate_values={})
    return None


def _best_and_latest(
    trials: list[FrozenTrial], n_best: int, n: int, minimize: bool
) -> list[FrozenTrial]:
    """Keep `n` of those that have ended, `n_best` of them for their values, and all that run."""
    ended = [trial for trial in trials if trial.state != TrialState.RUNNING]
    if len(ended) <= n:
        return trials
    complete = [trial for trial in ended if trial.state == TrialState.COMPLETE]
    complete.sort(key=lambda trial: trial.value or 0.0, reverse=not minimize)
    kept = {trial.number for trial in complete[:n_best]}
    rest = sorted((trial.number for trial in ended), reverse=True)
    kept.update([number for number in rest if number not in kept][: n - len(kept)])
    return [t for t in trials if t.number in kept or t.state == TrialState.RUNNING]


def _complete(trial: FrozenTrial, value: float) -> FrozenTrial:
    changed = _changed(trial, state=TrialState.COMPLETE)
    changed.value = value
    return changed


def _changed(trial: FrozenTrial, **attributes: Any) -> FrozenTrial:
    changed = copy.copy(trial)
    for name, value in attributes.items():
        setattr(changed, name, value)
    return changed


def _running(
    number: int, parameters: dict[str, Any], distributions: dict[str, BaseDistribution]
) -> FrozenTrial:
    trial = create_trial(state=TrialState.RUNNING, params=parameters, distributions=distributions)
    trial.number = number
    return trial


def _nearest(dimension: Dimension, value: Any) -> Any:
    """Return the value of the dimension that is nearest to a number or a schedule; None: none."""
    if dimension.kind == "choice" or isinstance(value, bool):
        return None
    try:
        number = parse_schedule(value)[0]
    except (TypeError, ValueError):
        return None
    if dimension.kind == "pow2":
        number = 2 ** round(math.log2(max(number, 1)))
    elif dimension.kind == "int":
        steps = round((number - dimension.low) / dimension.step)
        number = dimension.low + dimension.step * steps
    return min(max(number, dimension.low), dimension.high)


def _shared_attrs(trials: Sequence[FrozenTrial]) -> dict[str, Any]:
    return {
        key[len(_SHARED) :]: value
        for trial in trials
        for key, value in trial.system_attrs.items()
        if key.startswith(_SHARED)
    }


class _Notes:
    """The storage as a sampler sees it: what it writes is kept until the candidate is accepted."""

    def __init__(self, shared: dict[str, Any]) -> None:
        self._shared = shared
        self._written: dict[str, Any] = {}

    def of_the_trial(self) -> dict[str, Any]:
        return {key: v for key, v in self._written.items() if not key.startswith(_LIARS)}

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        self._written[key] = value

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        return self._shared

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        self._shared[key] = value
        self._written[_SHARED + key] = value


class _View(Study):
    """The study as the sampler is to see it; nothing that it writes reaches the storage."""

    def __init__(
        self, trials: list[FrozenTrial], direction: StudyDirection, shared: dict[str, Any]
    ) -> None:
        self.trials_seen = trials
        self.notes = _Notes(shared)
        self.study_name = "view"
        self._study_id = 0
        self._directions = [direction]
        self._storage = self.notes  # type: ignore[assignment]

    def _get_trials(
        self,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
        use_cache: bool = False,
    ) -> list[FrozenTrial]:
        trials = [t for t in self.trials_seen if states is None or t.state in states]
        return copy.deepcopy(trials) if deepcopy else trials


class _CmaEs(BaseSampler):
    """CMA-ES (Hansen, arXiv:1604.00772) on the unit cube.

    Rebuilt for every trial by replaying the finished ones, generation by generation; Optuna's own
    keeps a pickle in the study. Starts belong to the first generation.
    """

    def __init__(self, seed: int, popsize: int | None, sigma: float) -> None:
        self._rng = np.random.default_rng(seed)
        self._popsize = popsize
        self._sigma = sigma
        self._random = optuna.samplers.RandomSampler(seed=seed)

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        from cmaes import CMA

        size = len(search_space)
        cma = CMA(
            mean=np.full(size, 0.5),
            sigma=self._sigma,
            bounds=np.tile([0.0, 1.0], (size, 1)),
            seed=int(self._rng.integers(2**31)),
            population_size=self._popsize,
        )
        complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        # In the order in which they ended: a late one must not rewrite its generation.
        complete.sort(key=lambda t: (t.datetime_complete is None, t.datetime_complete, t.number))
        sign = -1.0 if study.direction == StudyDirection.MAXIMIZE else 1.0
        while True:
            generation = [
                t for t in complete if t.system_attrs.get(_CMA_GENERATION, 0) == cma.generation
            ]
            members = generation[: cma.population_size]
            if len(members) < cma.population_size:
                break
            points = [[_to_unit(d, t.params[n]) for n, d in search_space.items()] for t in members]
            losses = [sign * t.value for t in members if t.value is not None]
            cma.tell(list(zip(np.array(points), losses, strict=True)))
        study._storage.set_trial_system_attr(0, _CMA_GENERATION, cma.generation)
        return {
            name: _from_unit(distribution, u)
            for (name, distribution), u in zip(search_space.items(), cma.ask(), strict=True)
        }

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        return self._random.sample_independent(study, trial, param_name, param_distribution)


def _to_unit(distribution: BaseDistribution, value: float) -> float:
    low, high, log = _bounds(distribution)
    return ((math.log(value) if log else value) - low) / (high - low)


def _from_unit(distribution: BaseDistribution, unit: float) -> float:
    low, high, log = _bounds(distribution)
    value = low + float(unit) * (high - low)
    value = math.exp(value) if log else value
    assert isinstance(distribution, (IntDistribution, FloatDistribution))
    if isinstance(distribution, IntDistribution):
        steps = round((value - distribution.low) / distribution.step)
        value = distribution.low + distribution.step * steps
    return min(max(value, distribution.low), distribution.high)


def _bounds(distribution: BaseDistribution) -> tuple[float, float, bool]:
    """Return the ends of the unit interval, whole numbers with half a step on either side."""
    assert isinstance(distribution, (IntDistribution, FloatDistribution))
    low, high = float(distribution.low), float(distribution.high)
    if isinstance(distribution, IntDistribution):
        low, high = low - distribution.step / 2, high + distribution.step / 2
    return (math.log(low), math.log(high), True) if distribution.log else (low, high, False)
