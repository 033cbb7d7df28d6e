"""Replay of a sampler: a recorded search again, with its own sampler or with another one.

With the search's own sampler, every configuration is proposed again from what was known when it
was: `proposed_again` counts them. What another sampler would have proposed was never trained. So
`replay_sampler` lets the nearest recorded configuration that is left stand for each proposal, and
says how soon the best ones come, against the recorded order and against chance.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState
from rltune.agents.config import config_hash
from rltune.agents.errors import UserError
from rltune.analysis.replay_scheduler import reports, searched
from rltune.common.reading import reading
from rltune.runs.reader import RunReader
from rltune.samplers.earlier_runs import take_over
from rltune.samplers.proposer import Proposer
from rltune.samplers.views import changed
from rltune.schedulers.base import Scheduler
from rltune.schedulers.registry import make_scheduler
from rltune.schedulers.resource import Resource
from rltune.space.space import Space
from rltune.study.database import read_study
from rltune.study.distributions import to_unit
from rltune.study.optuna_log import quiet
from rltune.study.records import PROPOSED_AT, Proposal
from rltune.study.stored_parameters import StoredParameters

if TYPE_CHECKING:
    from rltune.runs.search_spec import SearchSpec

BEST = 3  # how many of the best count as good ones
BY_CHANCE = 200  # orders by chance

# point, value, standard error, training return
Reports = list[tuple[int, float, float, float | None]]


@dataclass(frozen=True)
class Reached:
    """The trials and env steps in which searches found the best proposals.

    Attributes:
        best: (trials, env steps) until then and with it, of each search; starts are in them
        first_good: the same of whichever of the `BEST` came first
    """

    best: tuple[tuple[int, int], ...]
    first_good: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class SamplerReplay:
    """A recorded search in the order of another sampler.

    Attributes:
        sampler: its name
        options: all of its options
        scheduler: what stops trials meanwhile
        proposals: recorded configurations that a sampler had proposed, which are those to be found
        good: the numbers of the best of them that ran their whole budget, best first
        sampled: of the searches in its order
        by_chance: of searches in any order
        recorded: of one in the recorded order
        distance: of a stand-in from what was proposed, on average: 0 is the same, 1 the other end
            of every dimension
        apart: the average distance of two recorded proposals
    """

    sampler: str
    options: dict[str, Any]
    scheduler: str
    proposals: int
    good: tuple[int, ...]
    sampled: Reached
    by_chance: Reached
    recorded: Reached
    distance: float
    apart: float


def proposed_again(run: str | os.PathLike[str] | RunReader) -> tuple[int, int]:
    """Return the number of recorded proposals that the search's sampler makes again, and of all.

    Raises:
        UserError: there is no such search, or its study is damaged.
    """
    recorded, spec = searched(run)
    proposer = _proposer(recorded, spec, spec.sampler, spec.sampler_options, spec.seed)
    with reading(recorded.rundir.study_path):
        trials = _trials(recorded, proposer.space)
        proposals = [trial for trial in trials if _is_proposal(trial)]
        return sum(_proposes(proposer, trials, trial, spec) for trial in proposals), len(proposals)


def replay_sampler(
    run: str | os.PathLike[str] | RunReader,
    sampler: str,
    sampler_options: Mapping[str, Any] | None = None,
    scheduler: str | None = None,
    scheduler_options: Mapping[str, Any] | None = None,
    repetitions: int = 20,
) -> SamplerReplay:
    """Return the trials and env steps that a sampler takes to the best recorded configurations.

    The starts come first, as they did. Then the sampler proposes, one trial at a time, knowing what
    the recorded evaluations tell of the trials before. A trial that the scheduler stops costs no
    more.

    Args:
        run: the run directory, its name, or latest
        sampler, sampler_options: see `samplers.registry`
        scheduler, scheduler_options: as in `replay`; None: the search's own
        repetitions: searches, each with another seed

    Raises:
        UserError: there is no such search, sampler, scheduler or option, or nothing to be found.
    """
    if repetitions < 1:
        raise UserError(f"--repetitions must be at least 1, not {repetitions}.")
    recorded, spec = searched(run, scheduler)
    if spec.against:
        raise UserError("a search with several objectives can't be replayed with a sampler.")
    name, options = scheduler or spec.scheduler, scheduler_options
    if scheduler is None and options is None:
        options = spec.scheduler_options
    judge = partial(make_scheduler, name, spec.budget, dict(options or {}))
    proposer = _proposer(recorded, spec, sampler, sampler_options or {}, spec.seed)
    with reading(recorded.rundir.study_path):
        pool = _Pool(recorded, spec, proposer, dict(options or {}))
    searches = []
    for seed in range(spec.seed, spec.seed + repetitions):
        another = _proposer(recorded, spec, sampler, sampler_options or {}, seed)
        searches.append(_simulate(pool, judge, another, seed=seed))
    distances = [distance for search in searches for distance in search.distances]
    return SamplerReplay(
        sampler=sampler,
        options=proposer.sampler.values,
        scheduler=name,
        proposals=len(pool.proposals),
        good=tuple(pool.good),
        sampled=_reached(searches, pool),
        by_chance=_reached([_simulate(pool, judge, None, seed=n) for n in range(BY_CHANCE)], pool),
        recorded=_reached([_simulate(pool, judge, None, seed=None)], pool),
        distance=float(np.mean(distances)) if distances else 0.0,
        apart=pool.apart(),
    )


class _Pool:
    """The recorded trials that have a value: starts, and proposals that are to be found."""

    def __init__(
        self, recorded: RunReader, spec: SearchSpec, proposer: Proposer, options: Mapping[str, Any]
    ) -> None:
        table = recorded.trials()
        self.resource = Resource.of(spec, options, read_history=recorded.history)
        complete = set(table["trial"][table["state"] == "COMPLETE"])
        self.proposer = proposer
        self.reports: dict[int, Reports] = {}
        for number, *report in reports(recorded.history(), spec, complete):
            self.reports.setdefault(number, []).append(tuple(report))  # type: ignore[arg-type]
        trials = {trial.number: trial for trial in _trials(recorded, proposer.space)}
        self.trials = {number: trials[number] for number in sorted(self.reports)}
        self.proposals = [n for n, trial in self.trials.items() if _is_proposal(trial)]
        self.starts = [number for number in self.trials if number not in set(self.proposals)]
        whole = [number for number in self.proposals if number in complete]
        whole.sort(key=lambda number: (-self.reports[number][-1][1], number))
        self.good = whole[:BEST]
        if len(self.proposals) < 2 or not whole:
            raise UserError(
                f"{recorded.path}: fewer than two proposals have a value, or none of them ran its "
                "whole budget; there is nothing for another sampler to find."
            )

    def distance(self, a: Mapping[str, Any], b: Mapping[str, Any]) -> float:
        """Return the distance of two configurations in Optuna's parameters: 0 to 1."""
        total = 0.0
        for name, distribution in self.proposer.parameters.distributions.items():
            if name not in a or name not in b:
                total += (name in a) != (name in b)
            elif isinstance(distribution, CategoricalDistribution):
                total += a[name] != b[name]
            elif not distribution.single():
                total += abs(to_unit(distribution, a[name]) - to_unit(distribution, b[name]))
        return total / len(self.proposer.parameters.distributions)

    def apart(self) -> float:
        """Return the average distance of two proposals."""
        parameters = [self.trials[number].params for number in self.proposals]
        pairs = [(a, b) for i, a in enumerate(parameters) for b in parameters[:i]]
        return float(np.mean([self.distance(a, b) for a, b in pairs]))


