"""Charts: described once, drawn by Plotly for the page and by matplotlib for papers."""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

# Okabe and Ito's colours: told apart by colour-blind people, too.
BLUE, ORANGE, GREEN, RED, PURPLE, GREY = (
    "#0072b2", "#d98200", "#009e73", "#d55e00", "#aa4499", "#8a8f98",
)  # fmt: skip
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, RED, "#56b4e9", "#b8860b", GREY)
LIGHTER = {BLUE: "#3d9be0", PURPLE: "#d783cb", RED: "#ef7d3c"}  # in their place on black
PANEL_HEIGHT = 300  # pixels of a row of panels on the page
DPI = 150
LETTERS = 90  # of a small text, in the width of a chart


@dataclass(frozen=True)
class Series:
    """A series: the marks of one colour.

    Attributes:
        kind: "line"; "steps", which holds a value up to the next one; "points"; "bars", which lie,
            from 0 to x at the place y; "spans", which lie from x to x + width
        x, y: where; None in a line begins a new one
        low, high: of a line a band in y; of points and bars whiskers, of bars in x
        width: of spans
        texts: shown for each point on the page
        faint: in the background
    """

    kind: Literal["line", "steps", "points", "bars", "spans"]
    x: Sequence[Any]
    y: Sequence[Any]
    label: str = ""
    colour: str = BLUE
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    width: Sequence[float] | None = None
    texts: Sequence[str] | None = None
    faint: bool = False
    hollow: bool = False


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    ``marks`` are vertical lines, with what they mean; ``x_ticks`` and ``y_ticks`` name places. With
    ``x_to_one`` x is what is missing to 1, on a logarithmic axis that shows the values themselves.
    ``y_from`` cuts off the part below.
    """

    x_title: str
    y_title: str
    series: Sequence[Series]
    title: str = ""
    x_log: bool = False
    x_to_one: bool = False
    y_from: float | None = None
    y_log: bool = False
    marks: Sequence[tuple[float, str]] = ()
    x_ticks: Mapping[int, str] | None = None
    y_ticks: Mapping[int, str] | None = None


@dataclass(frozen=True)
class Chart:
    """A figure; ``says`` describes it in words, also for screen readers."""

    name: str  # of its file
    title: str
    says: str
    panels: Sequence[Panel]
    columns: int = 1
    height: int = PANEL_HEIGHT

    @property
    def rows(self) -> int:
        """The number of rows of panels."""
        return math.ceil(len(self.panels) / self.columns)

    @property
    def is_wide(self) -> bool:
        """Whether a phone has to scroll it."""
        return self.columns > 1

    def plotly(self) -> dict[str, Any]:
        """Return Plotly's figure in plain types."""
        from plotly.subplots import make_subplots

        titles = [panel.title for panel in self.panels]
        figure = make_subplots(
            rows=self.rows, cols=self.columns, subplot_titles=titles if any(titles) else None,
            horizontal_spacing=0.12 if self.columns == 2 else 0.08,
            vertical_spacing=0.35 / self.rows if self.rows > 1 else 0.0,
        )  # fmt: skip
        named: set[str] = set()
        for index, panel in enumerate(self.panels):
            row, column = divmod(index, self.columns)
            place = {"row": row + 1, "col": column + 1}
            for series in panel.series:
                for trace in _traces(series, named):
                    figure.add_trace(trace, **place)
            for (at, text), level in zip(panel.marks, _levels(panel), strict=True):
                figure.add_vline(
                    x=at, line_dash="dot", line_width=1, line_color=GREY, annotation_text=text,
                    annotation_font_size=10, annotation_yshift=-12 * level, **place,
                )  # fmt: skip
            about = _axis(panel.x_title, panel.x_ticks)
            if panel.x_log:
                about |= _log_axis(x for series in panel.series for x in series.x)
            if panel.x_to_one:
                ticks = to_one_ticks(float(x) for series in panel.series for x in series.x)
                about |= {"type": "log", "autorange": "reversed", "tickvals": list(ticks)}
                about["ticktext"] = list(ticks.values())
            figure.update_xaxes(**about, **place)
            about = _axis(panel.y_title, panel.y_ticks)
            if panel.y_log:
                about |= _log_axis(y for series in panel.series for y in series.y)
            if panel.y_from is not None:
                about["range"] = _shown(panel)
            figure.update_yaxes(**about, **place)
        figure.update_layout(
            height=self.height * self.rows + 60,
            margin={"l": 50, "r": 15, "t": 50 if any(titles) else 30, "b": 40},
            template="plotly_white", paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)",
            # Below the title of the axis, however high the chart is.
            legend={"orientation": "h", "y": -60 / (self.height * self.rows), "yanchor": "top"},
            hovermode="closest", barmode="overlay",
        )  # fmt: skip
        result: dict[str, Any] = figure.to_plotly_json()
        return result

    def figure(self) -> Any:
        """Return matplotlib's figure, one of pyplot's."""
        from matplotlib import pyplot

        return self._drawn(pyplot.figure())

    def save(self, folder: Path) -> Path:
        """Write a PNG and return its path."""
        from rltune.common.files import atomic_write

        path, picture = folder / f"{self.name}.png", self.png()
        atomic_write(path, lambda temporary: Path(temporary).write_bytes(picture))
        return path

    def png(self) -> bytes:
        """Return it as a PNG."""
        from matplotlib.figure import Figure

        return as_png(self._drawn(Figure()))  # no pyplot: in a notebook, its state is the user's

    def _drawn(self, figure: Any) -> Any:
        width = 4.2 * self.columns if self.columns > 1 else 7.0
        figure.set_size_inches(width, 3.2 * self.height / PANEL_HEIGHT * self.rows)
        figure.set_layout_engine("constrained")
        axes = figure.subplots(self.rows, self.columns, squeeze=False)
        named: dict[str, Any] = {}
        for axis, panel in zip(axes.flat, self.panels, strict=False):
            _draw(axis, panel)
            handles, labels = axis.get_legend_handles_labels()
            named |= dict(zip(labels, handles, strict=True))
        for axis in axes.flat[len(self.panels) :]:
            axis.set_visible(False)
        figure.suptitle(self.title, fontsize=11)
        if named:  # below, where it covers nothing
            figure.legend(
                list(named.values()), list(named), loc="outside lower center", frameon=False,
                fontsize=7, ncols=max(1, int(width / (0.5 + 0.06 * max(map(len, named))))),
            )  # fmt: skip
        return figure

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """Show it in a notebook: Plotly where that is understood, else the picture."""
        figure = self.plotly()
        figure["layout"] = {**figure["layout"], "title": {"text": self.title}}
        figure["layout"]["margin"] = {**figure["layout"].get("margin", {}), "t": 70}
        return {
            "application/vnd.plotly.v1+json": json.loads(json.dumps(figure, cls=_encoder())),
            "image/png": base64.b64encode(self.png()).decode("ascii"),
            "text/plain": f"{self.title}. {self.says}",
        }


