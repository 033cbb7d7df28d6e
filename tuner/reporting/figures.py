"""The charts of a report, made from the run directory.

A chart that the data do not carry is left out: the page says less rather than more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from rltune.analysis.idle import idle_shares
from rltune.analysis.summary import Summary
from rltune.common.formats import count, duration, plural, score
from rltune.reporting.charts import (
    BLUE,
    COLOURS,
    GREEN,
    GREY,
    ORANGE,
    RED,
    Chart,
    Panel,
    Series,
)
from rltune.reporting.panels import (
    bands_say,
    estimates_panel,
    learning_curve,
    lower_edge,
    objective_name,
    points_of,
    valued,
)
from rltune.reporting.parameters import contour, importances, parallel, rank, slices
from rltune.stats import pareto
from rltune.stats.estimates import Estimate

MOST_CURVES = 300  # of trials, in one chart


def charts(summary: Summary) -> list[Chart]:
    """Return the charts, in the page's order."""
    makers: list[Callable[[Summary], Chart | None]] = [
        history, front, test_scores, learning_curves, importances, stopping, slices, parallel,
        contour, rank, costs, timeline,
    ]  # fmt: skip
    if summary.kind == "train":
        makers = [training]
    return [chart for make in makers if (chart := make(summary)) is not None]


# --------------------------------------------------------------------------------------- the search


def history(summary: Summary) -> Chart | None:
    """The objective of every trial in order; those that ran their whole budget set the record."""
    trials = valued(summary)
    if not len(trials):
        return None
    whole = trials[trials["state"] == "COMPLETE"]
    stopped = trials[trials["state"] != "COMPLETE"]
    series = []
    if len(stopped):
        series.append(points_of(stopped, stopped["trial"], "stopped early", GREY, hollow=True))
    if len(whole):
        record = whole["objective"].cummax()
        series.append(points_of(whole, whole["trial"], "whole budget", BLUE))
        series.append(
            Series("steps", list(whole["trial"]), list(record), "best so far", ORANGE)
        )  # fmt: skip
    says = f"{plural(len(whole), 'trial')} ran the whole budget of {_budget(summary)}"
    if len(stopped):
        says += f"; {plural(len(stopped), 'trial')} stopped early, shown hollow: their values are "
        says += "those of a shorter training, and no record"
    edge, cut = lower_edge(trials["objective"])
    panel = Panel("trial", objective_name(summary), series, y_from=edge)
    return Chart("history", "The search", f"{says}.{cut}", [panel])


def stopping(summary: Summary) -> Chart | None:
    """The evaluations of all trials, to where each was stopped."""
    rows = summary.history
    if not len(rows) or "eval_return" not in rows:
        return None
    rows = rows[rows["role"] == "tune"].dropna(subset=["eval_return"])
    trials = summary.trials.set_index("trial")
    numbers = [number for number in rows["trial"].unique() if number in trials.index]
    if len(numbers) < 2:
        return None
    shown = numbers[-MOST_CURVES:]
    curves: dict[str, tuple[list[Any], list[Any]]] = {}
    ends: dict[str, tuple[list[Any], list[Any]]] = {}
    for number in shown:
        mine = rows[rows["trial"] == number].groupby("env_steps")["eval_return"].mean()
        state = str(trials.loc[number, "state"])
        x, y = curves.setdefault(state, ([], []))
        x += [*mine.index.tolist(), None]
        y += [*mine.tolist(), None]
        last = ends.setdefault(state, ([], []))
        last[0].append(mine.index[-1])
        last[1].append(mine.iloc[-1])
    looks = {"COMPLETE": ("whole budget", BLUE), "PRUNED": ("stopped early", ORANGE),
             "FAIL": ("failed", RED)}  # fmt: skip
    series = []
    for state, (x, y) in sorted(curves.items(), reverse=True):
        label, colour = looks.get(state, ("running", GREEN))
        series.append(Series("line", x, y, label, colour, faint=True))
        if state in ("PRUNED", "FAIL"):
            series.append(Series("points", *ends[state], "", colour))
    stops = summary.stops
    marks = [(at, f"{n} stopped") for at, n in stops.items() if n > 1]
    says = f"Each line is a trial's greedy evaluations. {plural(sum(stops.values()), 'trial')} "
    says += "stopped early, "
    if summary.rung_seconds:
        says += "when they had taken as long as others that were better: see their reasons."
    else:
        says += "most of them at the dotted rungs, where trials are compared."
    if len(shown) < len(numbers):
        says += f" The last {MOST_CURVES} of {len(numbers)} trials are shown."
    edge, cut = lower_edge(rows.groupby(["trial", "env_steps"])["eval_return"].mean(), "evaluation")
    says += cut
    panel = Panel("env_steps", "return of an evaluation", series, marks=marks, y_from=edge)
    return Chart("stopping", "Where trials were stopped", says, [panel], height=360)


