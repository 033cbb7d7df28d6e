"""The trials that a proposer has seen: kept up to date without reading all of them again."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from optuna.trial import FrozenTrial, TrialState
from rltune.samplers.views import is_evidence
from rltune.samplers.warm_start import is_suggested

if TYPE_CHECKING:
    from rltune.samplers.base import Sampler


class SeenTrials:
    """The trials of a study, as far as its sampler learns from them.

    A study only grows, and a trial that has ended stays as it is: each is read when it comes, while
    it runs, and once when it has ended. A proposal takes as long after 10,000 trials as after a
    few hundred, if the sampler says how many it needs (`Sampler.needs`).

    Args:
        sampler: that learns from them
        learns_from_all: whether it needs all of them, whatever it says

    Attributes:
        hashes: of their configurations
        from_warm_start: how many of them a warm start proposed
    """

    def __init__(self, sampler: Sampler, learns_from_all: bool) -> None:
        self._sampler = sampler
        self._needs = None if learns_from_all else sampler.needs
        self._forget()

    def _forget(self) -> None:
        self.hashes: set[str] = set()
        self.from_warm_start = 0
        self._count = 0
        self._last: FrozenTrial | None = None
        self._open: list[FrozenTrial] = []  # waiting and running ones
        self._ended: list[FrozenTrial] = []  # by number
        self._best: list[tuple[Any, int, FrozenTrial]] = []  # as many as are needed

    def update(self, trials: Sequence[FrozenTrial]) -> None:
        """Look at what is new in the study; these are all of its trials, by number."""
        if self._count and (len(trials) < self._count or trials[self._count - 1] is not self._last):
            self._forget()  # another study
        news = list(trials[self._count :])
        self._count = len(trials)
        for trial in news:
            self.hashes.add(trial.user_attrs["hash"])
            self.from_warm_start += is_suggested(trial)
            self._last = trial
        known, self._open = [trials[trial.number] for trial in self._open], []
        for trial in [*known, *news]:
            if trial.state.is_finished():
                self._end(trial)
            else:
                self._open.append(trial)

    def _end(self, trial: FrozenTrial) -> None:
        inside = self._sampler.parameters.inside([trial])
        if not inside or (self._needs and not is_evidence(trial)):
            return
        bisect.insort(self._ended, inside[0], key=lambda ended: ended.number)
        merit = self._sampler.merit(trial) if self._needs else None
        if self._needs and merit is not None:
            bisect.insort(self._best, (-merit, trial.number, inside[0]), key=lambda row: row[:2])
            del self._best[self._needs[0] :]

    def inside(self) -> list[FrozenTrial]:
        """Return the trials to learn from, inside of the ranges, by number; see `Parameters`."""
        ended = self._ended
        if self._needs and len(ended) > self._needs[1]:
            latest = ended[-self._needs[1] :]
            first = latest[0].number
            earlier = [trial for _, number, trial in self._best if number < first]
            ended = sorted(earlier, key=lambda trial: trial.number) + latest
        running = [trial for trial in self._open if trial.state != TrialState.WAITING]
        open_inside = self._sampler.parameters.inside(running)
        return sorted([*ended, *open_inside], key=lambda trial: trial.number)
