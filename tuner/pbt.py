"""Population based training: trials learn side by side, and poor ones take over from good ones.

Jaderberg et al., "Population Based Training of Neural Networks" (2017, arXiv:1711.09846). All
members train to the next pause and wait there. Then each of the worst takes over the checkpoint of
one of the best (*exploit*), and goes on with its hyperparameters, somewhat changed (*explore*).
What is found is no configuration but a *schedule* of them, which the tournament trains from the
start on test seeds.

The agent's defaults and the known-good settings are members that are never changed: what they lead
to is what the others have to beat, and the others may take over from them.

Nothing is kept here: who has which configuration since when stands in the study, and a decision
depends on the study and the seed alone. So a search that was killed decides like one that was not.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rltune.agents.config import Hyperparameter, hyperparameters
from rltune.agents.errors import UserError
from rltune.asha import NoScheduler, Reports, Rung, Stretch, check_options, make_scheduler
from rltune.backends.names import RLLIB
from rltune.common.files import atomic_write
from rltune.objectives.seeds import parse_seeds
from rltune.space.surroundings import is_surrounding
from rltune.study.lineage import changes_of, config_at
from rltune.tournament import is_reference

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rltune.runs.directory import RunDir
    from rltune.runs.search_spec import SearchSpec
    from rltune.space.dimensions import Dimension
    from rltune.space.space import Space
    from rltune.study.records import TrialRecord
    from rltune.study.study import SearchStudy

POPULATIONS = ("pbt", "pb2")
DEFAULT_POPULATION = 8
MAX_TRIES = 100  # changes that break a constraint before a member keeps its parent's values
# A change: a factor on a logarithmic scale, a part of the range on a linear one.
FACTOR = 1.25
SHIFT = 0.1


@dataclass(frozen=True)
class Member:
    """A member of the population at a pause.

    Attributes:
        number: of its trial
        config: that it has now
        value: its objective
        fixed: whether it is a point of comparison, which is never changed
    """

    number: int
    config: dict[str, Any]
    value: float
    fixed: bool


@dataclass(frozen=True)
class Observation:
    """What training with a configuration from one pause to the next has brought.

    Attributes:
        stretch: how many pauses there were before
        config: that it had
        before: the objective at the beginning
        gain: what was added to it; None: the training failed
    """

    stretch: int
    config: dict[str, Any]
    before: float
    gain: float | None


class Explorer:
    """Changes the hyperparameters of a trained agent, as far as that is possible.

    Args:
        space: what is searched
        known: the agent's hyperparameters
        resample: how probably a value is drawn anew instead of being changed a little

    Raises:
        UserError: the space has nothing that can change in a training that has begun.
    """

    def __init__(self, space: Space, known: Mapping[str, Hyperparameter], resample: float) -> None:
        self.space = space
        self.resample = resample
        self.kept = {name for name, one in known.items() if not one.mutable}
        self.mutable = [name for name in space.dimensions if name not in self.kept]
        if not self.mutable:
            some = [n for n, one in known.items() if one.mutable and one.low is not None]
            raise UserError(
                f"pbt and pb2 change hyperparameters while an agent trains, and of this space "
                f"({', '.join(space.dimensions)}) none can change then; search another one, such "
                f"as {', '.join(some[:3])}, or take --scheduler asha."
            )

    def learn(self, observations: Sequence[Observation]) -> None:
        """Take in what is known at a pause, before its changes are asked for."""

    def explore(self, parent: Member, stretch: int, rng: np.random.Generator) -> dict[str, Any]:
        """Return the parent's configuration, changed: every mutable dimension a little, or anew.

        Args:
            parent: where the weights come from
            stretch: how many pauses there were, this one included
            rng: all chance comes from it
        """
        return self.changed(
            parent.config, lambda dimension, value: perturb(dimension, value, rng, self.resample)
        )

    def changed(
        self, config: Mapping[str, Any], change: Callable[[Dimension, Any], Any]
    ) -> dict[str, Any]:
        """Return a valid configuration with other values of the mutable dimensions.

        What ``change`` gives is tried until it satisfies the constraints; after so many tries the
        configuration stays as it is.
        """
        others = {n: v for n, v in config.items() if n not in self.space.dimensions}
        home = replace(
            self.space, fixed={n: v for n, v in others.items() if n not in self.space.derived}
        )

        def draw(dimension: Dimension) -> Any:
            value = config[dimension.name]
            return change(dimension, value) if dimension.name in self.mutable else value

        for _ in range(MAX_TRIES):
            try:
                resolved = home.resolve(home.suggest(draw))
            except UserError:  # such as a derived value that divides by zero
                continue
            new = {name: resolved.get(name, value) for name, value in config.items()}
            kept = all(new[name] == config[name] for name in self.kept if name in config)
            if kept and not home.violations(new):
                return new
        return dict(config)


def perturb(dimension: Dimension, value: Any, rng: np.random.Generator, resample: float) -> Any:
    """Return a value next to ``value`` on the dimension's own scale, or, now and then, any.

    On logarithmic scales (that of ``1 - x`` too) it is 1.25 times as large or as small, on linear
    ones a tenth of the range away; whole numbers and exponents change by 1 at least. Choices
    between numbers move to a neighbour, other choices change only when they are drawn anew. What
    lies outside of the range, such as a schedule in known-good settings, stays.
    """
    if rng.random() < resample:
        return dimension.sample(rng)
    up = rng.random() < 0.5
    if not dimension.contains(value):
        return value
    if dimension.kind == "choice":
        return _neighbour(dimension.choices, value, up)
    internal = dimension.internal
    x = dimension.to_internal(value)
    moved = x * (FACTOR if up else 1 / FACTOR)
    if not internal.log:
        moved = x + (SHIFT if up else -SHIFT) * (internal.high - internal.low)
    if internal.type == "int":
        least = internal.step
        moved = max(moved, x + least) if up else min(moved, x - least)
        moved = internal.low + least * round((moved - internal.low) / least)
    return dimension.from_internal(min(max(moved, internal.low), internal.high))


def _neighbour(choices: Sequence[Any], value: Any, up: bool) -> Any:
    if not all(isinstance(c, (int, float)) and not isinstance(c, bool) for c in choices):
        return value
    ordered = sorted(choices)
    place = ordered.index(value) + (1 if up else -1)
    return ordered[min(max(place, 0), len(ordered) - 1)]


class PBT(NoScheduler):
    """The schedule of a population; see `asha.Scheduler`.

    Args:
        study: with the members, one a trial
        pauses: env_steps at which all wait for each other, ascending
        budget: of a trial in env_steps
        explorer: changes configurations
        checkpoint: where a trial's is
        seed: of the search
        quantile: the part of the population that takes over, and that is taken over from
    """

    def __init__(
        self,
        study: SearchStudy,
        pauses: Sequence[int],
        budget: int,
        explorer: Explorer,
        checkpoint: Callable[[int], Path],
        *,
        seed: int = 0,
        quantile: float = 0.25,
    ) -> None:
        self.study = study
        self.pauses = list(pauses)
        self.budget = budget
        self.explorer = explorer
        self.checkpoint = checkpoint
        self.seed = seed
        self.quantile = quantile

    def restore(
        self, reports: Reports, stopped: Iterable[int] = (), training: Reports | None = None
    ) -> None:
        """Put what the study says was taken over in its place: maybe a kill has hindered it."""
        for trial in self.study.trials():
            taken = self._taken(trial.number, trial.attrs.get("stretch", 0))
            if trial.state == "RUNNING" and taken.exists():
                taken.replace(self.checkpoint(trial.number))

    def table(self) -> list[Rung]:
        """Return the pauses and the full budget, with how many members have got there."""
        trials = self.study.trials()
        return [
            Rung(point, sum(point in trial.intermediate for trial in trials), 0, None)
            for point in (*self.pauses, self.budget)
        ]

    def stretch(self, trial: int) -> Stretch:
        """Return what a member trains next: from the pause before to the one behind."""
        record = self.study.trials()[trial]
        ends = [0, *self.pauses, self.budget]
        stretch = record.attrs.get("stretch", 0)
        return Stretch(ends[stretch], ends[stretch + 1], config_at(record, ends[stretch]))

    def next_stretches(self) -> None:
        """Exploit and explore, and send all on to the next pause."""
        trials = self.study.trials()
        waiting = [trial for trial in trials if trial.state == "RUNNING"]
        if not waiting:
            return
        stretch = waiting[0].attrs.get("stretch", 0)
        pause = self.pauses[stretch]
        members = [_member(trial, pause) for trial in waiting]
        parents = self._parents(members, stretch)
        self.explorer.learn([o for trial in trials for o in self._observations(trial, trials)])
        news: dict[int, dict[str, Any]] = {
            member.number: {"stretch": stretch + 1} for member in members
        }
        for number, parent in parents.items():
            config = self.explorer.explore(parent, stretch + 1, self._rng(stretch, number, 1))
            _copy(self.checkpoint(parent.number), self._taken(number, stretch + 1))
            schedule = trials[number].attrs.get("schedule", [])
            change = {"env_steps": pause, "parent": parent.number, "config": config}
            news[number]["schedule"] = [*schedule, change]
        self.study.annotate(news)  # from here on it is decided, whenever the search is killed
        self.restore({})

    def _taken(self, number: int, stretch: int) -> Path:
        """Where a checkpoint lies that was taken over, until the study knows of it."""
        return self.checkpoint(number).with_name(f"taken-{stretch}.pt")

    def _parents(self, members: Sequence[Member], stretch: int) -> dict[int, Member]:
        """Return from whom the worst ones take over, by number."""
        ranked = sorted(members, key=lambda one: (-one.value, one.number))
        n = min(max(1, round(self.quantile * len(ranked))), len(ranked) // 2)
        best = ranked[:n]
        worst = [one for one in reversed(ranked) if not one.fixed and one not in best][:n]
        parents = {one.number: best[self._rng(stretch, one.number, 0).integers(n)] for one in worst}
        return {
            one.number: parents[one.number]
            for one in sorted(worst, key=lambda one: one.number)
            if parents[one.number].value > one.value
        }

    def _rng(self, stretch: int, number: int, purpose: int) -> np.random.Generator:
        """Return where the chance of one decision comes from."""
        return np.random.default_rng([self.seed, stretch, number, purpose])

    def _observations(self, trial: TrialRecord, trials: Sequence[TrialRecord]) -> list[Observation]:
        """Return what the stretches of a trial have brought; the first began with no value."""
        observations = []
        sources = {change["env_steps"]: change["parent"] for change in changes_of(trial)}
        for stretch in range(1, trial.attrs.get("stretch", 0) + 1):
            start, end = self.pauses[stretch - 1], [*self.pauses, self.budget][stretch]
            before = trials[sources.get(start, trial.number)].intermediate.get(start)
            after = trial.intermediate.get(end)
            failed = trial.state == "FAIL" and stretch == trial.attrs.get("stretch", 0)
            if before is not None and (after is not None or failed):
                gain = None if after is None else after - before
                observations.append(Observation(stretch, config_at(trial, start), before, gain))
        return observations


def _member(trial: TrialRecord, pause: int) -> Member:
    # A pause is an evaluation, so whoever waits there has a value.
    return Member(
        trial.number,
        config_at(trial, pause),
        trial.intermediate.get(pause, -np.inf),
        is_reference(trial.origin),
    )


def _copy(source: Path, target: Path) -> None:
    atomic_write(target, lambda temporary: shutil.copyfile(source, temporary))


def members(options: Mapping[str, Any], trials: int | None) -> int:
    """Return the size of the population, which is the number of trials.

    Raises:
        UserError: both are given, and differ.
    """
    size = options.get("population_size")
    if size is not None and trials is not None and size != trials:
        raise UserError(
            f"each member of a population is a trial: --trials {trials} and population_size "
            f"{size} can't both be; leave one out."
        )
    return int(size or trials or DEFAULT_POPULATION)


def pauses(spec: SearchSpec) -> list[int]:
    """Return the env_steps at which the population pauses.

    Without an interval at every evaluation; else at the first one at or after each multiple of it.

    Raises:
        UserError: there is none before the end.
    """
    interval = check_options(spec.scheduler, spec.scheduler_options)["interval"]
    points: list[int] = []
    due = interval or 0
    for point in spec.evaluate_at[:-1]:
        if point >= due:
            points.append(point)
            due = (point // interval + 1) * interval if interval else 0
    if not points:
        raise UserError(
            f"scheduler {spec.scheduler!r} would never change anything: trials are compared at "
            f"evaluations, and of {len(spec.evaluate_at)} there is none between "
            f"{interval or 1:,} and {spec.budget - 1:,} env_steps; lower interval or raise "
            "--evaluations."
        )
    return points


def rungs_of(spec: SearchSpec) -> list[int]:
    """Return the env_steps at which the scheduler compares trials, the budget last.

    Raises:
        UserError: there is no such scheduler or option.
    """
    if spec.scheduler in POPULATIONS:
        return [*pauses(spec), spec.budget]
    scheduler = make_scheduler(spec.scheduler, spec.budget, spec.scheduler_options)
    return [rung.budget for rung in scheduler.table()]


def check_population(
    spec: SearchSpec, space: Space, config_class: type[Any], n_starts: int
) -> None:
    """Find the mistakes that would show up only after a while.

    Args:
        spec: the search
        space: what is searched
        config_class: of the agent's configurations
        n_starts: trials that are points of comparison

    Raises:
        UserError: no population can be trained so.
    """
    options = check_options(spec.scheduler, spec.scheduler_options)
    if spec.agent.startswith(RLLIB):
        raise UserError(
            f"scheduler {spec.scheduler!r} changes hyperparameters while an agent trains, which "
            "RLlib's can't do here; take asha, hyperband, median or none."
        )
    if parse_seeds(spec.seeds) != (False, 1):
        raise UserError(
            f"scheduler {spec.scheduler!r} trains each member on one seed; leave out --seeds, or "
            "take asha."
        )
    pauses(spec)
    make_explorer(spec, space, config_class)
    if members(options, spec.trials) < n_starts + 2:
        others = "" if n_starts == 1 else f" and {n_starts - 1} known-good settings"
        raise UserError(
            f"a population of {spec.trials} is too small: the defaults{others} belong to it and "
            f"are never changed, and at least 2 others are needed; give --trials {n_starts + 2} or "
            "more."
        )


def make_explorer(spec: SearchSpec, space: Space, config_class: type[Any]) -> Explorer:
    """Return what changes the configurations of a search."""
    from rltune.pb2 import PB2Explorer

    around = [name for name in space.dimensions if is_surrounding(name)]
    if around:
        raise UserError(
            f"{spec.scheduler} changes what an agent trains with on the way, and {around[0]} can't "
            "change; fix it, or take --scheduler asha."
        )
    resample = check_options(spec.scheduler, spec.scheduler_options)["resample"]
    kind = PB2Explorer if spec.scheduler == "pb2" else Explorer
    return kind(space, hyperparameters(config_class), resample)


def make_population(
    spec: SearchSpec, space: Space, config_class: type[Any], study: SearchStudy, run: RunDir
) -> PBT:
    """Return the scheduler of a search that is "pbt" or "pb2".

    Raises:
        UserError: an option is wrong, or the space has nothing that can change.
    """
    options = check_options(spec.scheduler, spec.scheduler_options)
    members(options, spec.trials)
    return PBT(
        study,
        pauses(spec),
        spec.budget,
        make_explorer(spec, space, config_class),
        run.checkpoint,
        seed=spec.seed,
        quantile=options["quantile"],
    )
