"""The figures of a comparison, and `plot_history`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import UserError, unknown
from rltune.common.formats import score
from rltune.comparing.entries import Entry, Runs, collect
from rltune.comparing.text import measured
from rltune.comparing.trainings import EVALUATION, TRAINING
from rltune.reporting.charts import COLOURS, Chart, Panel, Series
from rltune.reporting.panels import bands_say, estimates_panel, learning_curve

if TYPE_CHECKING:
    from rltune.comparing.model import ComparisonData, Pair
    from rltune.stats.estimates import Estimate

AXES = ("env_steps", "time")
NONE: dict[str, float] = {}
METRICS = {EVALUATION: "return of an evaluation", TRAINING: "return of training episodes"}


def charts(found: ComparisonData, axis: str = "env_steps") -> list[Chart]:
    """Return the figures that the comparison carries, in the page's order."""
    made = [
        scores(found),
        curves(found.entries, found.labels, found.metric, axis, found.until),
        aggregates(found),
        profiles(found),
        improvements(found),
    ]
    return [chart for chart in made if chart is not None]


def plot_history(
    runs: Runs,
    *,
    axis: str = "env_steps",
    metric: str = EVALUATION,
    until: float | None = None,
    env: str | None = None,
) -> Any:
    """Return a matplotlib figure with the histories of several runs, a panel per environment.

    Runs with the same label are seeds of one curve, its interquartile mean, with a bootstrap band
    from five seeds on.

    Args:
        runs: as those of `rltune.compare`
        axis: "env_steps", or "time": since the start of each training
        metric: "eval_return" of greedy evaluations, "mean_reward" of training episodes, or any
            other column of the histories
        until: the env steps at which the curves end
        env: the environment of logs that don't say it

    Raises:
        UserError: something isn't there, is damaged, or has no such metric or no times.
    """
    entries, _ = collect(runs, metric, env=env)
    labels = list(dict.fromkeys(entry.label for entry in entries))
    chart = curves(entries, labels, metric, axis, until)
    if chart is None:
        raise UserError(f"there is nothing to plot over {axis}: no run says it.")
    return chart.figure()


def curves(
    entries: Sequence[Entry], labels: Sequence[str], metric: str, axis: str, until: float | None
) -> Chart | None:
    """The learning curves on each environment."""
    if axis not in AXES:
        raise unknown("axis", axis, AXES, "--axis")
    unit, seconds = _time_unit(entries, until) if axis == "time" else ("", 1.0)
    panels, seeds, timeless, apart = [], [], [], []
    for env in dict.fromkeys(entry.env for entry in entries):
        series = []
        for entry in (entry for entry in entries if entry.env == env):
            reached = [
                curve
                for training in entry.trainings
                if len((curve := training.curve.until(until)).values)
            ]
            if axis == "time" and any(curve.seconds is None for curve in reached):
                timeless.append(entry.label)
                continue
            drawn = [
                (curve.env_steps if curve.seconds is None or not unit else curve.seconds / seconds,
                 curve.values)
                for curve in reached
            ]  # fmt: skip
            found = learning_curve(drawn, entry.label, _colour(labels, entry.label))
            if found is None:
                apart.append(entry.label)
                continue
            series.append(found)
            seeds.append(len(reached))
        if series:
            title = METRICS.get(metric, metric)
            panels.append(Panel(unit or "env_steps", title, series, title=env))
    if not panels:
        return None
    says = f"Interquartile means over seeds{bands_say(seeds)}"
    if min(seeds) == 1:
        says += " A curve of one seed is that seed."
    if axis == "time":
        says += " Time since the start of each training; on other machines, or beside others, it"
        says += " would be another."
    if timeless:
        says += f" Not shown, for want of times: {', '.join(dict.fromkeys(timeless))}."
    if apart:
        says += f" Not shown, for its seeds have no point in common: {', '.join(apart)}."
    return Chart("curves", "Learning curves", says, panels, columns=_columns(panels), height=340)


def scores(found: ComparisonData) -> Chart:
    """Every seed's score with the interval of their mean, on each environment."""
    panels = []
    for result in found.environments:
        rows = [
            (
                row.label,
                {
                    f"{row.label}, {training.name}, seed {training.seed}: {score(value)}": value
                    for training, value in zip(row.entry.trainings, row.scores, strict=True)
                },
                row.iqm,
            )
            for row in result.rows
        ]
        panel = estimates_panel(METRICS.get(found.metric, found.metric), rows,
                                "interquartile mean", "a seed")  # fmt: skip
        panels.append(replace(panel, title=result.env if len(found.environments) > 1 else ""))
    most = max(len(result.rows) for result in found.environments)
    says = f"Score: {measured(found)}. Lines are 95 % intervals; with fewer than five seeds there "
    says += "is none."
    return Chart("scores", "Scores on each environment", says, panels, columns=_columns(panels),
                 height=130 + 34 * most)  # fmt: skip