def timeline(summary: Summary) -> Chart | None:
    """The timeline of the trainings."""
    rows = summary.history
    if not len(rows):
        return None
    spans = []
    for (trial, seed), mine in rows.groupby(["trial", "seed"]):
        first, last = mine.iloc[0], mine.iloc[-1]
        begin = float(first["timestamp"]) - float(first["time"])
        node = str(last.get("node"))
        spans.append((begin, float(last["timestamp"]), str(first["role"]), trial, seed, node))
    spans.sort()
    start = spans[0][0]
    free: list[float] = []  # when each place is free again
    drawn: dict[str, list[tuple[float, float, int, str]]] = {"tune": [], "test": []}
    several_nodes = len({span[-1] for span in spans}) > 1
    for begin, end, role, trial, seed, node in spans:
        place = next((i for i, at in enumerate(free) if at <= begin + 1), None)
        if place is None:
            place = len(free)
            free.append(0.0)
        free[place] = end
        text = f"trial {trial} on seed {seed}, {duration(end - begin)}"
        if several_nodes:
            text += f", on {node}"
        drawn.setdefault(role, []).append(
            ((begin - start) / 60, (end - begin) / 60, place + 1, text)
        )
    series = []
    for role, label, colour in (("tune", "search", BLUE), ("test", "test seeds", GREEN)):
        if drawn[role]:
            x, width, y, texts = zip(*drawn[role], strict=True)
            series.append(Series("spans", x, y, label, colour, width=width, texts=texts))
    busy = sum(end - begin for begin, end, *_ in spans)
    whole = max(end for _, end, *_ in spans) - start
    says = f"{plural(len(spans), 'training')} side by side in {plural(len(free), 'place')}, which "
    says += f"were busy for {100 * busy / max(1e-9, whole * len(free)):.0f} % of the time."
    says += _idle_says(summary)
    names = {place: str(place) for place in range(1, len(free) + 1)}
    panel = Panel("minutes", "place", series, y_ticks=names)
    return Chart("timeline", "What ran when", says, [panel], height=min(500, 140 + 26 * len(free)))


def _idle_says(summary: Summary) -> str:
    idle = idle_shares(summary.history)
    if idle is None:
        return ""
    shares = {
        "waiting for an answer or the next trial": idle.waiting,
        "making agents": idle.making,
        "saving checkpoints": idle.saving,
    }
    parts = [f"{100 * share:.1f} % {what}" for what, share in shares.items()]
    says = f" From its first row on, a worker did not train for {100 * idle.whole:.1f} % of its "
    return f"{says}time: {', '.join(parts)}."


# ------------------------------------------------------------------------------------ the finalists


def test_scores(summary: Summary) -> Chart | None:
    """Every finalist's scores on its test seeds, with the interval of their mean."""
    answer = summary.answer
    if answer is None or not answer.ranking:
        return None
    finalists = [finalist for finalist in answer.ranking if math.isfinite(finalist.iqm)]
    if not finalists:
        return None
    rows = [
        (
            finalist.label,
            {
                f"{finalist.label}, seed {seed}: {score(v)}": v
                for seed, v in finalist.scores.items()
            },
            Estimate(finalist.iqm, finalist.low, finalist.high),
        )
        for finalist in finalists
    ]
    panel = estimates_panel(objective_name(summary), rows, "interquartile mean", "a test seed")
    best = finalists[0]
    says = "Re-trained on test seeds, which the search never saw. "
    says += f"{best.label[0].upper()}{best.label[1:]} came out highest with {score(best.iqm)}. "
    says += "Intervals that overlap may still belong to different configurations: the answer "
    says += "rests on tests, not on this picture."
    return Chart("test-scores", "The finalists on test seeds", says, [panel],
                 height=140 + 34 * len(finalists))  # fmt: skip


