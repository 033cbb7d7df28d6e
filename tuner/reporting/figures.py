"""Which charts a report has, made from what the run directory says.

A chart that the data do not carry is left out: the page says less rather than more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from rltune import pareto
from rltune.formats import count, duration, plural, score, setting
from rltune.importance import TITLES
from rltune.reporting.charts import (
    BLUE,
    COLOURS,
    GREEN,
    GREY,
    ORANGE,
    RED,
    Chart,
    OptunaChart,
    Panel,
    Series,
)
from rltune.reporting.pieces import bands_say, estimates_panel, learning_curve
from rltune.stats import Estimate, far_below
from rltune.summary import Summary

MOST_CURVES = 300  # of trials, in one chart
MOST_COMPARED = 3  # parameters in charts of pairs
MOST_PAIRED = 300  # trials in them: a thousand are dots upon dots
LEAST_TRIALS = 5  # for charts of parameters


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
    trials = _valued(summary)
    if not len(trials):
        return None
    whole = trials[trials["state"] == "COMPLETE"]
    stopped = trials[trials["state"] != "COMPLETE"]
    series = []
    if len(stopped):
        series.append(_points(stopped, stopped["trial"], "stopped early", GREY, hollow=True))
    if len(whole):
        record = whole["objective"].cummax()
        series.append(_points(whole, whole["trial"], "whole budget", BLUE))
        series.append(
            Series("steps", list(whole["trial"]), list(record), "best so far", ORANGE)
        )  # fmt: skip
    says = f"{plural(len(whole), 'trial')} ran the whole budget of {_budget(summary)}"
    if len(stopped):
        says += f"; {plural(len(stopped), 'trial')} stopped early, shown hollow: their values are "
        says += "those of a shorter training, and no record"
    edge, cut = _cut_off(trials["objective"])
    panel = Panel("trial", _objective(summary), series, y_from=edge)
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
    says += "stopped early, most of them at the dotted rungs, where trials are compared."
    if len(shown) < len(numbers):
        says += f" The last {MOST_CURVES} of {len(numbers)} trials are shown."
    edge, cut = _cut_off(rows.groupby(["trial", "env_steps"])["eval_return"].mean(), "evaluation")
    says += cut
    panel = Panel("env_steps", "return of an evaluation", series, marks=marks, y_from=edge)
    return Chart("stopping", "Where trials were stopped", says, [panel], height=360)


def timeline(summary: Summary) -> Chart | None:
    """When each training ran, and beside which others."""
    rows = summary.history
    if not len(rows):
        return None
    spans = []
    for (trial, seed), mine in rows.groupby(["trial", "seed"]):
        first, last = mine.iloc[0], mine.iloc[-1]
        begin = float(first["timestamp"]) - float(first["time"])
        spans.append((begin, float(last["timestamp"]), str(first["role"]), trial, seed))
    spans.sort()
    start = spans[0][0]
    free: list[float] = []  # when each place is free again
    drawn: dict[str, list[tuple[float, float, int, str]]] = {"tune": [], "test": []}
    for begin, end, role, trial, seed in spans:
        place = next((i for i, at in enumerate(free) if at <= begin + 1), None)
        if place is None:
            place = len(free)
            free.append(0.0)
        free[place] = end
        text = f"trial {trial} on seed {seed}, {duration(end - begin)}"
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
    names = {place: str(place) for place in range(1, len(free) + 1)}
    panel = Panel("minutes", "place", series, y_ticks=names)
    return Chart("timeline", "What ran when", says, [panel], height=min(500, 140 + 26 * len(free)))


# ------------------------------------------------------------------------------------ the finalists


def test_scores(summary: Summary) -> Chart | None:
    """Every finalist's scores on its test seeds, with the interval of their mean."""
    answer = summary.answer
    if answer is None or not answer.ranking:
        return None
    ranked = [one for one in answer.ranking if math.isfinite(one.iqm)]
    if not ranked:
        return None
    rows = [
        (
            one.label,
            {f"{one.label}, seed {seed}: {score(v)}": v for seed, v in one.scores.items()},
            Estimate(one.iqm, one.low, one.high),
        )
        for one in ranked
    ]
    panel = estimates_panel(_objective(summary), rows, "interquartile mean", "a test seed")
    best = ranked[0]
    says = "Re-trained on seeds that the search never saw. "
    says += f"{best.label[0].upper()}{best.label[1:]} came out highest with {score(best.iqm)}. "
    says += "Intervals that overlap may still belong to different configurations: the answer "
    says += "rests on tests, not on this picture."
    return Chart("test-scores", "The finalists on test seeds", says, [panel],
                 height=140 + 34 * len(ranked))  # fmt: skip


