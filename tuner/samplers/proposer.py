"""Proposals: what is common to all samplers on the way from a draw to the next trial.

A proposal satisfies every constraint and is no configuration that the study already has. A sampler
is asked anew for every trial, with the search's seed and the trial's number, so a search that was
killed goes on as if it had not been. It learns from a view of the study (`views.py`), in which

- starts outside of the ranges appear at the nearest value inside; else one such start would break
  up TPE's joint model, or be lost;
- a candidate that was refused appears as running, so that the next draw keeps away from it;
- with a warm start, the trials of earlier searches appear beside the study's (`warm_start.py`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial
from rltune.agents.config import config_hash
from rltune.agents.errors import UserError
from rltune.samplers.base import Draw
from rltune.samplers.parameters import Parameters
from rltune.samplers.prior import prior_of
from rltune.samplers.registry import DEFAULT, for_several, sampler_class
from rltune.samplers.seen_trials import SeenTrials
from rltune.samplers.warm_start import Earlier, WarmStart
from rltune.study.records import Proposal, StartConfig
from rltune.study.study import SearchStudy

if TYPE_CHECKING:
    from rltune.space.space import Space

MAX_REFUSALS = 20  # proposals that the caller may refuse before there is no trial
MAX_FALLBACKS = 1000  # tries to find an unused configuration without the sampler
MAX_ENUMERATED = 20_000  # a space with at most so many points is searched for the last unused one


class Proposer:
    """Proposes the trials of one search.

    Args:
        space: what is searched
        name: of the sampler, see `registry.SAMPLERS`
        options: of the sampler
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
        self.seed = seed
        self.directions = [StudyDirection[d.upper()] for d in (direction, *other_directions)]
        kind = sampler_class(name)
        values = kind.checked_options(options)
        if other_directions and not kind.for_several:
            *names, last = for_several()
            raise UserError(
                f"sampler {name!r} knows one objective only; with --against use "
                f"{', '.join(names)} or {last}."
            )
        self.parameters = Parameters(space)
        self.sampler = kind(self.parameters, self.directions, seed, values)
        self.minimize = self.sampler.minimize
        self._warm_start: WarmStart | None = None
        if (prior := prior_of(space)) is not None and not other_directions:
            earlier = [*earlier, prior]
        if earlier:
            known = [[self.as_parameters(values)[0] for values in run.values] for run in earlier]
            distributions = self.parameters.distributions
            self._warm_start = WarmStart(earlier, known, distributions, self.minimize[0])
        self._seen = SeenTrials(self.sampler, learns_from_all=self._warm_start is not None)

    def describe(self) -> str:
        """Say in one sentence what the sampler does in this space, and what it leaves to chance."""
        return self.sampler.describe()

    def as_parameters(
        self, values: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
        """Return Optuna's parameters and distributions for those values that are in their range."""
        return self.parameters.of(values)

    def propose(
        self,
        trials: Sequence[FrozenTrial],
        accept: Callable[[dict[str, Any]], bool] | None = None,
    ) -> Proposal | None:
        """Return a configuration for the trial that comes after `trials`.

        It satisfies every constraint and is none of theirs. None: the space has no further one, or
        none was accepted.

        Args:
            trials: all trials of the study, by number
            accept: whether a proposed configuration may become a trial
        """
        self._seen.update(trials)
        known = self._seen.hashes
        accept = accept or (lambda config: True)
        draw: Draw | None = None
        refused = 0
        for draw in self.draws(trials):
            config = self._new_config(draw.values, known)
            if config is None:
                continue
            if accept(config):
                return Proposal(config, draw.values, draw.source, draw.system_attrs)
            refused += 1
            if refused == MAX_REFUSALS or self.sampler.is_exhaustive:
                return None
        if self.sampler.is_exhaustive or draw is None:
            return None
        unused = self._unused(known, np.random.default_rng([self.seed, len(trials)]))
        if unused is None or not accept(unused[1]):
            return None
        values, config = unused
        return Proposal(config, values, "random", draw.system_attrs)

    def draws(self, trials: Sequence[FrozenTrial]) -> Iterator[Draw]:
        """Draw candidates for the trial that comes after `trials`, until the caller takes one.

        Args:
            trials: all trials of the study, by number
        """
        self._seen.update(trials)
        # What a warm start proposed doesn't count: without trust, the sampler draws as without it.
        drawn = len(trials) - self._seen.from_warm_start
        seed = int(np.random.SeedSequence([self.seed, drawn]).generate_state(1)[0])
        if self._warm_start:
            for values, source in self._warm_start.proposals(self._seen.inside()):
                yield Draw(values, source, {})
        yield from self.sampler.draws(trials, self.known(trials), seed)

    def known(self, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """Return the trials to learn from: the study's, after those of a warm start."""
        self._seen.update(trials)
        inside = self._seen.inside()
        if self._warm_start and self.sampler.learns_from_earlier:
            return self._warm_start.shown(inside)
        return inside

    def _new_config(self, values: Mapping[str, Any], known: set[str]) -> dict[str, Any] | None:
        """Return the configuration; None: it is invalid, or the study has it (by its hash)."""
        try:
            config = self.space.resolve(values)
        except UserError:  # such as a derived value that divides by zero
            return None
        is_new = not self.space.violations(config) and config_hash(config) not in known
        return config if is_new else None

    def _unused(
        self, known: set[str], rng: np.random.Generator
    ) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Find values and their configuration that the study doesn't have, without the sampler."""
        points = _points(self.space)
        if points is not None:
            pairs = ((values, self._new_config(values, known)) for values in points)
            unused = [(values, config) for values, config in pairs if config is not None]
            return unused[int(rng.integers(len(unused)))] if unused else None
        for _ in range(MAX_FALLBACKS):
            values = self.space.sample(rng)
            if (config := self._new_config(values, known)) is not None:
                return values, config
        return None


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
    sampler: str = DEFAULT,
    sampler_options: Mapping[str, Any] | None = None,
    seed: int = 0,
    direction: str = "maximize",
    starts: Sequence[StartConfig] = (),
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