def front(summary: Summary) -> Chart | None:
    """The first two objectives of a search with several; with intervals where they were tested."""
    found = summary.front
    if found is None or not found.members:
        return None
    first, second = found.goals[:2]
    series = []
    columns = [f"objective.{second.name}", "objective"]
    if columns[0] in summary.trials:
        trials = valued(summary).dropna(subset=columns)
        trials = trials[trials["state"] == "COMPLETE"]
        label = "a trial, in the search"
        series.append(points_of(trials, trials[columns[0]], label, GREY, faint=True))
    for on_it, label, colour in ((False, "re-trained, beaten", GREY), (True, "the front", BLUE)):
        members = [
            member
            for member in found.members
            if member.on_front == on_it and _finite(member.values())
        ]
        members.sort(key=lambda member: member.values()[1])
        x, y = ([member.values()[k] for member in members] for k in (1, 0))
        ends = [member.estimates.get(first.name) for member in members]
        known = [estimate for estimate in ends if estimate is not None]
        tested = any(map(_finite, known)) and len(known) == len(ends)
        # Without an interval, as of scores that are all equal, there is no whisker.
        known = [e if _finite(e) else Estimate(e.value, e.value, e.value) for e in known]
        series.append(
            Series(
                "points", x, y, label, colour,
                low=[estimate.low for estimate in known] if tested else None,
                high=[estimate.high for estimate in known] if tested else None,
                texts=[f"{member.label}: {score(member.values()[0])}" for member in members],
            )
        )  # fmt: skip
    says = "No re-trained configuration has better estimates in both than one on the front. "
    says += "Whiskers are 95 % intervals of the return." if found.tested else "Nothing is tested."
    panel = Panel(second.name, objective_name(summary), series)
    title = f"{objective_name(summary).capitalize()} against {second.name}"
    return Chart("front", title, says, [panel], height=380)


def _finite(values: Iterable[float]) -> bool:
    return all(map(math.isfinite, values))


def learning_curves(summary: Summary) -> Chart | None:
    """The finalists' evaluations on test seeds: interquartile mean and its bootstrap band."""
    answer, rows = summary.answer, summary.history
    if answer is None or "eval_return" not in rows:
        return None
    rows = rows[rows["role"] == "test"].dropna(subset=["eval_return"])
    series = []
    counts = set()
    for finalist, colour in zip(answer.ranking, COLOURS, strict=False):
        mine = rows[rows["trial"] == finalist.trial]
        curves = [
            (training["env_steps"], training["eval_return"]) for _, training in mine.groupby("seed")
        ]
        curve = learning_curve(curves, f"{finalist.label}, {plural(len(curves), 'seed')}", colour)
        if curve is not None:
            counts.add(len(curves))
            series.append(curve)
    if not series:
        return None
    says = f"Interquartile means over test seeds{bands_say(counts)}"
    panel = Panel("env_steps", "return of an evaluation", series)
    return Chart("learning-curves", "Learning curves of the finalists", says, [panel], height=380)


def costs(summary: Summary) -> Chart | None:
    """The scores of trials against their cost, and the Pareto front of both."""
    trials = valued(summary)
    trials = trials[(trials["seconds"] > 0) & (trials["state"] == "COMPLETE")]
    if len(trials) < 3:
        return None
    points = trials[["seconds", "objective"]].to_numpy().tolist()
    on_it = trials.iloc[pareto.front(points, [True, False])].sort_values("seconds")
    series = [
        points_of(trials, trials["seconds"], "whole budget", BLUE, faint=True),
        Series("steps", on_it["seconds"].tolist(), on_it["objective"].tolist(), "front", ORANGE),
        points_of(on_it, on_it["seconds"], "", ORANGE),
    ]
    low, high = float(trials["seconds"].min()), float(trials["seconds"].max())
    says = f"Trials took from {duration(low)} to {duration(high)} of training. Those on the line "
    says += "are beaten by none that is cheaper. Values of the search, on its tuning seeds."
    panel = Panel("seconds of training", objective_name(summary), series, x_log=high > 5 * low)
    return Chart("costs", "Return against cost", says, [panel])


# --------------------------------------------------------------------------------------- a training


def training(summary: Summary) -> Chart | None:
    """The returns of one training."""
    rows = summary.history
    if not len(rows):
        return None
    series = []
    known = rows.dropna(subset=["mean_reward"])
    if len(known):
        series.append(Series("line", known["env_steps"].tolist(), known["mean_reward"].tolist(),
                             "mean of the last training episodes", GREY))  # fmt: skip
    if "eval_return" in rows:
        known = rows.dropna(subset=["eval_return"])
        spread = known["eval_std"]
        series.append(
            Series("line", known["env_steps"].tolist(), known["eval_return"].tolist(),
                   "greedy evaluation, ± its standard deviation", BLUE,
                   low=(known["eval_return"] - spread).tolist(),
                   high=(known["eval_return"] + spread).tolist())
        )  # fmt: skip
    panel = Panel("env_steps", "return", series)
    says = f"One training on one seed, {count(int(rows['env_steps'].max()))} env steps."
    return Chart("training", "The training", says, [panel], height=380)


# ------------------------------------------------------------------------------------------ helpers


def _budget(summary: Summary) -> str:
    return f"{count(summary.spec.get('budget', 0))} env steps"