def aggregates(found: ComparisonData) -> Chart | None:
    """The statistics over all environments."""
    overall = found.overall
    if overall is None:
        return None
    panels = []
    for name in next(iter(overall.rows.values())):
        estimates = [(label, NONE, row[name]) for label, row in overall.rows.items()]
        lower = ", the lower the better" if name == "optimality gap" else ""
        panel = estimates_panel("", estimates, "estimate")
        panels.append(replace(panel, title=f"{name}{lower}"))
    says = f"Over {', '.join(overall.envs)}: 0 is a bad policy, 1 a good one. Intervals are from "
    says += "stratified bootstraps. The median is over environments, the optimality gap what is "
    says += "missing to 1."
    return Chart("aggregate", "Over all environments", says, panels, columns=2,
                 height=130 + 34 * len(overall.rows))  # fmt: skip


def profiles(found: ComparisonData) -> Chart | None:
    """Performance profiles: the share of runs that score above a threshold."""
    overall = found.overall
    if overall is None:
        return None
    series = [
        Series("line", profile.tau, profile.value, label, _colour(found.labels, label),
               low=profile.low, high=profile.high)
        for label, profile in overall.profiles.items()
    ]  # fmt: skip
    seeds = [len(r.scores) for e in found.environments if e.env in overall.envs for r in e.rows]
    says = f"The part of all runs that score above τ{bands_say(seeds)} "
    says += "Higher is better; where lines cross, neither is better everywhere."
    panel = Panel("normalised score τ", "part of the runs above τ", series)
    return Chart("profile", "Performance profiles", says, [panel], height=380)


def improvements(found: ComparisonData) -> Chart | None:
    """The probability that a run of one entry scores above a run of another."""
    rows: list[tuple[str, dict[str, float], Estimate]] = []
    if found.overall is None:
        for result in found.environments:
            place = f"{result.env}: " if len(found.environments) > 1 else ""
            rows += [(f"{place}{pair.a} > {pair.b}", {}, pair.probability) for pair in result.pairs]
    else:
        rows = [
            (f"{pair.a} > {pair.b}", _on_each(found, pair), pair.probability)
            for pair in found.overall.pairs
        ]
    if not rows:
        return None
    says = "The probability that a run of the one scores above a run of the other, ties counting "
    says += "half, with 95 % intervals. At the dotted line, one half, they are alike."
    if found.overall is not None:
        says += " Blue: the mean over the environments, of which each is a grey dot."
    panel = estimates_panel("probability", rows, "mean" if found.overall else "probability",
                            "an environment")  # fmt: skip
    panel = replace(panel, marks=[(0.5, "")])
    return Chart("improvement", "Probability of improvement", says, [panel],
                 height=200 + 30 * len(rows))  # fmt: skip


def _on_each(found: ComparisonData, pair: Pair) -> dict[str, float]:
    """Return the probability on each environment that counts, by its text on the page."""
    overall, each = found.overall, {}
    for result in found.environments:
        if overall is None or result.env not in overall.envs:
            continue
        known = {(p.a, p.b): p.probability.value for p in result.pairs}
        known |= {(b, a): 1 - value for (a, b), value in known.items()}
        value = known[pair.a, pair.b]
        each[f"{result.env}, {pair.a} > {pair.b}: {100 * value:.0f} %"] = value
    return each


def _columns(panels: Sequence[Panel]) -> int:
    return min(2, len(panels))


def _colour(labels: Sequence[str], label: str) -> str:
    return COLOURS[labels.index(label) % len(COLOURS)]


def _time_unit(entries: Sequence[Entry], until: float | None) -> tuple[str, float]:
    """Return the unit of time that suits the longest curve, and its seconds."""
    ends = []
    for entry in entries:
        times = [training.curve.until(until).seconds for training in entry.trainings]
        ends.append(min((t[-1] for t in times if t is not None and len(t)), default=0.0))
    for unit, seconds in (("hours", 3600.0), ("minutes", 60.0)):
        if max(ends) >= 2 * seconds:
            return unit, seconds
    return "seconds", 1.0