def front(summary: Summary) -> Chart | None:
    """The first two objectives of a search with several; with intervals where they were tested."""
    found = summary.front
    if found is None or not found.members:
        return None
    first, second = found.goals[:2]
    series = []
    columns = [f"objective.{second.name}", "objective"]
    if columns[0] in summary.trials:
        trials = _valued(summary).dropna(subset=columns)
        trials = trials[trials["state"] == "COMPLETE"]
        label = "a trial, in the search"
        series.append(_points(trials, trials[columns[0]], label, GREY, faint=True))
    for on_it, label, colour in ((False, "re-trained, beaten", GREY), (True, "the front", BLUE)):
        members = [one for one in found.members if one.on_front == on_it and _finite(one.values())]
        members.sort(key=lambda one: one.values()[1])
        x, y = ([one.values()[k] for one in members] for k in (1, 0))
        ends = [one.estimates.get(first.name) for one in members]
        tested = all(one is not None and _finite(one) for one in ends)
        series.append(
            Series(
                "points", x, y, label, colour,
                low=[one.low for one in ends if one] if tested else None,
                high=[one.high for one in ends if one] if tested else None,
                texts=[f"{one.label}: {score(one.values()[0])}" for one in members],
            )
        )  # fmt: skip
    says = "No re-trained configuration has better estimates in both than one on the front. "
    says += "Whiskers are 95 % intervals of the return." if found.tested else "Nothing is tested."
    panel = Panel(second.name, _objective(summary), series)
    title = f"{_objective(summary).capitalize()} against {second.name}"
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
    for one, colour in zip(answer.ranking, COLOURS, strict=False):
        mine = rows[rows["trial"] == one.trial]
        curves = [(leg["env_steps"], leg["eval_return"]) for _, leg in mine.groupby("seed")]
        curve = learning_curve(curves, f"{one.label}, {plural(len(curves), 'seed')}", colour)
        if curve is not None:
            counts.add(len(curves))
            series.append(curve)
    if not series:
        return None
    says = f"Interquartile means over test seeds{bands_say(counts)}"
    panel = Panel("env_steps", "return of an evaluation", series)
    return Chart("learning-curves", "Learning curves of the finalists", says, [panel], height=380)


def costs(summary: Summary) -> Chart | None:
    """What a trial scored against what it took, and which trials nothing beats in both."""
    trials = _valued(summary)
    trials = trials[(trials["seconds"] > 0) & (trials["state"] == "COMPLETE")]
    if len(trials) < 3:
        return None
    points = trials[["seconds", "objective"]].to_numpy().tolist()
    on_it = trials.iloc[pareto.front(points, [True, False])].sort_values("seconds")
    series = [
        _points(trials, trials["seconds"], "whole budget", BLUE, faint=True),
        Series("steps", on_it["seconds"].tolist(), on_it["objective"].tolist(), "front", ORANGE),
        _points(on_it, on_it["seconds"], "", ORANGE),
    ]
    low, high = float(trials["seconds"].min()), float(trials["seconds"].max())
    says = f"Trials took from {duration(low)} to {duration(high)} of training. Those on the line "
    says += "are beaten by none that is cheaper. Values of the search, on its tuning seeds."
    panel = Panel("seconds of training", _objective(summary), series, x_log=high > 5 * low)
    return Chart("costs", "Return against cost", says, [panel])