@dataclass
class _SimulatedSearch:
    """A simulated search: its trials in their order, and the env steps of each."""

    order: list[int]
    env_steps: list[int]
    distances: list[float]


def _simulate(
    pool: _Pool,
    judge: Callable[[], Scheduler],
    proposer: Proposer | None,
    *,
    seed: int | None,
) -> _SimulatedSearch:
    """Run one search until it has the best proposal; without a proposer in any order by chance.

    Without a seed, too, in the recorded order.
    """
    rng = np.random.default_rng(seed)
    left = list(pool.proposals)
    if proposer is None and seed is not None:
        rng.shuffle(left)
    scheduler, search, seen = judge(), _SimulatedSearch([], [], []), list[FrozenTrial]()
    for number in [*pool.starts, *[None] * len(left)]:
        proposal: Proposal | None = None
        if number is None and proposer is not None:
            proposal = proposer.propose(seen)
            if proposal is None:  # such as a grid that has been gone through
                number = left[int(rng.integers(len(left)))]
            else:
                wanted = proposer.as_parameters(proposal.values)[0]
                far = [pool.distance(wanted, pool.trials[n].params) for n in left]
                number = left[int(np.argmin(far))]
                search.distances.append(min(far))
        elif number is None:
            number = left[0]
        if number in left:
            left.remove(number)
        trial = _train(pool, scheduler, number, len(seen), proposal)
        seen.append(trial)
        search.order.append(number)
        search.env_steps.append(max(trial.intermediate_values))
        if number == pool.good[0]:
            break
    return search


