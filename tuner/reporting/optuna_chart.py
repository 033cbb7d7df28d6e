"""Optuna's own figures as charts of the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rltune.reporting.charts import Chart, Panel, as_png, log_ticks, plain_log_ticks


@dataclass(frozen=True)
class OptunaChart(Chart):
    """One of Optuna's own figures; it has one for each of the two libraries.

    Attributes:
        plot: name of the function in optuna.visualization
        study, params: its arguments
        value_name: of the values
    """

    panels: Sequence[Panel] = ()
    plot: str = ""
    study: Any = None
    params: Sequence[str] = ()
    value_name: str = ""

    @property
    def is_wide(self) -> bool:
        """Whether a phone has to scroll it."""
        return True

    def plotly(self) -> dict[str, Any]:
        """Return Plotly's figure in plain types."""
        from optuna import visualization

        draw = getattr(visualization, self.plot)
        figure = draw(self.study, params=list(self.params), target_name=self.value_name)
        figure.update_layout(
            title=None, height=self.height, margin={"l": 60, "r": 15, "t": 30, "b": 40},
            template="plotly_white", paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)",
        )  # fmt: skip
        for axis in (*figure.select_xaxes(), *figure.select_yaxes()):
            axis.showline = False  # plotly.js draws that of a panel without points at NaN
            if axis.type == "log":
                ticks = log_ticks([10**end for end in axis.range])
                axis.update(tickvals=list(ticks), ticktext=list(ticks.values()))
        result: dict[str, Any] = figure.to_plotly_json()
        return result

    def png(self) -> bytes:
        """Return it as a PNG."""
        import warnings

        import numpy as np
        from matplotlib import pyplot
        from optuna.visualization import matplotlib as drawn

        with _without_window(), pyplot.rc_context(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna calls its matplotlib figures experimental
            draw = getattr(drawn, self.plot)
            axes = draw(self.study, params=list(self.params), target_name=self.value_name)
            panels = np.atleast_1d(axes).ravel()
            figure = panels[0].figure
            figure.set_size_inches(11, 9)
            for axis in panels:
                _spread_ticks(axis)
                axis.label_outer()
            figure.suptitle(self.title)
            # A single panel has a colour bar with rows of height 0, which "constrained" can't do.
            figure.set_layout_engine("constrained" if len(panels) > 1 else "tight")
            pyplot.close(figure)
            return as_png(figure)


def _spread_ticks(axis: Any) -> None:
    """Let no two labels of an axis lie on each other."""
    from matplotlib.ticker import MaxNLocator, ScalarFormatter

    axis.tick_params(labelsize=8)
    for side in (axis.xaxis, axis.yaxis):
        if side.get_scale() == "log":
            plain_log_ticks(side)
        elif isinstance(side.get_major_formatter(), ScalarFormatter):  # numbers, no choices
            side.set_major_locator(MaxNLocator(4))


@contextmanager
def _without_window() -> Iterator[None]:
    """Draw with pyplot where there may be no screen; a notebook keeps its own way of drawing."""
    import matplotlib
    from matplotlib import pyplot

    before = matplotlib.get_backend(auto_select=False)
    pyplot.switch_backend("agg")
    try:
        yield
    finally:
        if before is not None:
            pyplot.switch_backend(before)