# ----------------------------------------------------------------------------------- the parameters


def importances(summary: Summary) -> Chart | None:
    """Which parameters mattered, with intervals; what is not above its noise floor is faint."""
    table = summary.importances
    if table is None:
        return None
    table = table[table["kind"].isin(["parameter", "budget"])].dropna(subset=["importance"])
    if not len(table):
        return None
    panels = []
    for method, title in TITLES.items():
        mine = table[table["method"] == method].sort_values("importance")
        mine = mine.assign(place=range(1, len(mine) + 1))
        series = []
        for noise, label in ((False, "above the noise"), (True, "noise")):
            shown = mine[mine["is_noise"] == noise]
            series.append(
                Series("bars", shown["importance"].tolist(), shown["place"].tolist(), label,
                       GREY if noise else BLUE, low=shown["low"].tolist(),
                       high=shown["high"].tolist(), faint=noise)
            )  # fmt: skip
        floors = Series("points", mine["floor"].tolist(), mine["place"].tolist(), "noise floor",
                        ORANGE, hollow=True)  # fmt: skip
        names = dict(zip(mine["place"].tolist(), mine["parameter"].tolist(), strict=True))
        panels.append(Panel("", "", [*series, floors], title=title, y_ticks=names))
    strong = table[(table["method"] == "fanova") & ~table["is_noise"]]
    says = f"Shares of what {plural(len(_valued(summary)), 'trial')} differ by, with 95 % "
    says += "intervals. A bar that does not get beyond its circle is no more than shuffled values "
    says += "give: noise. By fANOVA, "
    one = "stands" if len(strong) < 2 else "stand"
    says += f"{', '.join(strong['parameter']) or 'nothing'} {one} out."
    says = " ".join([says, *table.attrs["notes"]])
    height = 80 + 22 * max(len(panel.y_ticks or {}) for panel in panels)
    return Chart("importances", "What mattered", says, panels, height=height)


def slices(summary: Summary) -> Chart | None:
    """The objective over every searched parameter."""
    trials = _valued(summary)
    names = _searched(summary, trials)
    if len(trials) < LEAST_TRIALS or not names:
        return None
    panels = []
    edge, cut = _cut_off(trials["objective"])
    for name in names:
        about = summary.searched[name]
        column = trials[f"config.{name}"]
        known = trials[column.notna()]
        values, ticks = _numbers(known[f"config.{name}"], about)
        axis: dict[str, Any] = {"x_ticks": ticks}
        if ticks is None:
            values, axis = _placed(values, about)
        series = []
        for state, label, colour in (("PRUNED", "stopped early", GREY),
                                     ("COMPLETE", "whole budget", BLUE)):  # fmt: skip
            mask = (known["state"] == state).to_numpy()
            if mask.any():
                mine = known[mask]
                series.append(
                    _points(mine, [v for v, m in zip(values, mask, strict=True) if m], label,
                            colour, hollow=state == "PRUNED")
                )  # fmt: skip
        panels.append(Panel("", "", series, title=name, y_from=edge, **axis))
    says = f"Every trial's value ({_objective(summary)}) over each parameter. A pattern in one "
    says += "panel may come from another parameter: the sampler goes where it found good values."
    says += cut
    return Chart("slices", "Each parameter", says, panels, columns=3, height=230)


def parallel(summary: Summary) -> Chart | None:
    """All parameters of the trials that ran the whole budget."""
    return _optuna(summary, "parallel", "plot_parallel_coordinate", "All parameters at once",
                   "A line is a trial that ran its whole budget; dark lines scored high.", 460,
                   most=None)  # fmt: skip


