"""The sentences of an answer, for people who read no statistics."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from rltune.common.formats import gain, interval, plural, points, score
from rltune.stats.estimates import (
    FEW_ALIKE_RUNS,
    FEW_RUNS,
    MOST_RUNS,
    SIGNIFICANCE,
    alike,
    significance,
    smallest_p_value,
)

if TYPE_CHECKING:
    from rltune.answer.model import Circumstances, Ranked
    from rltune.stats.estimates import Estimate

# A tuning score that is above the test score by less than this part of it is no illusion.
SMALL_GAP = 0.05
FEW_FULL_TRIALS = 5


def sentences(
    ranking: Sequence[Ranked], winner: Ranked, incumbent: Ranked | None, seeds_to_prove: int | None
) -> list[str]:
    """Return the conclusions: the choice, its quality, the proven leads, the tuning gap."""
    lines = [_verdict(ranking, winner), *_over_known_good(ranking, winner), _quality(winner)]
    if winner.changes:
        times = plural(len(winner.changes), "time")
        lines.append(
            f"Its hyperparameters change {times} on the way (best/schedule.yaml), and did so in "
            "every one of these trainings, each from the start."
        )
    lines += _leads(ranking, winner, seeds_to_prove)
    if incumbent is not None:
        lines.append(_tuning_gap(incumbent))
    return lines


def no_winner(circumstances: Circumstances) -> list[str]:
    """Return the sentences of a search in which every finalist diverged."""
    lines = ["There is no answer: every finalist diverged on most of its test seeds."]
    return [*lines, _failures(circumstances), MEND] if circumstances.failure else [*lines, MEND]


def without_tests(circumstances: Circumstances) -> list[str]:
    """Return the sentences of a search in which nothing was trained again."""
    advice = "Give it more time (rltune resume), or begin again with a smaller --budget."
    if circumstances.best_of_search is not None:
        trial, value = circumstances.best_of_search
        return [
            f"Trial {trial} scored {score(value)}, the best of the search, but nothing was trained "
            "again on test seeds: nobody knows how much of that is luck.",
            advice,
        ]
    if circumstances.cut_by_time_limit or not circumstances.failure:
        return [f"Nothing was trained again on test seeds: there is no answer. {advice}"]
    return ["There is no answer: no trial ran its whole budget.", _failures(circumstances), MEND]


MEND = (
    "A resume would end the same way. Does the environment give rewards and observations that are "
    "finite (rltune train shows the first episodes)? If so, search where trainings are stable: "
    "lower learning rates, gradients clipped."
)


def _failures(circumstances: Circumstances) -> str:
    failed, why = circumstances.failed_trials, circumstances.failure
    return f"{plural(failed, 'trial')} failed, most often so: {why.rstrip('.')}."


def score_warnings(
    ranking: Sequence[Ranked], untested: Sequence[str], circumstances: Circumstances
) -> list[str]:
    """Return warnings about the comparison of the finalists."""
    lines = []
    if untested:
        single = len(untested) == 1 and untested[0].startswith("trial")
        was, its = ("was", "its") if single else ("were", "their")
        lines.append(
            f"{_names(untested)} {was} not trained on test seeds: nobody knows how much of {its} "
            "tuning score is luck."
        )
    planned = circumstances.planned_seeds
    short = [ranked for ranked in ranking if len(ranked.scores) < planned]
    if len(short) == len(ranking):
        most = max(len(ranked.scores) for ranked in ranking)
        lines.append(f"Only {most} of the planned {plural(planned, 'test seed')} could be run.")
    elif short := [ranked for ranked in short if not ranked.behind]:
        lines.append(
            f"{_names([ranked.label for ranked in short])} ran on fewer than the planned "
            f"{plural(planned, 'test seed')}: less is known about them."
        )
    known = sorted((len(ranked.scores) for ranked in ranking), reverse=True)
    if len(known) > 1 and smallest_p_value(known[0], known[1]) > significance(len(known) - 1):
        lines.append(
            f"With {_seeds(max(ranking, key=lambda each: len(each.scores)))} each, no difference "
            f"among {len(ranking)} finalists can be shown, however large."
        )
    diverged = [ranked for ranked in ranking if not math.isfinite(ranked.worst)]
    for ranked in diverged:
        seeds = [str(seed) for seed, value in ranked.scores.items() if not math.isfinite(value)]
        lines.append(
            f"{_names([ranked.label])} diverged or failed on test seed {', '.join(seeds)}; that "
            "counts as the worst score there is."
        )
    top = ranking[0].iqm
    if len(ranking) > 1 and not diverged and all(ranked.worst == top for ranked in ranking):
        lines.append(
            f"Every finalist scored {score(top)} on every seed. This environment is too easy for "
            "this budget to tell them apart; a smaller --budget would."
        )
    return lines


def search_warnings(circumstances: Circumstances) -> list[str]:
    """Return warnings about the search itself."""
    lines = []
    if circumstances.cut_by_time_limit:
        lines.append("The time limit ended the search before all its trials had run.")
    if n := circumstances.not_started:
        each = "it" if n == 1 else "each"
        was = "was" if n == 1 else "were"
        lines.append(
            f"{plural(n, 'proposal')} {was} not started: {each} would have taken longer than the "
            "time left."
        )
    full = circumstances.full_budget_trials
    if full == 0:
        lines.append("No trial ran the whole budget: the search had nothing to choose from.")
    elif full is not None and full < FEW_FULL_TRIALS:
        lines.append(
            f"Only {plural(full, 'trial')} ran the whole budget: the search had little to choose "
            "from."
        )
    sampled, startup = circumstances.sampled_trials, circumstances.startup_trials
    if sampled == 0:
        lines.append("Of the sampler's own proposals none was tried to its end.")
    elif sampled is not None and sampled <= startup:
        sampler = f"sampler ({circumstances.sampler})" if circumstances.sampler else "sampler"
        lines.append(
            f"The {sampler} was still in its random start-up phase, {sampled} of "
            f"{plural(startup, 'trial')}: this was a random search."
        )
    return lines


def _verdict(ranking: Sequence[Ranked], winner: Ranked) -> str:
    default = next((ranked for ranked in ranking if ranked.is_default), None)
    best = ranking[0]
    if default is None:
        return (
            f"Use {winner.label}. The agent's defaults were not trained on test seeds, so nothing "
            "says whether the search has improved on them."
        )
    if winner is default and len(ranking) == 1:
        return "Use the agent's defaults: there was no other finalist."
    if winner is default and best is winner:
        return "Use the agent's defaults: the search found nothing that scores higher."
    if winner is default:
        return (
            "Use the agent's defaults: the search found nothing that is above them by more than "
            f"its standard error. {_capital(best.label)} scored {score(best.iqm)} against "
            f"{score(default.iqm)}{_more(best, default)}: a lead that is not proven."
        )
    if winner.improvement is None:
        return f"Use {winner.label}."
    chance = winner.improvement
    if winner.better_than_default:
        above = f"{_pick(winner, 'it beats', 'they beat')} the agent's defaults, "
        above += f"{score(winner.iqm)} against {score(default.iqm)}{_more(winner, default)}."
    else:
        above = f"{_pick(winner, 'it', 'they')} scored {score(winner.iqm)}, the agent's defaults "
        above += f"{score(default.iqm)}{_more(winner, default)}: a lead that is not proven. "
        above += (
            "It is more than a standard error, but can still be luck."
            if len(winner.scores) > 1
            else "With a single seed it can be luck."
        )
    return (
        f"Use {winner.label}: {above} Trained on a new seed, "
        f"{_pick(winner, 'it scores', 'they score')} above the defaults with a probability of "
        f"{_percent(chance)}."
    )


def _more(ranked: Ranked, default: Ranked) -> str:
    """Return the difference to the defaults: " (+66.7, 90 % interval -20.0 to 150.0)"."""
    if ranked.difference is None:
        return ""
    return f" ({gain(ranked.iqm, default.iqm)}{gain_interval(ranked.difference, ', ')})"


def without_interval(scores: Iterable[Collection[float]]) -> list[str]:
    """Return why scores stand in place of an interval; ``scores`` of each configuration."""
    rows, lines = [list(row) for row in scores], []
    if any(len(row) < FEW_RUNS for row in rows):
        lines.append(
            f"With fewer than {FEW_RUNS} seeds there is no interval: these are the scores."
        )
    if any(FEW_RUNS <= len(row) < FEW_ALIKE_RUNS and alike(row) for row in rows):
        lines.append(
            f"With fewer than {FEW_ALIKE_RUNS} seeds, scores that are all alike give no interval: "
            "other seeds may differ."
        )
    return lines


def gain_interval(difference: Estimate, before: str = "") -> str:
    """Return "90 % interval -20.0 to 150.0" of a difference to the defaults, if there is one."""
    ends = interval(difference.low, difference.high)
    confidence = 100 * (1 - 2 * SIGNIFICANCE)
    return f"{before}{confidence:.0f} % interval {ends}" if ends else ""


def _leads(ranking: Sequence[Ranked], winner: Ranked, seeds_to_prove: int | None) -> list[str]:
    """Return the finalists over which the lead is not proven, and the test seeds it would take."""
    best = ranking[0]
    unproven = [ranked for ranked in ranking if ranked.tied and ranked is not best]
    lines = []
    if level := [ranked.label for ranked in unproven if ranked.iqm == best.iqm]:
        lines.append(f"{_names(level)} scored the same as {best.label}.{_choice(winner)}")
    lower = [ranked for ranked in unproven if ranked.iqm < best.iqm]
    if others := [
        ranked.label for ranked in lower if not ranked.is_default
    ]:  # the verdict is on those
        lines.append(
            f"The lead of {best.label} over {_names(others, capital=False)} is not proven with "
            f"{_seeds(best)}.{'' if level else _choice(winner)}"
        )
    if lower:
        rival = next((ranked for ranked in lower if ranked.is_default), lower[0])
        lines.append(
            f"About {seeds_to_prove} test seeds each would prove a lead over {rival.label} as "
            "clear as this one, if it is real."
            if seeds_to_prove is not None
            else f"More than {MOST_RUNS} test seeds each would be needed to prove a lead over "
            f"{rival.label} as small as this one."
        )
    elif len(ranking) > 1 and not unproven:
        how = "behind" if any(ranked.behind for ranked in ranking) else "worse, beyond chance"
        if len(ranking) == 2:
            only = ranking[1]
            lines.append(f"{_capital(only.label)} {_pick(only, 'is', 'are')} {how}.")
        else:
            lines.append(f"All other finalists are {how}.")
    return lines


def _over_known_good(ranking: Sequence[Ranked], winner: Ranked) -> list[str]:
    if winner.is_default:
        return []
    return [
        f"Above {other.label} {_pick(winner, 'it scores', 'they score')} with a probability of "
        f"{_percent(winner.over_known_good[other.trial])}."
        for other in ranking
        if other.trial in winner.over_known_good
    ]


def _percent(chance: Estimate) -> str:
    return (
        f"{100 * chance.value:.0f} % (95 % interval {100 * chance.low:.0f} to "
        f"{100 * chance.high:.0f} %)"
    )


def _quality(ranked: Ranked) -> str:
    its = _pick(ranked, "its", "their")
    if len(ranked.scores) == 1:
        return f"On the only test seed {_pick(ranked, 'it', 'they')} scored {score(ranked.iqm)}."
    if alike(list(ranked.scores.values())):
        return f"On {_seeds(ranked)} that the search never saw, every score is {score(ranked.iqm)}."
    worst = f"{its} worst score {score(ranked.worst)}"
    mean = f"{its} interquartile mean is {score(ranked.iqm)}"
    if len(ranked.scores) < FEW_RUNS:
        return (
            f"On {_seeds(ranked)} that the search never saw, {its} scores are "
            f"{points(ranked.scores.values())}: too few for an interval."
        )
    ends = interval(ranked.low, ranked.high)
    sure = f"95 % interval {ends}" if ends else "no interval: a training diverged"
    return f"On {_seeds(ranked)} that the search never saw, {mean} ({sure}) and {worst}."


def _choice(winner: Ranked) -> str:
    """Return the rule that chose among finalists that are about level."""
    if winner.is_default:
        return " Within a standard error, the defaults are the answer."
    if any(origin.startswith("start") for origin in winner.origins):
        return " Within a standard error, known-good settings come before what the search found."
    return " The higher score decides."


def _tuning_gap(incumbent: Ranked) -> str:
    assert incumbent.objective is not None
    gap = incumbent.objective - incumbent.iqm
    its = _pick(incumbent, "its", "their")
    first = (
        f"{_capital(incumbent.label)} came first in the search with {score(incumbent.objective)}"
    )
    if not math.isfinite(gap):
        return f"{first}, but diverged on test seeds."
    if gap > SMALL_GAP * abs(incumbent.objective):
        return (
            f"{first}, but reached only {score(incumbent.iqm)} on test seeds: {its} tuning score "
            f"was too good by {score(gap)} (the tuning gap)."
        )
    return (
        f"{first} and reached {score(incumbent.iqm)} on test seeds: {its} tuning score was no "
        f"illusion (tuning gap {score(gap)})."
    )


def _pick(ranked: Ranked, singular: str, plural_form: str) -> str:
    """Choose by the grammatical number of the label: "trial 3" or "the defaults"."""
    return singular if ranked.label.startswith("trial") else plural_form


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _names(names: Sequence[str], *, capital: bool = True) -> str:
    text = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return _capital(text) if capital else text


def _seeds(ranked: Ranked) -> str:
    return "one seed" if len(ranked.scores) == 1 else f"{len(ranked.scores)} seeds"