def as_png(figure: Any) -> bytes:
    """Return a figure of matplotlib's as a PNG."""
    file = io.BytesIO()
    figure.savefig(file, dpi=DPI, format="png")
    return file.getvalue()


def _encoder() -> Any:
    from plotly.utils import PlotlyJSONEncoder

    return PlotlyJSONEncoder


# ------------------------------------------------------------------------------------------- Plotly


def _axis(title: str, ticks: Mapping[int, str] | None) -> dict[str, Any]:
    about: dict[str, Any] = {"title_text": title, "automargin": True}
    if ticks is not None:
        about |= {"tickmode": "array", "tickvals": list(ticks), "ticktext": list(ticks.values())}
        about["range"] = [min(ticks) - 0.6, max(ticks) + 0.6]
    return about


def _log_axis(values: Iterable[Any]) -> dict[str, Any]:
    """Return a logarithmic axis with numbers that can be read by themselves."""
    ticks = log_ticks([v for v in values if v is not None and math.isfinite(v) and v > 0])
    return {"type": "log", "tickvals": list(ticks), "ticktext": list(ticks.values())}


def log_ticks(values: Sequence[float]) -> dict[float, str]:
    """Return round numbers around the values and their names; beyond two decades powers of ten."""
    if not values:
        return {}
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    within = (1, 2, 5) if last - first <= 2 else (1,)
    places = [k * 10.0**power for power in range(first, last + 1) for k in within]
    return {place: f"{place:g}" for place in places}


