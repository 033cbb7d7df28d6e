"""Parallel coordinates: an axis per parameter, on the scale on which it is searched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rltune.reporting.charts import GREY, ORANGE, Chart, Panel

# From low to high; all three are seen on white and on black.
SCALE = (GREY, "#56b4e9", ORANGE)


@dataclass(frozen=True)
class Axis:
    """A parameter: the trials' places on its axis, and its tick labels."""

    name: str
    places: Sequence[float]
    ticks: Mapping[float, str]

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest place; never the same."""
        low, high = min(self.places), max(self.places)
        return (low, high) if high > low else (low - 0.5, low + 0.5)

    def shown(self) -> dict[float, str]:
        """Return the ticks between the ends."""
        low, high = self.ends
        near = 1e-9 * (high - low)
        return {at: text for at, text in self.ticks.items() if low - near <= at <= high + near}

    def heights(self) -> list[float]:
        """Return the places from 0 to 1."""
        low, high = self.ends
        return [(place - low) / (high - low) for place in self.places]


@dataclass(frozen=True)
class ParallelChart(Chart):
    """A line for each trial, in the colour of its value.

    Attributes:
        axes: from left to right
        values: of the trials
        value_name: of the values
        lowest: values below it have the colour of the lowest
    """

    panels: Sequence[Panel] = ()
    axes: Sequence[Axis] = ()
    values: Sequence[float] = ()
    value_name: str = ""
    lowest: float | None = None

    @property
    def is_wide(self) -> bool:
        """Whether a phone has to scroll it."""
        return True

    def plotly(self) -> dict[str, Any]:
        """Return Plotly's figure in plain types."""
        from plotly import graph_objects as go

        low, high = self._ends()
        ticks = [dict.fromkeys(axis.ends, "") | axis.shown() for axis in self.axes]  # to its ends
        lines = go.Parcoords(
            dimensions=[
                {
                    "label": axis.name, "values": list(axis.places), "range": list(axis.ends),
                    "tickvals": list(named), "ticktext": list(named.values()),
                }
                for axis, named in zip(self.axes, ticks, strict=True)
            ],
            line={
                "color": list(self.values), "cmin": low, "cmax": high,
                "colorscale": [[k / 2, colour] for k, colour in enumerate(SCALE)],
                "showscale": True, "colorbar": {"title": {"text": self.value_name}},
            },
            labelangle=25, labelside="bottom",
        )  # fmt: skip
        figure = go.Figure(lines)
        figure.update_layout(
            height=self.height, margin={"l": 60, "r": 15, "t": 30, "b": 90},
            template="plotly_white", paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)",
        )  # fmt: skip
        result: dict[str, Any] = figure.to_plotly_json()
        return result

    def _ends(self) -> tuple[float, float]:
        low = min(self.values) if self.lowest is None else self.lowest
        return low, max(self.values)

    def _drawn(self, figure: Any) -> Any:
        import numpy as np
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import LinearSegmentedColormap, Normalize

        figure.set_size_inches(max(7.0, 1.1 * len(self.axes)), 4.6)
        figure.set_layout_engine("constrained")
        axis = figure.subplots()
        colours = ScalarMappable(
            Normalize(*self._ends()), LinearSegmentedColormap.from_list("value", SCALE)
        )
        heights = [parameter.heights() for parameter in self.axes]
        shades = colours.to_rgba(np.array(self.values))
        for trial in sorted(range(len(self.values)), key=lambda k: self.values[k]):
            line = [column[trial] for column in heights]
            axis.plot(line, color=shades[trial], linewidth=1.2)
        behind = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.5}
        for place, parameter in enumerate(self.axes):
            axis.axvline(place, color="black", linewidth=0.8)
            low, high = parameter.ends
            for at, text in parameter.shown().items():
                axis.annotate(
                    text, (place, (at - low) / (high - low)), (-4, 0), va="center", ha="right",
                    textcoords="offset points", fontsize=7, bbox=behind,
                )  # fmt: skip
        names = [parameter.name for parameter in self.axes]
        axis.set_xticks(range(len(names)), names, rotation=25, ha="right", rotation_mode="anchor")
        axis.tick_params(labelsize=8, length=0)
        axis.set_yticks([])
        axis.set_xlim(-0.5, len(names) - 0.9)
        axis.spines[:].set_visible(False)
        figure.colorbar(colours, ax=axis, pad=0.01).set_label(self.value_name, fontsize=9)
        figure.suptitle(self.title, fontsize=11)
        return figure


def round_ticks(low: float, high: float, most: int = 5) -> dict[float, str]:
    """Return round numbers between two ends, at most so many, with their labels."""
    import numpy as np

    span = high - low
    if span <= 0:
        return {low: f"{low:.4g}"}
    power = 10.0 ** np.floor(np.log10(span / most))
    step = next(k * power for k in (1, 2, 5, 10) if span / (k * power) <= most)
    places = range(int(np.ceil(low / step - 1e-9)), int(np.floor(high / step + 1e-9)) + 1)
    return {float(k * step): f"{k * step:.10g}" for k in places}
