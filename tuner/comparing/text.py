"""The sentences of a comparison: leads, their evidence, and warnings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rltune.common.formats import count, interval, plural, score
from rltune.comparing.trainings import EVALUATION, TRAINING
from rltune.objectives.metrics import describe, parse_objective
from rltune.stats.estimates import FEW_RUNS, Estimate, significance, smallest_p_value

if TYPE_CHECKING:
    from rltune.comparing.model import ComparisonData, EntryResult, EnvironmentResult, OverallResult

LIKE = 0.05  # budgets that differ by less than this part are alike
SHARE = 0.1  # and windows of evaluations whose starts differ by less, as a share of a training


def measured(comparison: ComparisonData) -> str:
    """Return the meaning of a score in words."""
    what = {EVALUATION: "return", TRAINING: "return of training episodes"}
    name = what.get(comparison.metric, comparison.metric)
    at = "" if comparison.until is None else f" up to {count(comparison.until)} env steps"
    return f"{name}, {describe(comparison.objective)}{at}"


def sentences(comparison: ComparisonData) -> list[str]:
    """Return sentences on the leads, over all environments first."""
    found = [] if comparison.overall is None else _over_all(comparison.overall)
    return found + [_on_one(result) for result in comparison.environments]


def percent(chance: Estimate) -> str:
    """Return "83 % (95 % interval 61 to 94 %)"."""
    return (
        f"{100 * chance.value:.0f} % (95 % interval {100 * chance.low:.0f} to "
        f"{100 * chance.high:.0f} %)"
    )


def names(labels: Iterable[str]) -> str:
    """Return "a, b and c"."""
    *first, last = labels
    return f"{', '.join(first)} and {last}" if first else last


def length(low: int, high: int) -> str:
    """Return the env steps of trainings: one number where they are alike."""
    if low >= (1 - LIKE) * high:
        return count(high)
    return f"{count(low)} to {count(high)}"


def _over_all(overall: OverallResult) -> list[str]:
    best, *others = overall.rows
    found = overall.rows[best]["IQM"]
    ends = interval(found.low, found.high)
    ends = f" (95 % interval {ends})" if ends else ""
    lines = [
        f"Over {plural(len(overall.envs), 'environment')}, {best} has the highest interquartile "
        f"mean of normalised scores, {score(found.value)}{ends}."
        if others
        else f"Over {plural(len(overall.envs), 'environment')}, the interquartile mean of {best}'s "
        f"normalised scores is {score(found.value)}{ends}."
    ]
    for pair in overall.pairs[: len(others)]:
        lines.append(
            f"A run of {pair.a} scores above one of {pair.b} with a probability of "
            f"{percent(pair.probability)}, the mean over the environments."
        )
    return lines


def _on_one(result: EnvironmentResult) -> str:
    best = result.rows[0]
    ends = interval(best.iqm.low, best.iqm.high)
    ends = f"95 % interval {ends}, " if ends else ""
    value = f"{score(best.iqm.value)} ({ends}{plural(len(best.scores), 'seed')})"
    if len(best.scores) > 1 and len(set(best.scores)) == 1:
        value = f"{score(best.iqm.value)} with each of {len(best.scores)} seeds"
    if len(result.rows) == 1:
        return f"{result.env}: {best.label} scores {value}."
    mine = [pair for pair in result.pairs if pair.a == best.label]
    beaten = [pair.b for pair in mine if pair.surely]
    tied = [pair.b for pair in mine if not pair.surely]
    level = all(row.scores == best.scores for row in result.rows) and len(set(best.scores)) == 1
    if level:
        return f"{result.env}: every training scores {score(best.iqm.value)}."
    text = f"{result.env}: {best.label} scores highest, {value}"
    if beaten:
        text += f", above {names(beaten)} beyond chance"
    if tied:
        what = "That it is above" if not beaten else "that it is above"
        text += ("; " if beaten else ". ") + f"{what} {names(tied)} can be luck"
    return text + "."


# ------------------------------------------------------------------------------- what weakens it


def warnings(comparison: ComparisonData) -> list[str]:
    """Return warnings about the comparison, the gravest first."""
    found: list[str] = []
    for result in comparison.environments:
        found += [
            *_seeds(result),
            *_budgets(result, comparison.until),
            *_windows(result, comparison),
        ]
    entries = comparison.entries
    found += _measures(comparison)
    for entry in entries:
        configs = {training.variant for training in entry.trainings}
        if len(configs) > 1 and not any(t.finalists for t in entry.trainings):
            found.append(
                f"{entry.label} on {entry.env} has {len(configs)} different configurations: its "
                "seeds differ by more than luck."
            )
    chosen = {t.name: t.finalists for e in entries for t in e.trainings if t.finalists > 1}
    if chosen and len(entries) > 1:
        found.append(
            f"The {'answer' if len(chosen) == 1 else 'answers'} of {names(chosen)} came out best "
            f"of {names(dict.fromkeys(map(str, chosen.values())))} finalists on just these test "
            "seeds: expect a little less of a new training."
        )
    for name, aim in {t.name: t.tuned_for for e in entries for t in e.trainings}.items():
        if aim:
            found.append(f"{name} was tuned for another objective: {aim}.")
    found += dict.fromkeys(t.remark for e in entries for t in e.trainings if t.remark)
    return [*found, *_environments(comparison)]


def _seeds(result: EnvironmentResult) -> list[str]:
    found = []
    few = [row.label for row in result.rows if len(row.scores) < FEW_RUNS]
    if few:
        found.append(
            f"{result.env}: {names(few)} {'has' if len(few) == 1 else 'have'} fewer than "
            f"{FEW_RUNS} seeds. That is too few for an interval: their scores are shown instead."
        )
    sizes = [len(row.scores) for row in result.rows]
    if len(sizes) > 1:
        # The best that any pair could show: two-sided, of as many pairs.
        a, b = sorted(sizes)[-2:]
        if 2 * smallest_p_value(a, b) > significance(len(result.pairs)):
            found.append(
                f"{result.env}: with {plural(max(sizes), 'seed')} at most, no difference between "
                f"{plural(len(sizes), 'entry').replace('entrys', 'entries')} can be shown, however "
                "large."
            )
    for row in result.rows:
        broken = sum(value == float("-inf") for value in row.scores)
        if broken:
            found.append(
                f"{result.env}: {plural(broken, 'training')} of {row.label} diverged or failed, "
                "which counts as the worst score there is."
            )
    return found


def _budgets(result: EnvironmentResult, until: float | None) -> list[str]:
    found = []
    for row in result.rows:
        for training in row.entry.trainings:
            planned, reached = training.planned, training.reached
            wanted = min(planned or 0, until or math.inf)
            if reached < (1 - LIKE) * wanted and not training.diverged:
                found.append(
                    f"{result.env}: {training.name} has had {count(reached)} of its "
                    f"{count(planned or 0)} env steps."
                )
    ends = {row.label: row.env_steps for row in result.rows}
    least, most = min(low for low, _ in ends.values()), max(high for _, high in ends.values())
    if least < (1 - LIKE) * most:
        each = "; ".join(f"{label} {length(*pair)}" for label, pair in ends.items())
        found.append(
            f"{result.env}: the trainings differ in length ({each} env steps), so more than the "
            f"agents differs. --until {least} compares what they reached by then."
        )
    return found


def _windows(result: EnvironmentResult, comparison: ComparisonData) -> list[str]:
    """Say when a score averages over parts of trainings that differ much."""
    kind, n = parse_objective(comparison.objective)
    if kind != "last" or n == 1:
        return []
    begins = {row.label: min(_begin(row, n, comparison.until)) for row in result.rows}
    if max(begins.values()) - min(begins.values()) <= SHARE:
        return []
    each = "; ".join(f"{label} {100 * share:.0f} %" for label, share in begins.items())
    return [
        f"{result.env}: the last {n} evaluations reach back to different parts of the trainings "
        f"({each}): an agent that is still learning loses by it. "
        "--objective last takes the last one alone."
    ]


def _begin(row: EntryResult, n: int, until: float | None) -> Sequence[float]:
    curves = [training.curve.until(until).env_steps for training in row.entry.trainings]
    return [steps[-n:][0] / steps[-1] for steps in curves if len(steps)] or [1.0]


def _measures(comparison: ComparisonData) -> list[str]:
    others = dict.fromkeys(
        entry.label
        for entry in comparison.entries
        for training in entry.trainings
        if training.metric != comparison.metric
    )
    if not others:
        return []
    return [
        f"{names(others)}: there are no evaluations, so the mean of the last 100 training episodes "
        "stands in for them, exploration included; --metric mean_reward compares that of all."
    ]


def _environments(comparison: ComparisonData) -> list[str]:
    """Return warnings on environments that the comparison over all leaves out."""
    environments, overall = comparison.environments, comparison.overall
    if len(environments) < 2:
        return []
    found = []
    labels = set(comparison.labels)
    unknown = [result.env for result in environments if result.scale is None]
    lacking = [
        result.env for result in environments if {row.label for row in result.rows} != labels
    ]
    if unknown:
        found.append(
            f"Which return solves {names(unknown)}? With --scale {unknown[0]}=LOW:HIGH, the return "
            "of a bad policy and that of a good one, it counts among the aggregates."
        )
    if lacking:
        found.append(
            f"Not everyone was trained on {names(lacking)}: the aggregates do without. "
            "LABEL=PATH says what belongs together."
            if overall is not None
            else f"There are no aggregates: not everyone was trained on {names(lacking)}. "
            "LABEL=PATH says what belongs together."
        )
    if overall is not None:
        rows = [row for result in environments if result.env in overall.envs for row in result.rows]
        uneven = [
            label
            for label in overall.rows
            if len({len(row.scores) for row in rows if row.label == label}) > 1
        ]
        if uneven:
            found.append(
                f"{names(uneven)}: not the same number of seeds everywhere; environments with more "
                "seeds weigh more in the interquartile mean over all."
            )
    return found
