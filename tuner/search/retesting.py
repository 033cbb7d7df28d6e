"""Re-trainings of the finalists on test seeds: which ones are affordable, the next, and scores."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from rltune.answer.model import label, tuning_quality
from rltune.answer.tournament import (
    LEAST_SEEDS,
    Tournament,
    nested_scores,
    pick_finalists,
    read_scores,
    write_scores,
)
from rltune.planning.deadlines import TOURNAMENT_MARGIN
from rltune.schedulers.registry import is_population
from rltune.study.records import is_reference

if TYPE_CHECKING:
    from rltune.answer.model import Finalist
    from rltune.execution.messages import Result
    from rltune.planning.prices import Prices
    from rltune.search.ending import Ending
    from rltune.search.jobs import Running, RunningJob
    from rltune.search.parts import SearchParts


class Retesting:
    """Runs the tournament: picks finalists, hands out re-trainings, and keeps their scores.

    Args:
        parts: of the search
        prices: what training a finalist again takes
        running: the jobs
        ending: the time that is left

    Attributes:
        scores: by (trial, seed)
        is_outdated: whether what was foreseen of the tournament is older than the last trial
    """

    def __init__(
        self, parts: SearchParts, prices: Prices, running: Running, ending: Ending
    ) -> None:
        self.parts = parts
        self.spec = parts.spec
        self.prices = prices
        self.running = running
        self.ending = ending
        self.scores = read_scores(parts.run)
        self.is_outdated = False
        self._tournament: Tournament | None = None
        self._is_final = False

    def tournament(self) -> Tournament:
        """Return the tournament as far as it is known.

        While the last trials of the search run, idle workers begin with the certain finalists.
        """
        final = not self.ending.is_searching()
        if self._tournament is not None and final == self._is_final:
            return self._tournament
        finalists = self._chosen_finalists(final)
        planned = self.spec.test_seeds
        seeds = self.spec.tournament_seeds[: None if final else planned]
        # A finalist that is behind in one objective may lead in another.
        race = not self.parts.others.goals
        self._tournament = Tournament(finalists, seeds, planned, self.scores, race=race)
        self._is_final = final
        self.scores = self._tournament.scores
        if final:
            labels = {finalist.trial: _label(finalist) for finalist in finalists}
            total = self._tournament.total
            self.parts.progress.begin_tournament(total, len(self.scores))
            left, scores = self._tournament.left, nested_scores(self.scores)
            self.parts.view.begin_tournament(labels, left, scores)
        return self._tournament

    def _chosen_finalists(self, final: bool) -> list[Finalist]:
        """Return the finalists that there is time for; the references alone until it is final."""
        everyone = self._finalists()
        finalists = self.affordable(everyone)
        if not final:
            return [finalist for finalist in finalists if any(map(is_reference, finalist.origins))]
        if len(finalists) < len(everyone):
            names = ", ".join(
                _label(finalist) for finalist in everyone if finalist not in finalists
            )
            self.parts.view.message(f"no time to train all finalists again; left out: {names}")
        return finalists

    def _finalists(self) -> list[Finalist]:
        study, top = self.parts.study, self.spec.finalists
        # The front of several objectives, and a member's ancestors, are a matter of all trials.
        of_all = self.parts.others.goals or is_population(self.spec.scheduler)
        trials = study.trials() if of_all else study.contenders(top)
        return pick_finalists(trials, top, study.minimize)

    def affordable(self, finalists: list[Finalist]) -> list[Finalist]:
        """Return those that the time left is enough for, on as many test seeds each.

        The defaults and the best of the search are always among them. Known-good settings join
        where there are two seeds for each. The others are asked in the order of their tuning
        scores, and join where there are `LEAST_SEEDS` for each. While a single one of the search
        is in, two are enough of the defaults and the known-good settings, which may be dear.
        """
        prices = {
            finalist.trial: self.prices.of_retraining(finalist.trial, finalist.config)
            for finalist in finalists
        }
        known = [price for price in prices.values() if price is not None]
        left = self.ending.seconds_left() * self.parts.progress.slots
        if not known or self.parts.others.goals:  # of several objectives, no one is the best
            return finalists
        mean = sum(known) / len(known)
        done = Counter(trial for trial, _ in self.scores)
        least = min(LEAST_SEEDS, self.spec.test_seeds)
        asked = sorted(finalists, key=tuning_quality, reverse=True)
        asked.sort(key=lambda finalist: "default" not in finalist.origins)
        kept, others = asked[:2], asked[2:]
        references = [f for f in finalists if any(map(is_reference, f.origins))]

        def is_enough(some: list[Finalist], seeds: int, of_references: int) -> bool:
            wanted = {f.trial: of_references if f in references else seeds for f in some}
            cost = sum(
                (prices[f.trial] or mean) * max(0, wanted[f.trial] - done[f.trial]) for f in some
            )
            return TOURNAMENT_MARGIN * cost <= left

        few = min(least, 2)
        for finalist in others:
            if finalist in references and is_enough([*kept, finalist], few, few):
                kept.append(finalist)
        for finalist in (one for one in others if one not in references):
            alone = sum(one not in references for one in kept) < 2
            if is_enough([*kept, finalist], least, few if alone else least):
                kept.append(finalist)
        return [finalist for finalist in finalists if finalist in kept]

    def next_test(self) -> tuple[Finalist, int] | None:
        """Return the next re-training for which there is time: a finalist, and its test seed."""
        left = self.ending.seconds_left()
        if math.isinf(left):
            return self.tournament().next_job(self.running.jobs)

        def price(finalist: Finalist) -> float:
            return self.prices.of_retraining(finalist.trial, finalist.config) or 0.0

        return self.tournament().next_job(self.running.jobs, price, left)

    def judge(self, job: RunningJob, result: Result) -> bool:
        """Conclude from a result of the tournament; return whether the re-training ends."""
        if result.diverged:
            self.record(job, math.nan, f"diverged: {result.diverged}")
        elif result.finished and result.objective is not None:
            self.record(job, result.objective)
        elif result.out_of_time or self.ending.time_is_up():
            self.running.end(job)
            self.parts.recorder.test_ended(job, "PRUNED", "time limit; not counted", None)
        else:
            return False
        return True

    def record(self, job: RunningJob, score: float, failure: str = "") -> None:
        """Take the score of a re-training that has ended; NaN with the reason if it failed."""
        self.tournament().record(job.number, job.seed, score)
        write_scores(self.parts.run, self.scores)
        self.running.end(job)
        state = "FAIL" if failure else "COMPLETE"
        self.parts.recorder.test_ended(job, state, failure, score)

    def trial_ended(self) -> None:
        """Note that the tournament may be another now: deadlines depend on it, if there are any."""
        self.is_outdated = True
        if not math.isinf(self.ending.deadline):
            self.foresee()

    def foresee(self) -> None:
        """Foresee how many re-trainings the tournament will have, and how long each takes."""
        self.is_outdated = False
        if not self.spec.tournament:
            return
        complete, finalists = self.parts.study.complete, self._finalists()
        # The best may turn out to be among the references; until there are some, assume not.
        count = len(finalists) + max(0, self.spec.finalists - complete)
        numbers = {finalist.trial for finalist in finalists}
        done = sum(trial in numbers for trial, _ in self.scores)
        prices = [self.prices.seconds(finalist.config) for finalist in finalists]
        known = [price for price in prices if price is not None]
        progress = self.parts.progress
        progress.test_runs = max(0, count * self.spec.test_seeds - done)
        progress.test_seconds = sum(known) / len(known) if known else None


def _label(finalist: Finalist) -> str:
    return label(finalist.trial, finalist.origins)
