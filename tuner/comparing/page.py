"""The HTML page of a comparison, and its tables."""

from __future__ import annotations

import math

from rltune.common.formats import interval, interval_title, plural, points, score
from rltune.comparing import text
from rltune.comparing.figures import charts
from rltune.comparing.model import ComparisonData, EnvironmentResult, OverallResult
from rltune.reporting.page import Page, Table, TableColumn, TableRow
from rltune.stats.aggregates import STATISTICS
from rltune.stats.estimates import significance


def page_of(found: ComparisonData, axis: str = "env_steps") -> Page:
    """Return the page of a comparison."""
    tables = [] if found.overall is None else [overall_table(found.overall, found)]
    tables += [scores_table(result, number) for number, result in enumerate(found.environments)]
    if (pairs := pairs_table(found)) is not None:
        tables.append(pairs)
    trainings = sum(len(entry.trainings) for entry in found.entries)
    return Page(
        title=text.names(found.labels),
        facts=[", ".join(result.env for result in found.environments),
               plural(trainings, "training"), text.measured(found)],
        heading="Side by side",
        sentences=found.sentences,
        warnings=found.warnings,
        tables=tables,
        charts=charts(found, axis),
        trials=trainings_table(found),
        made_from="run directories and logs alone",
    )  # fmt: skip


def scores_table(result: EnvironmentResult, number: int = 0, *, narrow: bool = False) -> Table:
    """Return a row per entry, the best first; ``narrow`` leaves the worst score out."""
    rows = []
    title = interval_title((row.iqm.low, row.iqm.high) for row in result.rows)
    for row in result.rows:
        cells = {
            "": row.label,
            "IQM": score(row.iqm.value),
            title: interval(row.iqm.low, row.iqm.high) or points(row.scores),
            "mean": score(row.mean),
            "median": score(row.median),
            "worst": score(min(row.scores)),
            "gap": share(row.optimality_gap),
            "seeds": str(len(row.scores)),
            "env_steps": text.length(*row.env_steps),
        }
        rows.append(cells)
    unwanted = {*(["worst"] if narrow else []), *(["gap"] if result.scale is None else [])}
    names = [name for name in rows[0] if name not in unwanted]
    note = "IQM: the interquartile mean."
    if result.scale is not None:
        note += (
            f" Gap: the optimality gap, what is missing to {score(result.scale.high)} as a part "
        )
        note += f"of the way there from {score(result.scale.low)}; no entry gets credit for more."
    return Table(
        f"scores-{number}",
        result.env,
        [TableColumn(name, number=bool(name)) for name in names],
        [TableRow([cells[name] for name in names]) for cells in rows],
        note,
    )


def overall_table(overall: OverallResult, found: ComparisonData) -> Table:
    """Return the aggregates, a row per statistic and label."""
    columns = [TableColumn("", number=False), TableColumn("", number=False), TableColumn("value"),
               TableColumn("95 % interval")]  # fmt: skip
    rows = []
    for name in STATISTICS:
        for number, (label, row) in enumerate(overall.rows.items()):
            estimate = row[name]
            ends = (
                f"{share(estimate.low)} to {share(estimate.high)}"
                if interval(estimate.low, estimate.high)
                else ""
            )
            rows.append(TableRow([name if number == 0 else "", label, share(estimate.value), ends]))
    scales = [str(result.scale) for result in found.environments if result.env in overall.envs]
    note = f"Normalised scores; the returns that count as 0 and as 1: {', '.join(scales)}. The "
    note += "optimality gap is what is missing to 1: the lower the better."
    return Table("overall", f"Over {plural(len(overall.envs), 'environment')}", columns, rows, note)


def pairs_table(found: ComparisonData, *, narrow: bool = False) -> Table | None:
    """Return the table of pairs: the probability that a run of one scores above one of the other.

    ``narrow`` leaves single environments out where there is the mean over several.
    """
    overall = found.overall
    groups = [(result.env, result.pairs) for result in found.environments]
    if overall is not None:
        groups = [("mean of all", overall.pairs), *([] if narrow else groups)]
    if not any(pairs for _, pairs in groups):
        return None
    rows = [
        TableRow(
            [
                env,
                f"{pair.a} > {pair.b}",
                f"{100 * pair.probability.value:.0f} %",
                f"{100 * pair.probability.low:.0f} to {100 * pair.probability.high:.0f} %",
                "" if pair.p_value is None else f"{pair.p_value:.2g}",
                "" if pair.p_value is None else "beyond chance" if pair.surely else "can be luck",
            ]
        )
        for env, pairs in groups
        for pair in pairs
    ]
    columns = [TableColumn("environment", number=False), TableColumn("", number=False),
               TableColumn("probability"), TableColumn("95 % interval"), TableColumn("p"),
               TableColumn("", number=False)]  # fmt: skip
    note = "The probability that a run of the one scores above a run of the other, ties counting "
    note += "half."
    if any(row.cells[-1] for row in rows):
        most = max(len(pairs) for _, pairs in groups)
        note += " p: how often alike agents would differ as much, by a two-sided permutation test."
        note += f" Beyond chance: below {significance(most):.2g}"
        note += ", 5 % for all pairs together." if most > 1 else "."
    else:
        rows, columns = [TableRow(row.cells[:4]) for row in rows], columns[:4]
    if len(groups) == 1:
        rows, columns = [TableRow(row.cells[1:]) for row in rows], columns[1:]
    return Table("pairs", "Probability of improvement", columns, rows, note)


def trainings_table(found: ComparisonData) -> Table:
    """Return a row per training."""
    columns = [TableColumn("entry", number=False), TableColumn("environment", number=False),
               TableColumn("training", number=False), TableColumn("seed"), TableColumn("score"),
               TableColumn("env_steps")]  # fmt: skip
    rows = [
        TableRow([row.label, result.env, training.name,
                  "" if training.seed is None else str(training.seed),
                  score(value), f"{training.reached:,}"])
        for result in found.environments
        for row in result.rows
        for training, value in zip(row.entry.trainings, row.scores, strict=True)
    ]  # fmt: skip
    return Table("trials", "All trainings", columns, rows)


def share(value: float | None) -> str:
    """Return a normalised score: "0.83"."""
    return "" if value is None else "diverged" if math.isinf(value) else f"{value:.2f}"
