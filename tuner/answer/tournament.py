"""The tournament: the re-training of finalists on test seeds, their number and order.

The best configurations of the search, the defaults and the known-good settings meet on seeds that
the search never saw. All get the first seed before anyone gets the second, so a tournament that is
cut short still compares like with like. `ranking.py` explains the scores.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rltune.agents.config import config_hash
from rltune.answer.model import Finalist
from rltune.common.reading import load_yaml, reading
from rltune.stats.estimates import significance, smallest_p_value
from rltune.study.lineage import lineage
from rltune.study.records import is_reference, pareto_front, quality

if TYPE_CHECKING:
    from rltune.runs.directory import RunDir
    from rltune.study.records import TrialRecord

SCORES = "best/scores.yaml"
LEAST_SEEDS = 3  # of each finalist, at least
CLEARLY = 0.05  # the probability that a finalist that is not worse is left behind


def pick_finalists(
    trials: Iterable[TrialRecord], top: int, minimize: Sequence[bool] = (False,)
) -> list[Finalist]:
    """Return the defaults, the known-good settings and the ``top`` best of the search.

    Only trials that ran their whole budget count among the best; ties in the objective go to the
    higher mean over all evaluations. Of several objectives (``minimize`` has one entry for each),
    the best are members of the front that lie far apart. A configuration, or a schedule of them
    (`pbt`), appears once, whatever its origins.
    """
    records = list(trials)
    by_number = {record.number: record for record in records}
    complete = [t for t in records if t.state == "COMPLETE" and t.value is not None]
    if len(minimize) > 1:
        best = pareto_front(complete, minimize)[:top]
    else:
        complete.sort(
            key=lambda t: quality(t.values or (), t.objective_mean, minimize), reverse=True
        )
        best = complete[:top]
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
                objective_mean=record.objective_mean,
            )
        elif record.origin not in known.origins:
            finalists[key] = replace(known, origins=(*known.origins, record.origin))
    return list(finalists.values())


def least_seeds(finalists: int, planned: int) -> int:
    """Return the number of seeds that every finalist gets: enough to show one to be worse.

    That is, against a finalist with all planned seeds, by the test that the answer rests on, if
    each score of the other is better; ``planned`` where that takes all of them.
    """
    enough = significance(finalists - 1)
    each = range(LEAST_SEEDS, planned)
    return next((n for n in each if smallest_p_value(planned, n) <= enough), planned)


def job_name(trial: int, seed: int) -> str:
    """Return the name of a re-training, as jobs and checkpoints carry it."""
    return f"{trial}/{seed}"


class Tournament:
    """The scores of the finalists per (trial, seed), and the order of their re-trainings.

    A finalist that is clearly behind after some seeds (`least_seeds`) gets no further ones. The
    time goes to those that can't be told apart yet: to seeds beyond the planned ones, where enough
    was spared to give one to all of them. The defaults get all planned seeds, for every finalist
    is compared with them.

    Args:
        finalists: those that are re-trained
        seeds: the planned ones first, then those that may be used in place of spared ones
        planned: the number of planned seeds
        scores: by (trial, seed), of a tournament that goes on
        race: whether those that are behind get no further seeds
    """

    def __init__(
        self,
        finalists: list[Finalist],
        seeds: Sequence[int],
        planned: int,
        scores: dict[tuple[int, int], float] | None = None,
        *,
        race: bool = True,
    ) -> None:
        self.finalists = finalists
        self.seeds = seeds
        self.planned = planned
        self.scores = dict(scores or {})
        self.least = least_seeds(len(finalists), planned)
        self.race = race and self.least < planned

    def next_job(
        self,
        in_flight: Collection[str],
        price: Callable[[Finalist], float] = lambda finalist: 0.0,
        left: float = math.inf,
    ) -> tuple[Finalist, int] | None:
        """Return the next (finalist, seed), seed by seed and the dear ones first, or None.

        Args:
            in_flight: names of the re-trainings that run
            price: seconds that training a finalist takes
            left: seconds; a finalist that takes longer gets no further seed
        """
        in_time = [finalist for finalist in self.finalists if price(finalist) <= left]
        in_time.sort(key=price, reverse=True)  # those of the same cost keep their order
        behind = self.behind()
        started = {job_name(*key) for key in self.scores} | set(in_flight)
        lost = sum(int(job.partition("/")[0]) in behind for job in started)
        ahead = len(self.finalists) - len(behind)
        for number, seed in enumerate(self.seeds):
            extra = number >= self.planned
            if extra and (ahead < 2 or lost + ahead * (number + 1) > self.total):
                return None
            for finalist in in_time:
                left_out = finalist.trial in behind and (extra or "default" not in finalist.origins)
                if not (left_out or job_name(finalist.trial, seed) in started):
                    return finalist, seed
        return None

    def record(self, trial: int, seed: int, score: float) -> None:
        """Take the score of a re-training; NaN when it diverged or failed."""
        self.scores[trial, seed] = score

    def behind(self) -> set[int]:
        """Return the trials that are clearly worse than the best, on the seeds they have.

        By t tests with a common variance, at 5 % in all (Bonferroni). They only decide on what
        further seeds are spent; what is claimed in the end rests on other tests (`ranking.py`).
        """
        scores = {finalist.trial: self._first_scores(finalist.trial) for finalist in self.finalists}
        if not self.race or len(scores) < 2 or min(map(len, scores.values())) < self.least:
            return set()
        values = _finite(scores)
        means = {trial: sum(row) / len(row) for trial, row in values.items()}
        freedom = sum(len(row) - 1 for row in values.values())
        squares = sum((value - means[t]) ** 2 for t, row in values.items() for value in row)
        best = max(means, key=lambda trial: means[trial])

        from scipy.special import stdtrit  # late; scipy.stats would take half a second to import

        reach = float(stdtrit(freedom, 1 - CLEARLY / (len(values) - 1)))
        found = set()
        for trial, row in values.items():
            error = math.sqrt(squares / freedom * (1 / len(row) + 1 / len(values[best])))
            if means[best] - means[trial] > reach * error:
                found.add(trial)
        return found

    def results(self) -> list[Finalist]:
        """Return the finalists with their scores, each on all seeds that it has."""
        behind = self.behind()
        results = []
        for finalist in self.finalists:
            known = {seed: v for (trial, seed), v in self.scores.items() if trial == finalist.trial}
            results.append(replace(finalist, seeds=known, behind=finalist.trial in behind))
        return results

    @property
    def total(self) -> int:
        """The number of re-trainings in all, at most."""
        return len(self.finalists) * self.planned

    @property
    def left(self) -> int:
        """The number of re-trainings that have not ended, at most; 0 where none is needed."""
        if self.next_job(()) is None:
            return 0
        known = {finalist.trial for finalist in self.finalists}
        return max(1, self.total - sum(trial in known for trial, _ in self.scores))

    def _first_scores(self, trial: int) -> list[float]:
        """Return a finalist's scores up to the first seed that it lacks."""
        known = itertools.takewhile(lambda seed: (trial, seed) in self.scores, self.seeds)
        return [self.scores[trial, seed] for seed in known]


