"""Where the next configuration comes from: Optuna's samplers, asked without creating trials.

A sampler is built anew for every trial from the search's seed and the trial's number, and learns
from a view of the study (`views.py`), so a search that was killed goes on as if it had not
been. Beyond that view:

- Starts outside of the ranges appear at the nearest value inside; else one such start would break
  up TPE's joint model, or be lost.
- A candidate that was refused appears as running, so that the next draw keeps away from it.
- With a warm start, the trials of earlier searches appear beside the study's (`warm_start.py`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from rltune.agents.config import config_hash
from rltune.agents.errors import UserError, unknown
from rltune.samplers.cma_es import CmaEs
from rltune.samplers.views import (
    MAX_GP_TRIALS,
    View,
    best_and_latest,
    changed,
    for_complete,
    for_tpe,
    of_first_generation,
    running,
    shared_attrs,
)
from rltune.samplers.warm_start import LEARNERS, PROPOSAL, Earlier, WarmStart
from rltune.study.distributions import ladder, make_distribution, nearest, parameter_name
from rltune.study.optuna_log import quiet
from rltune.study.records import Draw, Start
from rltune.study.study import SearchStudy

if TYPE_CHECKING:
    from rltune.samplers.cost_aware import CostAware
    from rltune.space.dimensions import Dimension
    from rltune.space.space import Space

# Draws for one trial before the candidate comes from the space itself. The GP fits for each draw.
MAX_DRAWS = {"gp": 4}
DEFAULT_MAX_DRAWS = 50
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
    "nsgaiii": {"population_size": 10, "crossover_prob": 0.9, "swapping_prob": 0.5},
    "cost-aware": {"n_startup_trials": 8, "max_cost_exponent": 1.0},
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
_GRID_INDEX = "grid:index"
MAX_REFUSALS = 20  # proposals that the caller may refuse before there is no trial
MAX_FALLBACKS = 1000  # tries to find an unused configuration without the sampler
MAX_ENUMERATED = 20_000  # a space with at most so many points is searched for the last unused one
# Those that Optuna has for several objectives, and those that learn nothing.
FOR_SEVERAL = ("tpe", "gp", "nsgaii", "nsgaiii", "qmc", "random", "grid")
# Where Optuna's genetic samplers keep the generation of a trial.
_GENERATION = {
    "nsgaii": "NSGAIISampler:generation",
    "nsgaiii": "NSGAIIISampler:generation",
}


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
        earlier: what earlier searches found
        other_directions: of further objectives

    Raises:
        UserError: unknown sampler or option, or a space or objectives that it cannot search.
    """

    def __init__(
        self,
        space: Space,
        name: str,
        options: Mapping[str, Any],
        seed: int,
        direction: str,
        earlier: Sequence[Earlier] = (),
        other_directions: Sequence[str] = (),
    ) -> None:
        self.space = space
        self.name = name
        self.options = check_options(name, options)
        self.seed = seed
        directions = [direction, *other_directions]
        self.directions = [StudyDirection[one.upper()] for one in directions]
        if other_directions and name not in FOR_SEVERAL:
            raise UserError(
                f"sampler {name!r} knows one objective only; with --against use "
                f"{', '.join(FOR_SEVERAL[:-1])} or {FOR_SEVERAL[-1]}."
            )
        self.parameters = {n: parameter_name(d) for n, d in space.dimensions.items()}
        self.distributions = {
            self.parameters[n]: make_distribution(d) for n, d in space.dimensions.items()
        }
        if name == "cmaes" and len(self._joint_numbers()) < 2:
            raise UserError(
                "sampler 'cmaes' needs at least two numeric dimensions without a condition; "
                "use tpe, gp, nsgaii, qmc or random for this space"
            )
        self.minimize = tuple(one == StudyDirection.MINIMIZE for one in self.directions)
        self._warm_start: WarmStart | None = None
        if earlier:
            known = [[self.as_parameters(values)[0] for values in one.values] for one in earlier]
            self._warm_start = WarmStart(earlier, known, self.distributions, self.minimize[0])
        self._cost_aware: CostAware | None = None
        if name == "cost-aware":
            from rltune.samplers.cost_aware import CostAware

            self._cost_aware = CostAware(
                space, self.parameters, self.distributions, self.minimize[0], **self.options
            )

    def describe(self) -> str:
        """Say in one sentence what the sampler does in this space, and what it leaves to chance."""
        startup = next(
            (o for o in ("n_startup_trials", "population_size") if o in self.options), None
        )
        parts = []
        if self.name == "grid":
            size = math.prod(map(len, self._ladders().values()))
            parts.append(f"{size:,} points, the invalid ones included")
        if startup:
            parts.append(f"until {self.options[startup]} trials have ended, it draws at random")
        joint = self._joint()
        left = [name for name, p in self.parameters.items() if p not in joint]
        if self.name not in ("tpe", "random", "grid", "cost-aware") and left:
            kinds = "conditional and choice" if self.name == "cmaes" else "conditional"
            parts.append(f"always at random: {', '.join(left)} ({kinds} dimensions)")
        return f"{self.name}: {'; '.join(parts)}" if parts else self.name

    def propose(
        self,
        trials: Sequence[FrozenTrial],
        accept: Callable[[dict[str, Any]], bool] | None = None,
    ) -> Draw | None:
        """Return a configuration for the trial that comes after `trials`.

        It satisfies every constraint and is none of theirs. None: the space has no further one, or
        none was accepted.

        Args:
            trials: all trials of the study, by number
            accept: whether a proposed configuration may become a trial
        """
        known = {trial.user_attrs["hash"] for trial in trials}
        accept = accept or (lambda config: True)
        draw: Draw | None = None
        refused = 0
        for draw in self.draws(trials):
            if not self._is_new(draw.values, known):
                continue
            if accept(self.space.resolve(draw.values)):
                return draw
            refused += 1
            # A grid goes on right there when it is resumed.
            if refused == MAX_REFUSALS or self.name == "grid":
                return None
        if self.name == "grid":
            return None  # it has been gone through
        values = self._unused(known, np.random.default_rng([self.seed, len(trials)]))
        if values is None or draw is None or not accept(self.space.resolve(values)):
            return None
        return Draw(values, "random", draw.system_attrs)

    def _is_new(self, values: Mapping[str, Any], known: set[str]) -> bool:
        """Whether the values make a valid configuration that the study doesn't have."""
        try:
            config = self.space.resolve(values)
        except UserError:  # such as a derived value that divides by zero
            return False
        return not self.space.violations(config) and config_hash(config) not in known

    def _unused(self, known: set[str], rng: np.random.Generator) -> dict[str, Any] | None:
        """Find a valid configuration that the study doesn't have, without the sampler."""
        points = _points(self.space)
        if points is not None:
            unused = [values for values in points if self._is_new(values, known)]
            return unused[int(rng.integers(len(unused)))] if unused else None
        for _ in range(MAX_FALLBACKS):
            values = self.space.sample(rng)
            if self._is_new(values, known):
                return values
        return None

    def draws(self, trials: Sequence[FrozenTrial]) -> Iterator[Draw]:
        """Draw candidates for the trial that comes after `trials`, until the caller accepts one.

        Args:
            trials: all trials of the study, by number
        """
        number = len(trials)
        # What a warm start proposed doesn't count: without trust, the sampler draws as without it.
        drawn = number - sum(trial.user_attrs.get("proposal") == PROPOSAL for trial in trials)
        seed = int(np.random.SeedSequence([self.seed, drawn]).generate_state(1)[0])
        if self._warm_start:
            for values in self._warm_start.proposals(self._inside_all(trials)):
                yield Draw(values, PROPOSAL, {})
        if self.name == "grid":
            yield from self._grid(trials)
        elif self._cost_aware:
            for values, source in self._cost_aware.candidates(self._seen(trials), seed):
                yield Draw(values, source, {})
        else:
            yield from self._optuna(trials, number, seed)

    def _optuna(self, trials: Sequence[FrozenTrial], number: int, seed: int) -> Iterator[Draw]:
        """Ask Optuna's sampler, or one with its interface."""
        trial = running(number, {}, {})
        with quiet():
            sampler = self._make(seed)
            view = View(self._seen(trials), self.directions, shared_attrs(trials))
            joint = self._joint() or self._groups(sampler, view, trial)
        for attempt in range(MAX_DRAWS.get(self.name, DEFAULT_MAX_DRAWS)):
            with quiet():
                relative = sampler.sample_relative(view, trial, joint) if joint else {}
                draw = partial(self._value, sampler, view, trial, relative)
                values = self.space.suggest(draw)
            source = self.name if relative or self.name == "random" else "random"
            yield Draw(values, source, view.notes.of_the_trial())
            view.trials_seen.append(running(number + 1 + attempt, *self.as_parameters(values)))

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
            for name, steps in ladders.items():
                place, step = divmod(place, len(steps))
                point[name] = steps[step]
            yield Draw(self.space.suggest(lambda d: point[d.name]), "grid", {_GRID_INDEX: index})  # noqa: B023

    def _ladders(self) -> dict[str, list[Any]]:
        return {n: ladder(d, self.options["points"]) for n, d in self.space.dimensions.items()}

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
        view: View,
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
            return CmaEs(seed, **options)
        if self.name == "gp":
            return optuna.samplers.GPSampler(seed=seed, **options)
        if self.name == "nsgaiii":
            return optuna.samplers.NSGAIIISampler(seed=seed, **options)
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
        self, sampler: BaseSampler, view: View, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Let TPE find the groups of parameters that appear together.

        One trial for each set of parameters tells as much as all of them, much faster.
        """
        one_each: dict[frozenset[str], FrozenTrial] = {}
        for seen in view.trials_seen:
            if seen.state in (TrialState.COMPLETE, TrialState.PRUNED):
                one_each.setdefault(frozenset(seen.params), seen)
        small = View(list(one_each.values()), self.directions, {})
        return sampler.infer_relative_search_space(small, trial)

    # The study as the sampler sees it

    def _seen(self, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """Return what the sampler learns from."""
        if self.name in ("random", "qmc"):
            return []  # they learn nothing
        known = self._inside_all(trials)
        if self._warm_start and self.name in LEARNERS:
            known = self._warm_start.shown(known)
        if self.name == "cost-aware":
            return known
        if self.name == "tpe":
            return for_tpe(known, self.minimize)
        seen = for_complete(known, self._joint().keys(), self.minimize)
        if self.name in _GENERATION:
            return of_first_generation(seen, _GENERATION[self.name])
        if self.name == "gp":
            return best_and_latest(seen, MAX_GP_TRIALS // 2, MAX_GP_TRIALS, self.minimize)
        return seen

    def _inside_all(self, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """Return the trials that are not waiting, each inside of the ranges."""
        inside = (self._inside(trial) for trial in trials if trial.state != TrialState.WAITING)
        return [trial for trial in inside if trial is not None]

    def _inside(self, trial: FrozenTrial) -> FrozenTrial | None:
        """Give a start the nearest value for what it has outside of its range; None: impossible."""
        if trial.user_attrs.get("origin") == "sampler":
            return trial
        config = trial.user_attrs.get("configuration", {})
        parameters, distributions = dict(trial.params), dict(trial.distributions)
        for name in self.space.active(config):
            if (parameter := self.parameters[name]) in parameters:
                continue
            value = nearest(self.space.dimensions[name], config.get(name))
            if value is None:
                return None
            parameters[parameter] = self.space.dimensions[name].to_internal(value)
            distributions[parameter] = self.distributions[parameter]
        return changed(trial, params=parameters, distributions=distributions)


def _points(space: Space) -> Iterator[dict[str, Any]] | None:
    """Return all points of a small finite space, valid or not; None when there are too many."""
    choices: dict[str, list[Any]] = {}
    for name, dimension in space.dimensions.items():
        internal = dimension.internal
        if internal.type == "float":
            return None
        if internal.type == "categorical":
            choices[name] = list(dimension.choices)
        else:
            steps = range(int(internal.low), int(internal.high) + 1, internal.step)
            choices[name] = [dimension.from_internal(step) for step in steps]
    if math.prod(len(c) for c in choices.values()) > MAX_ENUMERATED:
        return None
    combinations = itertools.product(*choices.values())
    points = (dict(zip(choices, combination, strict=True)) for combination in combinations)
    active = ({name: point[name] for name in space.active(point)} for point in points)
    return iter({config_hash(values): values for values in active}.values())


def open_study(
    path: str | Path,
    space: Space,
    *,
    sampler: str = "tpe",
    sampler_options: Mapping[str, Any] | None = None,
    seed: int = 0,
    direction: str = "maximize",
    starts: Sequence[Start] = (),
    earlier: Sequence[Earlier] = (),
    other_directions: Sequence[str] = (),
) -> SearchStudy:
    """Open the study of a search with its sampler, see `SearchStudy` and `Proposer`.

    Raises:
        UserError: the file cannot be opened or is no study, or the sampler cannot search the space.
    """
    proposer = Proposer(
        space, sampler, sampler_options or {}, seed, direction, earlier, other_directions
    )
    return SearchStudy(path, space, proposer, starts)
