"""The figures on hyperparameters: importances, slices, and parallel coordinates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from rltune.agents.schedules import first_value
from rltune.analysis.importance.importances import TITLES
from rltune.analysis.summary import Summary
from rltune.common.formats import plural, setting
from rltune.reporting.charts import (
    BLUE,
    GREY,
    ORANGE,
    Chart,
    Panel,
    Series,
    log_ticks,
    to_one_ticks,
)
from rltune.reporting.optuna_chart import OptunaChart
from rltune.reporting.panels import lower_edge, objective_name, points_of, valued
from rltune.reporting.parallel import Axis, ParallelChart, round_ticks

MOST_COMPARED = 3  # parameters in charts of pairs
MOST_PAIRED = 300  # trials in them: a thousand are dots upon dots
LEAST_TRIALS = 5  # for charts of parameters


def importances(summary: Summary) -> Chart | None:
    """The importances with intervals; those not above their noise floor are faint."""
    table = summary.importances
    if table is None:
        return None
    table = table[table["kind"] == "parameter"].dropna(subset=["importance"])
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
    says = f"Shares of what {plural(len(valued(summary)), 'trial')} differ by, with "
    says += f"{table.attrs['interval']}s. A bar that does not get beyond its circle is no more "
    says += "than a parameter without influence gets: noise. By fANOVA, "
    verb = "stands" if len(strong) < 2 else "stand"
    says += f"{', '.join(strong['parameter']) or 'nothing'} {verb} out."
    says = " ".join(filter(None, [says, table.attrs["needs"], *table.attrs["notes"]]))
    height = 80 + 22 * max(len(panel.y_ticks or {}) for panel in panels)
    return Chart("importances", "What mattered", says, panels, height=height)


def slices(summary: Summary) -> Chart | None:
    """The objective over every searched parameter."""
    trials = valued(summary)
    names = _searched(summary, trials)
    if len(trials) < LEAST_TRIALS or not names:
        return None
    panels = []
    edge, cut = lower_edge(trials["objective"])
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
                    points_of(mine, [v for v, m in zip(values, mask, strict=True) if m], label,
                            colour, hollow=state == "PRUNED")
                )  # fmt: skip
        panels.append(Panel("", "", series, title=name, y_from=edge, **axis))
    says = f"Every trial's value ({objective_name(summary)}) over each parameter. A pattern in one "
    says += "panel may come from another parameter: the sampler goes where it found good values."
    says += cut
    return Chart("slices", "Each parameter", says, panels, columns=3, height=230)


def parallel(summary: Summary) -> Chart | None:
    """All parameters of the trials that ran the whole budget."""
    trials = valued(summary)
    trials = trials[trials["state"] == "COMPLETE"]
    names = _searched(summary, trials)
    if len(trials) < LEAST_TRIALS or len(names) < 2:
        return None
    says = f"A line is a trial that ran its whole budget ({plural(len(trials), 'trial')}); orange "
    says += "lines scored high, grey ones low. The axes are scaled as they are searched."
    values = trials["objective"].astype(float).tolist()
    lowest, cut = lower_edge(trials["objective"])
    if cut:
        says += " Lines far below have the colour of the lowest."
    title = objective_name(summary)
    axes = [Axis(title, values, round_ticks(min(values), max(values)))]
    for name in _most_related(trials, names, summary):
        axes.append(_coordinates(name, trials[f"config.{name}"], summary.searched[name]))
        if "-" in axes[-1].ticks.values() and "A dash" not in says:
            says += " A dash: the trial does not have the parameter."
    return ParallelChart("parallel", "All parameters at once", says, axes=axes, values=values,
                         value_name=title, lowest=lowest, height=480)  # fmt: skip


def _coordinates(name: str, column: pd.Series[Any], about: Mapping[str, Any]) -> Axis:
    """Return a parameter's axis; trials without the parameter are below the others."""
    numbers, ticks = _numbers(column, about)
    known = [value for value in numbers if value == value]
    if ticks is not None:
        placed, named = known, {float(place): text for place, text in ticks.items()}
    else:
        placed, axis = _placed(known, about)
        if "x_to_one" in axis:
            placed, named = [-math.log10(value) for value in placed], {
                -math.log10(place): text for place, text in to_one_ticks(placed).items()
            }  # fmt: skip
        elif "x_log" in axis:
            placed, named = [math.log10(value) for value in placed], {
                math.log10(place): text for place, text in log_ticks(placed).items()
            }  # fmt: skip
        elif "x_ticks" in axis:
            named = {float(place): text for place, text in axis["x_ticks"].items()}
        else:
            named = round_ticks(min(placed), max(placed))
    if len(known) < len(numbers):
        low, high = min(placed), max(placed)
        nowhere = low - (0.15 * (high - low) or 1.0)
        named[nowhere] = "-"
        rest = iter(placed)
        placed = [next(rest) if value == value else nowhere for value in numbers]
    return Axis(name, placed, named)


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
    summary: Summary, name: str, plot: str, title: str, says: str, height: int
) -> Chart | None:  # fmt: skip
    trials = valued(summary)
    trials = trials[trials["state"] == "COMPLETE"]
    names = _searched(summary, trials)
    if len(trials) < LEAST_TRIALS or len(names) < 2:
        return None
    chosen = _most_related(trials, names, summary)[:MOST_COMPARED]
    if len(trials) > MOST_PAIRED:
        says += f" Of {len(trials)} trials, the last {MOST_PAIRED}."
        trials = trials.iloc[-MOST_PAIRED:]
    else:
        says += f" {plural(len(trials), 'trial')}."
    if len(chosen) < len(names):
        says += " The parameters whose ranks go most with the value's are shown."
    shown = [_paired(name, trials[f"config.{name}"], summary.searched[name]) for name in chosen]
    if any(paired.kind.log and None in paired.values for paired in shown if not paired.is_choice):
        says += " Trials without a place on a logarithmic axis, as 0, are left out."
    return OptunaChart(
        name, title, says, plot=plot, study=_study_of(shown, trials["objective"].tolist()),
        params=[paired.name for paired in shown], value_name=objective_name(summary), height=height,
    )  # fmt: skip


