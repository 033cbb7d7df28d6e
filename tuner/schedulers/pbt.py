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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rltune.common.files import atomic_write
from rltune.schedulers.base import NoScheduler, Reports, Rung, Stretch
from rltune.schedulers.explorers import Member, Observation
from rltune.study.lineage import changes_of, config_at
from rltune.study.records import is_reference

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rltune.schedulers.explorers import Explorer
    from rltune.study.records import TrialRecord
    from rltune.study.study import SearchStudy


class PBT(NoScheduler):
    """The schedule of a population; see `base.Scheduler`.

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