def _finite(scores: dict[int, list[float]]) -> dict[int, list[float]]:
    """Return the scores with one below all others for every training that diverged."""
    finite = [value for row in scores.values() for value in row if math.isfinite(value)]
    floor = 2 * min(finite, default=0.0) - max(finite, default=0.0)
    return {t: [v if math.isfinite(v) else floor for v in row] for t, row in scores.items()}


def write_scores(run: RunDir, scores: dict[tuple[int, int], float]) -> None:
    """Write the tournament's scores so far: trial -> seed -> score."""
    run.write_yaml(SCORES, nested_scores(scores))


def nested_scores(scores: dict[tuple[int, int], float]) -> dict[int, dict[int, float]]:
    """Return trial -> seed -> score."""
    nested: dict[int, dict[int, float]] = {}
    for (trial, seed), score in sorted(scores.items()):
        nested.setdefault(trial, {})[seed] = score
    return nested


def read_scores(run: RunDir) -> dict[tuple[int, int], float]:
    """Return the scores that `write_scores` wrote; empty before it wrote any."""
    path = run.path / SCORES
    nested = load_yaml(path) if path.exists() else {}
    with reading(path):
        return {
            (int(trial), int(seed)): float(score)
            for trial, row in nested.items()
            for seed, score in row.items()
        }