def _levels(panel: Panel) -> list[int]:
    """Return the line below the top of each mark's text, so that no two overlap."""
    known = [float(x) for series in panel.series for x in series.x if x is not None]
    known += [at for at, _ in panel.marks]
    span = max(known, default=1.0) - min(known, default=0.0)
    ends: list[float] = []  # of the texts, by level
    levels = []
    for at, text in panel.marks:
        level = next((k for k, end in enumerate(ends) if end <= at), len(ends))
        ends[level : level + 1] = [at + span * len(text) / LETTERS]
        levels.append(level)
    return levels


def to_one_ticks(missing: Iterable[float]) -> dict[float, str]:
    """Return the places of 0.9, 0.99, ..., and their names, as far as what is missing reaches."""
    known = list(missing)
    first, last = (round(-math.log10(end), 6) for end in (max(known), min(known)))
    powers = range(math.floor(first), math.ceil(last) + 1)
    return {10.0**-k: f"{1 - 10.0**-k:.{k}f}" for k in powers if k > 0}


def _shown(panel: Panel) -> list[float]:
    """Return the ends of the y axis of a panel with ``y_from``."""
    assert panel.y_from is not None
    known = [y for series in panel.series for y in series.y if y is not None and math.isfinite(y)]
    edge = 0.05 * (max(known) - panel.y_from)
    return [panel.y_from - edge, max(known) + edge]


def _traces(series: Series, named: set[str]) -> list[Any]:
    from plotly import graph_objects as go

    common: dict[str, Any] = {
        "name": series.label,
        "legendgroup": series.label or None,
        "showlegend": bool(series.label) and series.label not in named,
    }
    named.add(series.label)
    if series.texts is not None:
        common |= {"text": list(series.texts), "hovertemplate": "%{text}<extra></extra>"}
    x, y = list(series.x), list(series.y)
    if series.kind in ("bars", "spans"):
        bars = go.Bar(
            x=list(series.width) if series.width is not None else x,
            y=y, base=x if series.kind == "spans" else None, orientation="h",
            marker={"color": series.colour, "opacity": 0.35 if series.faint else 0.85},
            error_x=_whiskers(series, x), textposition="none", **common,
        )  # fmt: skip
        return [bars]
    traces = []
    if series.kind != "points" and series.low is not None and series.high is not None:
        traces.append(
            go.Scatter(
                x=x + x[::-1], y=list(series.high) + list(series.low)[::-1], fill="toself",
                mode="lines",
                fillcolor=_transparent(series.colour), line={"width": 0}, hoverinfo="skip",
                legendgroup=series.label or None, showlegend=False,
            )
        )  # fmt: skip
    mark = {
        "color": series.colour,
        "size": 5 if series.faint else 7,
        "symbol": "circle-open" if series.hollow else "circle",
    }
    traces.append(
        go.Scatter(
            x=x, y=y, mode="markers" if series.kind == "points" else "lines",
            line={
                "color": series.colour, "width": 1 if series.faint else 2,
                "shape": "hv" if series.kind == "steps" else "linear",
            },
            marker=mark, opacity=0.45 if series.faint else 1.0,
            error_y=_whiskers(series, y) if series.kind == "points" else None, **common,
        )
    )  # fmt: skip
    return traces


def _whiskers(series: Series, values: Sequence[float]) -> dict[str, Any] | None:
    if series.low is None or series.high is None:
        return None
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - value for high, value in zip(series.high, values, strict=True)],
        "arrayminus": [value - low for low, value in zip(series.low, values, strict=True)],
        "thickness": 1.5,
        "color": GREY if series.kind == "bars" else series.colour,
    }


