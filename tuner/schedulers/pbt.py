"""Population based training (PBT): trials learn side by side, poor ones take over from good ones.

Jaderberg et al., "Population Based Training of Neural Networks" (2017, arXiv:1711.09846). All
members train to the next pause and wait there. Then each of the worst takes over the checkpoint of
one of the best (*exploit*), and goes on with its hyperparameters, somewhat changed (*explore*).
What is found is no configuration but a *schedule* of them, which the tournament trains from the
start on test seeds.

The agent's defaults and the known-good settings are members that are never changed: what they lead
to is what the others have to beat, and the others may take over from them.

Nothing is kept here: which trial has which configuration since when stands in the study, and a
decision depends on the study and the seed alone. So a search that was killed decides like one that
was not.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from rltune.agents.config import hyperparameters
from rltune.agents.errors import UserError
from rltune.backends.registry import backend_of
from rltune.common.files import atomic_write
from rltune.objectives.seeds import parse_seeds
from rltune.schedulers.base import Reports, Rung, Scheduler, Segment
from rltune.schedulers.explorers import Explorer, Observation, PopulationMember
from rltune.schedulers.options import SchedulerOption
from rltune.space.surroundings import is_surrounding
from rltune.study.lineage import changes_of, config_at
from rltune.study.records import is_reference

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rltune.runs.search_spec import SearchSpec
    from rltune.schedulers.base import Setup
    from rltune.space.space import Space
    from rltune.study.records import TrialRecord
    from rltune.study.study import SearchStudy


DEFAULT_POPULATION = 8
SEGMENT = "stretch"  # attribute of a trial in the study: the number of its segment


class PBT(Scheduler):
    """Population based training.

    Args:
        study: with the members, one a trial
        pauses: env steps at which all wait for each other, ascending
        budget: of a trial in env steps
        explorer: changes configurations
        checkpoint: where a trial's is
        seed: of the search
        quantile: the part of the population that takes over, and that is taken over from
    """

    name = "pbt"
    options: ClassVar[Mapping[str, SchedulerOption]] = {
        "population_size": SchedulerOption(None, 2, whole=True),  # see `members`
        "interval": SchedulerOption(None, 1, whole=True),  # see `pauses`
        "quantile": SchedulerOption(0.25, 0.01, 0.5),
        "resample": SchedulerOption(0.25, 0, 1),
    }

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

    @classmethod
    def create(cls, setup: Setup) -> PBT:
        """Return the scheduler of a running search.

        Raises:
            UserError: the space has nothing that can change.
        """
        search = setup.population
        assert search is not None, "a population needs a running search"
        spec, options = search.spec, setup.options
        members(options, spec.trials)
        return cls(
            search.study,
            pauses(spec, options["interval"]),
            setup.budget,
            cls._explorer(spec, search.space, search.config_class),
            search.checkpoint,
            seed=spec.seed,
            quantile=options["quantile"],
        )

    @classmethod
    def rungs_of(cls, spec: SearchSpec) -> list[int]:
        """Return the env steps at which the population pauses, and the budget."""
        options = cls.checked(spec.scheduler_options)
        return [*pauses(spec, options["interval"]), spec.budget]

    @classmethod
    def check(cls, spec: SearchSpec, space: Space, config_class: type[Any], n_starts: int) -> None:
        """Raise `UserError` where no population can be trained so; see `Scheduler.check`."""
        options = cls.checked(spec.scheduler_options)
        backend = backend_of(spec.agent)
        if not backend.changes_hyperparameters:
            raise UserError(
                f"scheduler {cls.name!r} changes hyperparameters while an agent trains, which "
                f"{backend.name}'s can't do here; take asha, hyperband, median or none."
            )
        if parse_seeds(spec.seeds) != (False, 1):
            raise UserError(
                f"scheduler {cls.name!r} trains each member on one seed; leave out --seeds, or "
                "take asha."
            )
        pauses(spec, options["interval"])
        cls._explorer(spec, space, config_class)
        if members(options, spec.trials) < n_starts + 2:
            others = "" if n_starts == 1 else f" and {n_starts - 1} known-good settings"
            raise UserError(
                f"a population of {spec.trials} is too small: the defaults{others} belong to it "
                "and are never changed, and at least 2 others are needed; give --trials "
                f"{n_starts + 2} or more."
            )

    @classmethod
    def explorer_class(cls) -> type[Explorer]:
        """Return the class that changes configurations."""
        return Explorer

    @classmethod
    def _explorer(cls, spec: SearchSpec, space: Space, config_class: type[Any]) -> Explorer:
        """Return the explorer of a search."""
        around = [name for name in space.dimensions if is_surrounding(name)]
        if around:
            raise UserError(
                f"{cls.name} changes what an agent trains with on the way, and {around[0]} can't "
                "change; fix it, or take --scheduler asha."
            )
        resample = cls.checked(spec.scheduler_options)["resample"]
        return cls.explorer_class()(space, hyperparameters(config_class), resample)

    def decide(
        self,
        trial: int,
        env_steps: int,
        value: float | None,
        standard_error: float = 0.0,
        training: float | None = None,
    ) -> str:
        """Return "continue": no member is stopped."""
        return "continue"

    def restore(
        self, reports: Reports, stopped: Iterable[int] = (), training: Reports | None = None
    ) -> None:
        """Move checkpoints that were taken over into place, in case a kill prevented it."""
        for trial in self.study.trials():
            taken = self._taken(trial.number, _index(trial))
            if trial.state == "RUNNING" and taken.exists():
                taken.replace(self.checkpoint(trial.number))

    def table(self) -> list[Rung]:
        """Return the pauses and the whole budget, with the number of members that got there."""
        trials = self.study.trials()
        return [
            Rung(point, sum(point in trial.intermediate for trial in trials), 0, None)
            for point in (*self.pauses, self.budget)
        ]

    def segment(self, trial: int) -> Segment:
        """Return the segment that a member trains next: from the last pause to the next."""
        record = self.study.trials()[trial]
        ends = [0, *self.pauses, self.budget]
        index = _index(record)
        return Segment(ends[index], ends[index + 1], config_at(record, ends[index]))

    def next_segments(self) -> None:
        """Exploit and explore, and send all on to the next pause."""
        trials = self.study.trials()
        waiting = [trial for trial in trials if trial.state == "RUNNING"]
        if not waiting:
            return
        index = _index(waiting[0])
        pause = self.pauses[index]
        members = [_member(trial, pause) for trial in waiting]
        parents = self._parents(members, index)
        self.explorer.learn([o for trial in trials for o in self._observations(trial, trials)])
        news: dict[int, dict[str, Any]] = {
            member.number: {SEGMENT: index + 1} for member in members
        }
        for number, parent in parents.items():
            config = self.explorer.explore(parent, index + 1, self._rng(index, number, 1))
            _copy(self.checkpoint(parent.number), self._taken(number, index + 1))
            schedule = trials[number].attrs.get("schedule", [])
            change = {"env_steps": pause, "parent": parent.number, "config": config}
            news[number]["schedule"] = [*schedule, change]
        self.study.annotate(news)  # from here on it is decided, whenever the search is killed
        self.restore({})

    def _taken(self, number: int, segment: int) -> Path:
        """Return the file of a checkpoint that was taken over, until the study knows of it."""
        return self.checkpoint(number).with_name(f"taken-{segment}.pt")

    def _parents(
        self, members: Sequence[PopulationMember], segment: int
    ) -> dict[int, PopulationMember]:
        """Return for each of the worst members, by number, the one that it takes over from."""
        ranked = sorted(members, key=lambda member: (-member.value, member.number))
        n = min(max(1, round(self.quantile * len(ranked))), len(ranked) // 2)
        best = ranked[:n]
        worst = [member for member in reversed(ranked) if not member.fixed and member not in best]
        parents = {
            member.number: (member, best[self._rng(segment, member.number, 0).integers(n)])
            for member in worst[:n]
        }
        return {
            number: parent
            for number, (member, parent) in sorted(parents.items())
            if parent.value > member.value
        }

    def _rng(self, segment: int, number: int, purpose: int) -> np.random.Generator:
        """Return the random generator of a single decision."""
        return np.random.default_rng([self.seed, segment, number, purpose])

    def _observations(self, trial: TrialRecord, trials: Sequence[TrialRecord]) -> list[Observation]:
        """Return the gain of each segment of a trial; the first one began with no value."""
        observations = []
        sources = {change["env_steps"]: change["parent"] for change in changes_of(trial)}
        last = _index(trial)
        for index in range(1, last + 1):
            start, end = self.pauses[index - 1], [*self.pauses, self.budget][index]
            before = trials[sources.get(start, trial.number)].intermediate.get(start)
            after = trial.intermediate.get(end)
            failed = trial.state == "FAIL" and index == last
            if before is not None and (after is not None or failed):
                gain = None if after is None else after - before
                observations.append(Observation(index, config_at(trial, start), before, gain))
        return observations


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


def pauses(spec: SearchSpec, interval: int | None) -> list[int]:
    """Return the env steps at which the population pauses.

    Without an interval at every evaluation; else at the first one at or after each multiple of it.

    Raises:
        UserError: there is none before the end.
    """
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
            f"{interval or 1:,} and {spec.budget - 1:,} env steps; lower interval or raise "
            "--evaluations."
        )
    return points


def _index(trial: TrialRecord) -> int:
    """Return the number of the segment that a trial is in: 0 is the first."""
    return int(trial.attrs.get(SEGMENT, 0))


def _member(trial: TrialRecord, pause: int) -> PopulationMember:
    # A pause is an evaluation, so a trial that waits there has a value.
    return PopulationMember(
        trial.number,
        config_at(trial, pause),
        trial.intermediate.get(pause, -np.inf),
        is_reference(trial.origin),
    )


def _copy(source: Path, target: Path) -> None:
    atomic_write(target, lambda temporary: shutil.copyfile(source, temporary))