def contour(summary: Summary) -> Chart | None:
    """Pairs of parameters."""
    return _optuna(summary, "contour", "plot_contour", "Pairs of parameters",
                   "What trials scored over pairs of parameters. Between the points it is "
                   "interpolated, which may be wrong.", 620)  # fmt: skip


def rank(summary: Summary) -> Chart | None:
    """Pairs of parameters, by ranks."""
    return _optuna(summary, "rank", "plot_rank", "Pairs of parameters, by rank",
                   "The same pairs; the colour is a trial's rank, so one extreme value does not "
                   "hide the rest.", 620)  # fmt: skip


def _optuna(
    summary: Summary, name: str, plot: str, title: str, says: str, height: int,
    most: int | None = MOST_COMPARED,
) -> Chart | None:  # fmt: skip
    trials = _valued(summary)
    trials = trials[trials["state"] == "COMPLETE"]
    names = _searched(summary, trials)
    if len(trials) < LEAST_TRIALS or len(names) < 2:
        return None
    chosen = _most_related(trials, names, summary)[:most]
    if most is not None and len(trials) > MOST_PAIRED:
        says += f" Of {len(trials)} trials, the last {MOST_PAIRED}."
        trials = trials.iloc[-MOST_PAIRED:]
    else:
        says += f" {plural(len(trials), 'trial')}."
    if len(chosen) < len(names):
        says += " The parameters whose ranks go most with the value's are shown."
    study = display_study(summary, trials, chosen)
    return OptunaChart(name, title, says, plot=plot, study=study, params=chosen, height=height)


def display_study(summary: Summary, trials: pd.DataFrame, names: Iterable[str]) -> Any:
    """Return a study in memory with the values that people know (0.99, not 0.01), for Optuna."""
    import optuna
    from rltune.samplers import silent_log

    with silent_log():
        study = optuna.create_study(direction="maximize")
    kinds = {name: _distribution(summary.searched[name], trials[f"config.{name}"])
             for name in names}  # fmt: skip
    for _, row in trials.iterrows():
        values = {name: _plain(row[f"config.{name}"], kinds[name]) for name in kinds}
        values = {name: value for name, value in values.items() if value is not None}
        study.add_trial(
            optuna.trial.create_trial(
                params=values, value=float(row["objective"]),
                distributions={name: kinds[name] for name in values},
            )
        )  # fmt: skip
    return study


def _distribution(about: Mapping[str, Any], column: pd.Series) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    values, ticks = _numbers(column, about)
    if ticks is not None:
        return CategoricalDistribution(list(ticks.values()))
    values = [value for value in values if value == value]
    low, high = min(values), max(values)  # starts may lie outside of the ranges
    log = (_is_log(about) or "pow2" in about) and low > 0
    return FloatDistribution(low, max(high, low), log=log)


def _plain(value: Any, kind: Any) -> Any:
    if value is None or value != value:
        return None
    value = value.removeprefix("lin_") if isinstance(value, str) else value
    return setting(value) if hasattr(kind, "choices") else float(value)


def _most_related(trials: pd.DataFrame, names: Sequence[str], summary: Summary) -> list[str]:
    """Return the parameters, those first whose ranks go with the objective's."""
    from scipy.stats import spearmanr

    strength = {}
    for name in names:
        values, _ = _numbers(trials[f"config.{name}"], summary.searched[name])
        array = np.array(values, dtype=float)
        known = np.isfinite(array)
        varied = len(set(array[known].tolist())) > 1 and trials["objective"].nunique() > 1
        found = spearmanr(array[known], trials["objective"][known]).statistic if varied else 0.0
        strength[name] = abs(float(found)) if math.isfinite(found) else 0.0
    return sorted(names, key=lambda name: -strength[name])


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
    says = f"One training on one seed, {count(int(rows['env_steps'].max()))} env_steps."
    return Chart("training", "The training", says, [panel], height=380)