def _train(
    pool: _Pool, scheduler: Scheduler, number: int, place: int, proposal: Proposal | None
) -> FrozenTrial:
    """Return the recorded trial as the scheduler makes it end, at a place in another study."""
    trial, known = pool.trials[number], dict[int, float]()
    state = trial.state
    for point, value, standard_error, training in pool.reports[number]:
        known[point] = value
        last = point == pool.reports[number][-1][0]
        at = pool.resource.at(number, point)
        # A complete trial has nothing left to stop.
        if scheduler.decide(place, at, value, standard_error, training) == "stop" and not (
            last and state == TrialState.COMPLETE
        ):
            state = TrialState.PRUNED
            break
    ended = changed(
        trial,
        number=place,
        state=TrialState.PRUNED if state == TrialState.RUNNING else state,
        intermediate_values=known,
        user_attrs=dict(trial.user_attrs),
        system_attrs=dict(proposal.system_attrs) if proposal else {},
    )
    point, value = list(known.items())[-1]
    ended.values = None if ended.state == TrialState.FAIL else [value]
    if state != trial.state:
        ended.user_attrs["reason"] = "stopped"
    if proposal is not None:
        ended.user_attrs["proposal"] = proposal.source
    return ended


def _reached(searches: Sequence[_SimulatedSearch], pool: _Pool) -> Reached:
    def until(search: _SimulatedSearch, wanted: Sequence[int]) -> tuple[int, int]:
        place = min(search.order.index(number) for number in wanted if number in search.order)
        return place + 1, sum(search.env_steps[: place + 1])

    return Reached(
        best=tuple(until(search, pool.good[:1]) for search in searches),
        first_good=tuple(until(search, pool.good) for search in searches),
    )


def _proposer(
    recorded: RunReader, spec: SearchSpec, sampler: str, options: Mapping[str, Any], seed: int
) -> Proposer:

    space = Space.from_dict(spec.space)
    return Proposer(
        space,
        sampler,
        options,
        seed,
        "maximize",
        take_over(recorded.rundir, (), space, {}),
        [goal.direction for goal in spec.goals[1:]],
    )


def _trials(recorded: RunReader, space: Space) -> list[FrozenTrial]:
    path = Path(recorded.rundir.study_path)
    if not path.exists():
        raise UserError(f"{path} is not there; without the study no sampler can be replayed.")
    with quiet():
        stored = StoredParameters(space)
        trials = [stored.from_file(trial) for trial in read_study(path)]
    return [trial for trial in trials if trial.state != TrialState.WAITING]


def _is_proposal(trial: FrozenTrial) -> bool:
    return bool(trial.user_attrs["origin"] == "sampler")


def _proposes(
    proposer: Proposer, trials: Sequence[FrozenTrial], trial: FrozenTrial, spec: SearchSpec
) -> bool:
    """Whether the sampler proposes it from what was known when it was."""
    asked = trial.datetime_start
    assert asked is not None
    if PROPOSED_AT in trial.user_attrs:
        asked = datetime.fromisoformat(trial.user_attrs[PROPOSED_AT])
    seen = []
    for before in trials[: trial.number]:
        if before.datetime_complete is None or before.datetime_complete > asked:
            attrs = {**before.user_attrs, "reason": ""}
            before = changed(before, state=TrialState.RUNNING, user_attrs=attrs)
            before.values = None
        seen.append(before)
    hash_ = trial.user_attrs["hash"]

    def accept(config: dict[str, Any]) -> bool:
        # With a time limit, what was too dear had been passed over.
        return spec.time_limit is None or config_hash(config) == hash_

    proposal = proposer.propose(seen, accept)
    return proposal is not None and config_hash(proposal.config) == hash_