@dataclass(frozen=True)
class Paired:
    """A parameter as Optuna's figures of pairs show it; None: a trial has no place there."""

    name: str
    values: Sequence[Any]
    kind: Any  # Optuna's distribution

    @property
    def is_choice(self) -> bool:
        """Whether the values are no numbers."""
        return hasattr(self.kind, "choices")


def _paired(name: str, column: pd.Series[Any], about: Mapping[str, Any]) -> Paired:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    numbers, ticks = _numbers(column, about)
    if ticks is not None:
        texts = [None if place != place else ticks[int(place)] for place in numbers]
        return Paired(name, texts, CategoricalDistribution(list(ticks.values())))
    known = [value for value in numbers if value == value]
    log = _is_log(about) and max(known) > 0
    if "one_minus_log" in about and max(known) < 1:
        name, numbers, log = f"1 - {name}", [1 - value for value in numbers], True
    values = [v if v == v and (v > 0 or not log) else None for v in numbers]
    known = [value for value in values if value is not None]
    return Paired(name, values, FloatDistribution(min(known), max(known), log=log))


def _study_of(shown: Sequence[Paired], values: Sequence[float]) -> Any:
    """Return a study in memory with one trial for each value."""
    import optuna
    from rltune.study.optuna_log import silent_log

    with silent_log():
        study = optuna.create_study(direction="maximize")
    for k, value in enumerate(values):
        having = [paired for paired in shown if paired.values[k] is not None]
        study.add_trial(
            optuna.trial.create_trial(
                params={paired.name: paired.values[k] for paired in having},
                distributions={paired.name: paired.kind for paired in having},
                value=float(value),
            )
        )
    return study


def _most_related(trials: pd.DataFrame, names: Sequence[str], summary: Summary) -> list[str]:
    """Return the parameters, ordered by the rank correlation with the objective."""
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


def _searched(summary: Summary, trials: pd.DataFrame) -> list[str]:
    """Return the searched parameters that took more than one value."""
    return [
        name
        for name in summary.searched
        if f"config.{name}" in trials and trials[f"config.{name}"].nunique() > 1
    ]


def _numbers(
    column: pd.Series[Any], about: Mapping[str, Any]
) -> tuple[list[float], dict[int, str] | None]:
    """Return values to draw; choices as whole numbers, with their labels."""
    values = column if "choice" in about else _start_values(column)
    numeric = values.map(_number)  # pandas 2's to_numeric drops the last digits of texts
    if "choice" not in about and numeric.notna().sum() == values.notna().sum():
        return numeric.tolist(), None
    choices = sorted({setting(value) for value in values.dropna()})
    places = {choice: place for place, choice in enumerate(choices, 1)}
    drawn = [float(places[setting(v)]) if v is not None and v == v else math.nan for v in values]
    return drawn, {place: choice for choice, place in places.items()}


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _placed(values: list[float], about: Mapping[str, Any]) -> tuple[list[float], dict[str, Any]]:
    """Return the places of the values on an axis that suits their scale, and the axis."""
    known = [value for value in values if value > 0]
    if "one_minus_log" in about and max(values) < 1:
        return [1 - value for value in values], {"x_to_one": True}
    if not _is_log(about) or not known:
        return values, {}
    base = 2 if "pow2" in about else 10
    low, high = (math.log(value, base) for value in (min(known), max(known)))
    if base == 10 and high - low < 2 and len(known) == len(values):  # too few powers for ticks
        return values, {"x_log": True}
    first = math.floor(low + 1e-9)
    ticks = {k: f"{2**k}" if base == 2 else f"1e{k}" for k in range(first, math.ceil(high) + 1)}
    if len(known) < len(values):
        ticks[first - 1] = "0"
    places = [math.log(value, base) if value > 0 else first - 1 for value in values]
    return places, {"x_ticks": ticks}


def _start_values(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return the column with schedules (lin_1e-3) as the value that they begin with."""
    if pd.api.types.is_numeric_dtype(column):
        return column
    return column.map(first_value)


def _is_log(about: Mapping[str, Any]) -> bool:
    return "log" in about or "pow2" in about