# ------------------------------------------------------------------------------------------ helpers


def _valued(summary: Summary) -> pd.DataFrame:
    """Return the ended trials that have a value."""
    trials = summary.trials
    trials = trials[trials["state"].isin(["COMPLETE", "PRUNED"])]
    return trials[np.isfinite(trials["objective"].astype(float))]


def _searched(summary: Summary, trials: pd.DataFrame) -> list[str]:
    """Return the searched parameters that took more than one value."""
    return [
        name
        for name in summary.searched
        if f"config.{name}" in trials and trials[f"config.{name}"].nunique() > 1
    ]


def _points(trials: pd.DataFrame, x: Iterable[Any], label: str, colour: str, **more: Any) -> Series:
    texts = [
        f"trial {row['trial']}: {score(row['objective'])}, {row['state'].lower()} after "
        f"{count(row['budget_reached'] or 0)} env_steps"
        for row in trials.to_dict("records")
    ]
    values = trials["objective"].tolist()
    return Series("points", list(x), values, label, colour, texts=texts, **more)


def _numbers(
    column: pd.Series[Any], about: Mapping[str, Any]
) -> tuple[list[float], dict[int, str] | None]:
    """Return values to draw; choices as whole numbers, with what the numbers mean."""
    values = _start_values(column)
    numeric = pd.to_numeric(values, errors="coerce")
    if "choice" not in about and numeric.notna().sum() == values.notna().sum():
        return numeric.tolist(), None
    choices = sorted({setting(value) for value in values.dropna()})
    places = {choice: place for place, choice in enumerate(choices, 1)}
    drawn = [float(places[setting(v)]) if v is not None and v == v else math.nan for v in values]
    return drawn, {place: choice for choice, place in places.items()}


def _placed(values: list[float], about: Mapping[str, Any]) -> tuple[list[float], dict[str, Any]]:
    """Return where the values lie on an axis that suits their scale, and the axis."""
    known = [value for value in values if value > 0]
    if "one_minus_log" in about and max(values) < 1:
        return [1 - value for value in values], {"x_to_one": True}
    if not _is_log(about) or not known:
        return values, {}
    base = 2 if "pow2" in about else 10
    low, high = (math.log(value, base) for value in (min(known), max(known)))
    if base == 10 and high - low < 2:  # too few powers of ten for ticks
        return values, {"x_log": True}
    first = math.floor(low + 1e-9)
    ticks = {k: f"{2**k}" if base == 2 else f"1e{k}" for k in range(first, math.ceil(high) + 1)}
    if len(known) < len(values):
        ticks[first - 1] = "0"
    places = [math.log(value, base) if value > 0 else first - 1 for value in values]
    return places, {"x_ticks": ticks}


def _cut_off(values: pd.Series[Any], what: str = "trial") -> tuple[float | None, str]:
    """Return where a picture ends below, if a few values would flatten it, and a sentence on it."""
    edge = far_below(values)
    if edge is None:
        return None, ""
    below = values[values < edge]
    lie = "lies" if len(below) == 1 else "lie"
    far = f"at {score(below.min())}" if len(below) == 1 else f"down to {score(below.min())}"
    return edge, f" {plural(len(below), what)} {lie} far below the picture, {far}."


def _start_values(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return the column with schedules (lin_1e-3) as the value that they begin with."""
    if pd.api.types.is_numeric_dtype(column):
        return column
    return column.map(lambda v: v.removeprefix("lin_") if isinstance(v, str) else v)


def _is_log(about: Mapping[str, Any]) -> bool:
    return "log" in about or "pow2" in about


def _objective(summary: Summary) -> str:
    """Return what is maximised, in words."""
    metric = str(summary.spec.get("metric", "eval_return"))
    return "return" if metric == "eval_return" else metric


def _budget(summary: Summary) -> str:
    return f"{count(summary.spec.get('budget', 0))} env_steps"