def _transparent(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.18)"


# --------------------------------------------------------------------------------------- matplotlib


def _draw(axis: Any, panel: Panel) -> None:
    for series in panel.series:
        _draw_series(axis, series, series.label or None)
    for (at, text), level in zip(panel.marks, _levels(panel), strict=True):
        axis.axvline(at, color=GREY, linestyle=":", linewidth=1)
        axis.annotate(
            text, (at, 1), (2, -8 - 9 * level), xycoords=("data", "axes fraction"),
            textcoords="offset points", fontsize=7, color=GREY,
        )  # fmt: skip
    if panel.x_log:
        axis.set_xscale("log")
        plain_log_ticks(axis.xaxis)
    if panel.y_log:
        axis.set_yscale("log")
        plain_log_ticks(axis.yaxis)
    if panel.x_to_one:
        axis.set_xscale("log")
        axis.invert_xaxis()
        places = to_one_ticks(float(x) for series in panel.series for x in series.x)
        axis.set_xticks(list(places), list(places.values()))
        axis.minorticks_off()
    if panel.y_from is not None:
        axis.set_ylim(*_shown(panel))
    axis.set_xlabel(panel.x_title, fontsize=9)
    axis.set_ylabel(panel.y_title, fontsize=9)
    axis.set_title(panel.title, fontsize=9)
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    for ticks, name in ((panel.x_ticks, "x"), (panel.y_ticks, "y")):
        if ticks is not None:
            getattr(axis, f"set_{name}ticks")(list(ticks), list(ticks.values()))
            getattr(axis, f"set_{name}lim")(min(ticks) - 0.6, max(ticks) + 0.6)
    if sum(map(len, (panel.x_ticks or {}).values())) > LETTERS / 3:
        axis.tick_params(axis="x", labelrotation=25)


def plain_log_ticks(axis: Any) -> None:
    """Give a logarithmic axis of matplotlib's few numbers that can be read by themselves."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = sorted(axis.get_view_interval())
    shown = [at for at in log_ticks([low, high]) if low <= at <= high]
    axis.set_major_locator(FixedLocator(shown))
    axis.set_major_formatter(FuncFormatter(lambda at, _: f"{at:g}"))
    axis.set_minor_locator(NullLocator())


def _draw_series(axis: Any, series: Series, label: str | None) -> None:
    x = [math.nan if value is None else value for value in series.x]
    y = [math.nan if value is None else value for value in series.y]
    style: dict[str, Any] = {"color": series.colour, "label": label}
    if series.kind in ("bars", "spans"):
        whiskers = _whiskers(series, x)
        axis.barh(
            y, x if series.width is None else series.width,
            left=x if series.kind == "spans" else None, alpha=0.35 if series.faint else 0.85,
            xerr=None if whiskers is None else [whiskers["arrayminus"], whiskers["array"]],
            ecolor=GREY, **style,
        )  # fmt: skip
        return
    style["alpha"] = 0.45 if series.faint else 1.0
    if series.kind == "points":
        if series.low is not None and series.high is not None:
            whiskers = _whiskers(series, y)
            assert whiskers is not None
            axis.errorbar(x, y, yerr=[whiskers["arrayminus"], whiskers["array"]], fmt="none",
                          ecolor=series.colour, elinewidth=1)  # fmt: skip
        if series.hollow:
            style |= {"facecolors": "none", "edgecolors": style.pop("color")}
        axis.scatter(x, y, s=12 if series.faint else 20, **style)
        return
    drawstyle = "steps-post" if series.kind == "steps" else "default"
    axis.plot(x, y, linewidth=0.8 if series.faint else 1.6, drawstyle=drawstyle, **style)
    if series.low is not None and series.high is not None:
        axis.fill_between(x, series.low, series.high, color=series.colour, alpha=0.18, linewidth=0)
