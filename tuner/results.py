"""Results of runs, as `rltune.open` and `rltune.Search.run` return them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import UserError
from rltune.runs.directory import RunDir
from rltune.runs.reader import RunReader

if TYPE_CHECKING:
    import pandas as pd
    from rltune.reporting.charts import Chart
    from rltune.training.policy import Policy


class Run(RunReader):
    """A run for its user: the reader's frames, and figures, the front and the policy."""

    def policy(
        self,
        *,
        best: bool = False,
        trial: int | None = None,
        env: str | None = None,
        device: str = "auto",
    ) -> Policy:
        """Return the trained policy of the run, to act with; see `rltune.load`."""
        from rltune.training.policy import load

        return load(self.path, best=best, trial=trial, env=env, device=device)

    def front(self, against: str | None = None) -> pd.DataFrame:
        """Return the front of a search with several objectives, a row per configuration.

        Columns: trial, label, on_front, dominated_by (trials that are better beyond chance), each
        objective with its interval (.low, .high; 95 %) and its value in the search (.tuning), the
        configuration, and the command that trains it again.

        Args:
            against: "env_steps" gives, of any search, the best objective by when

        Raises:
            UserError: there is no such front, or not yet.
        """
        from rltune.analysis.learning_front import learning_front
        from rltune.answer.front import Front

        if against is not None:
            return learning_front(self, against)
        data = self.read_yaml("best/front.yaml")
        if data is None:
            what = "is not at its end" if self.spec.get("against") else "has one objective"
            raise UserError(f"{self.path} {what}: there is no front.")
        return Front.from_dict(data).frame()

    def figures(self) -> dict[str, Chart]:
        """Return the report's figures by name; a notebook shows them, ``save(folder)`` draws them.

        Figures that the run has no data for yet are left out.
        """
        from rltune.analysis.summary import Summary
        from rltune.reporting.figures import charts

        return {chart.name: chart for chart in charts(Summary(self))}

    def _repr_html_(self) -> str:
        """Show the answer in a notebook."""
        from rltune.analysis.summary import Summary
        from rltune.reporting import page

        return page.of_run(Summary(self)).card()


def open_run(path: str | os.PathLike[str]) -> Run:
    """Open a run for reading: a path, a name under ./runs, or "latest"."""
    return Run(RunDir.open(path))


@dataclass(frozen=True)
class SearchResult:
    """The result of a search; everything is read from its run directory."""

    run: Run
    interrupted: bool = False
    page: str = ""  # a line that says where the report is, or why there is none

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.run.path

    @property
    def best(self) -> dict[str, Any] | None:
        """The configuration to use, or None when the search ended without a winner."""
        return self.run.best

    @property
    def answer(self) -> dict[str, Any] | None:
        """The answer with ranking, intervals, differences to the defaults and sentences."""
        return self.run.answer

    def trials(self) -> pd.DataFrame:
        """A row per trial."""
        return self.run.trials()

    def history(self) -> pd.DataFrame:
        """A row per (trial, seed, iteration)."""
        return self.run.history()

    def episodes(self) -> pd.DataFrame:
        """A row per finished episode."""
        return self.run.episodes()

    def policy(
        self, *, trial: int | None = None, env: str | None = None, device: str = "auto"
    ) -> Policy:
        """The winner's agent, or a trial's, to act with; see `rltune.load`."""
        return self.run.policy(trial=trial, env=env, device=device)

    def figures(self) -> dict[str, Chart]:
        """The report's figures by name; a notebook shows them."""
        return self.run.figures()

    def _repr_html_(self) -> str:
        return self.run._repr_html_()

    def front(self, against: str | None = None) -> pd.DataFrame:
        """A row per configuration that was compared in several objectives; see `Run.front`."""
        return self.run.front(against)
