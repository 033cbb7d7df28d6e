"""The ranking of the finalists: interquartile means, intervals and tests of their leads.

Pure functions over the finalists' scores on test seeds, which the search never saw. Nothing is
called better because it came out on top once: the winner of many noisy comparisons is mostly
lucky (Eimer et al., "Hyperparameters in Reinforcement Learning and How To Tune Them", ICML 2023).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rltune.answer.model import (
    Answer,
    Circumstances,
    Finalist,
    Ranked,
    _finalist,
    label,
    tuning_quality,
)
from rltune.answer.sentences import (
    no_winner,
    score_warnings,
    search_warnings,
    sentences,
    without_tests,
)
from rltune.stats.estimates import (
    Estimate,
    bootstrap_interval,
    difference,
    iqm,
    probability_of_improvement,
    runs_to_prove,
    significance,
)


def build_answer(
    finalists: Iterable[Finalist | Mapping[str, Any]],
    circumstances: Circumstances | None = None,
) -> Answer:
    """Rank the finalists by their test scores and say which one to use.

    The defaults win unless something is ahead of them by more than its standard error, then
    known-good settings unless something is ahead of those, and only then the search's own best.
    Whether that is beyond chance, ``better_than_default`` says.
    """
    circumstances = circumstances or Circumstances()
    everyone = [
        finalist if isinstance(finalist, Finalist) else _finalist(finalist)
        for finalist in finalists
    ]
    entries = [finalist for finalist in everyone if finalist.seeds]
    left = sorted(
        (finalist for finalist in everyone if not finalist.seeds), key=tuning_quality, reverse=True
    )
    untested = [label(finalist.trial, finalist.origins) for finalist in left]
    default = next((finalist for finalist in entries if "default" in finalist.origins), None)
    if not entries or (entries == [default] and untested):  # defaults alone are no answer
        return Answer(
            ranking=(),
            winner=None,
            beats_default=None,
            tuning_gap=None,
            incumbent=None,
            sentences=tuple(without_tests(circumstances)),
            warnings=tuple(search_warnings(circumstances)),
        )
    ranking = _rank(entries, default)
    winner = _winner(ranking) if math.isfinite(ranking[0].iqm) else None
    tuned = [
        ranked
        for ranked in ranking
        if ranked.objective is not None and math.isfinite(ranked.objective)
    ]
    incumbent = max(tuned, key=tuning_quality, default=None)
    gap = None
    if incumbent is not None and incumbent.objective is not None:
        gap = incumbent.objective - incumbent.iqm
    seeds = _seeds_to_prove(ranking)
    return Answer(
        ranking=ranking,
        winner=winner.trial if winner else None,
        beats_default=winner.better_than_default if winner and default else None,
        tuning_gap=gap,
        incumbent=incumbent.trial if incumbent else None,
        test_seeds_to_prove=seeds,
        sentences=tuple(
            sentences(ranking, winner, incumbent, seeds) if winner else no_winner(circumstances)
        ),
        warnings=(
            *score_warnings(ranking, untested, circumstances),
            *search_warnings(circumstances),
        ),
    )


def _rank(entries: Sequence[Finalist], default: Finalist | None) -> tuple[Ranked, ...]:
    scores = {finalist.trial: _clean(finalist.seeds) for finalist in entries}
    order = sorted(
        entries,
        key=lambda finalist: (
            -iqm(list(scores[finalist.trial].values())),
            -min(scores[finalist.trial].values()),
            _origin_rank(finalist.origins),
            *(-value for value in tuning_quality(finalist)),
            finalist.trial,
        ),
    )
    known_good = [finalist for finalist in order if _origin_rank(finalist.origins) == 1]
    ranking = []
    for finalist in order:
        own = list(scores[finalist.trial].values())
        low, high = bootstrap_interval(own)
        others = list(scores[default.trial].values()) if default and finalist is not default else []
        more, better = _difference(own, others, significance(len(entries) - 1))
        ranking.append(
            Ranked(
                trial=finalist.trial,
                origins=finalist.origins,
                config=dict(finalist.config),
                changes=tuple(finalist.changes),
                objective=finalist.objective,
                objective_mean=finalist.objective_mean,
                scores=scores[finalist.trial],
                iqm=iqm(own),
                low=low,
                high=high,
                worst=min(own),
                behind=finalist.behind,
                tied=finalist is order[0]
                or not (finalist.behind or _is_below(finalist, order, scores)),
                better_than_default=better,
                improvement=probability_of_improvement(own, others) if others else None,
                difference=more,
                over_known_good={
                    other.trial: probability_of_improvement(own, list(scores[other.trial].values()))
                    for other in known_good
                    if other is not finalist
                },
                env_steps=finalist.env_steps,
                seconds=finalist.seconds,
            )
        )
    return tuple(ranking)


def _difference(
    own: list[float], others: list[float], level: float
) -> tuple[Estimate | None, bool]:
    """Return the difference, None without a second finalist or a number for it; and the claim."""
    if not others:
        return None, False
    more, better = difference(own, others, level)
    return (more if math.isfinite(more.value) else None), better


def _is_below(
    finalist: Finalist, order: Sequence[Finalist], scores: Mapping[int, Mapping[int, float]]
) -> bool:
    """Whether the first of the order is better than this one beyond chance.

    The rival of the defaults is chosen before there are test scores. Which one is the
    highest is not: so each may have been compared with each, in either direction.
    """
    best, count = order[0], len(order)
    if "default" in finalist.origins:
        comparisons = count - 1
    else:
        rivals = sum("default" not in other.origins for other in order)
        comparisons = rivals * (rivals - 1) + (count - rivals) * rivals
    first, second = (list(scores[each.trial].values()) for each in (best, finalist))
    return difference(first, second, significance(comparisons))[1]


def _seeds_to_prove(ranking: Sequence[Ranked]) -> int | None:
    """Return the number of test seeds that may prove the lead of the highest.

    None where it is proven, or where there is no lead.

    Its lead over the defaults, or, where that is proven, over the next one.
    """
    best = ranking[0]
    rivals = [rival for rival in ranking if rival.tied and rival.iqm < best.iqm]
    rivals.sort(key=lambda rival: not rival.is_default)  # the defaults first, the others in order
    if not rivals or not math.isfinite(rivals[0].iqm):
        return None
    first, second = (list(compared.scores.values()) for compared in (best, rivals[0]))
    chance = probability_of_improvement(first, second).value
    runs = runs_to_prove(chance, significance(len(ranking) - 1))
    most = max(len(ranked.scores) for ranked in ranking)
    return None if runs is None else max(runs, most + 1)


def _clean(seeds: Mapping[int, float]) -> dict[int, float]:
    """Return the scores with the worst one there is for a training that diverged."""
    return {
        int(seed): float(score) if score is not None and math.isfinite(score) else -math.inf
        for seed, score in sorted(seeds.items())
    }


def _origin_rank(origins: Iterable[str]) -> int:
    kinds = {origin.partition(":")[0] for origin in origins}
    return 0 if "default" in kinds else 1 if "start" in kinds else 2


def _winner(ranking: Sequence[Ranked]) -> Ranked:
    """Return the one to use: the highest, unless the defaults or known-good ones are level.

    That is the one-standard-error rule of Breiman et al., "Classification and Regression Trees"
    (1984, section 3.4.3). To insist on significance here would name the defaults in most searches
    that have found something better (docs/measurements.md).
    """
    best, spread = ranking[0], _spread(ranking)
    default = next((ranked for ranked in ranking if ranked.is_default), None)
    for ranked in sorted(ranking, key=lambda ranked: _origin_rank(ranked.origins)):
        sound = ranked is default or default is None or _is_ahead(ranked, default, spread)
        if ranked is best or (sound and not _is_ahead(best, ranked, spread)):
            return ranked
    return best


def _is_ahead(ranked: Ranked, other: Ranked, spread: float | None) -> bool:
    """Whether the one is above the other by more than its own standard error.

    The scores of one or two seeds don't tell how uncertain they are: they count as uncertain as
    those of all (``spread``). Where that is unknown, the one has to be ahead in the search as well.
    """
    if not math.isfinite(other.iqm):
        return math.isfinite(ranked.iqm)
    if not math.isfinite(ranked.worst):
        return False
    scores = list(ranked.scores.values())
    if len(scores) > 2:
        spread = statistics.stdev(scores)
    if spread is None:
        return ranked.iqm > other.iqm and tuning_quality(ranked) > tuning_quality(other)
    return ranked.iqm - other.iqm > spread / math.sqrt(len(scores))


def _spread(ranking: Sequence[Ranked]) -> float | None:
    """Return the pooled standard deviation over seeds; None: no finalist has two seeds."""
    known = [
        [score for score in ranked.scores.values() if math.isfinite(score)] for ranked in ranking
    ]
    known = [scores for scores in known if len(scores) > 1]
    if not known:
        return None
    squares = sum(statistics.variance(scores) * (len(scores) - 1) for scores in known)
    return math.sqrt(squares / sum(len(scores) - 1 for scores in known))
