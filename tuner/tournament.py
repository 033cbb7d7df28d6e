"""The tournament: who is trained again on test seeds, and in which order.

The best configurations of the search, the defaults and the known-good settings meet on seeds that
the search never saw. All get the first seed before anyone gets the second, so a tournament that is
cut short still compares like with like. What the scores mean is said in `answer.py`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from rltune.agents.config import config_hash
from rltune.answer import Finalist
from rltune.lineage import lineage

if TYPE_CHECKING:
    from rltune.study import TrialRecord


def is_reference(origin: str) -> bool:
    """Whether a trial is a point of comparison: the defaults or known-good settings."""
    return origin == "default" or origin.startswith("start")


def pick_finalists(trials: Iterable[TrialRecord], top: int) -> list[Finalist]:
    """Return the defaults, the known-good settings and the ``top`` best of the search.

    Only trials that ran their whole budget count among the best; ties in the objective go to the
    higher mean over all evaluations. A configuration, or a schedule of them (`pbt`), appears once,
    whatever its origins.
    """
    records = list(trials)
    by_number = {record.number: record for record in records}
    complete = [t for t in records if t.state == "COMPLETE" and t.value is not None]
    best = sorted(complete, key=_quality, reverse=True)[:top]
    finalists: dict[str, Finalist] = {}
    for record in [t for t in records if is_reference(t.origin)] + best:
        config, changes = lineage(by_number, record.number)
        key = config_hash({**config, "changes": changes}) if changes else record.hash
        known = finalists.get(key)
        if known is None:
            finalists[key] = Finalist(
                trial=record.number,
                origins=record.origins,
                config=config,
                changes=tuple(changes),
                objective=record.value if record.state == "COMPLETE" else None,
                objective_mean=record.attrs.get("objective_mean"),
            )
        elif record.origin not in known.origins:
            finalists[key] = replace(known, origins=(*known.origins, record.origin))
    return list(finalists.values())


def _quality(record: TrialRecord) -> tuple[float, float]:
    assert record.value is not None
    mean = record.attrs.get("objective_mean")
    return record.value, -math.inf if mean is None else mean


def job_name(trial: int, seed: int) -> str:
    """Return the name of a re-training, as jobs and checkpoints carry it."""
    return f"{trial}/{seed}"


class Tournament:
    """Keeps the scores per (trial, seed) and says which re-training comes next."""

    def __init__(
        self,
        finalists: list[Finalist],
        seeds: list[int],
        scores: dict[tuple[int, int], float] | None = None,
    ) -> None:
        self.finalists = finalists
        self.seeds = seeds
        self.scores = dict(scores or {})

    def next_job(self, in_flight: Collection[str]) -> tuple[Finalist, int] | None:
        """Return the next (finalist, seed), seed by seed, or None."""
        for seed in self.seeds:
            for finalist in self.finalists:
                done = (finalist.trial, seed) in self.scores
                if not done and job_name(finalist.trial, seed) not in in_flight:
                    return finalist, seed
        return None

    def record(self, trial: int, seed: int, score: float) -> None:
        """Take the score of a re-training; NaN when it diverged or failed."""
        self.scores[trial, seed] = score

    def results(self) -> list[Finalist]:
        """Return the finalists with their scores.

        Everyone is judged on the same seeds: one that some finalist lacks is left out, unless that
        would leave nothing.
        """
        common = [
            seed
            for seed in self.seeds
            if all((finalist.trial, seed) in self.scores for finalist in self.finalists)
        ]
        seeds = common or self.seeds
        return [
            replace(
                finalist,
                seeds={
                    seed: self.scores[finalist.trial, seed]
                    for seed in seeds
                    if (finalist.trial, seed) in self.scores
                },
            )
            for finalist in self.finalists
        ]

    @property
    def total(self) -> int:
        """How many re-trainings there are in all."""
        return len(self.finalists) * len(self.seeds)
