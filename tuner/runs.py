"""Runs for readers: `open_run` gives frames, figures and the answer, and changes nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import UserError
from rltune.rundir import RunDir
from rltune.untrusted import load_yaml

if TYPE_CHECKING:
    import pandas as pd
    from rltune.policy import Policy
    from rltune.reporting.charts import Chart


class Run:
    """A run as its directory tells it: frames, specification and answer; changes nothing."""

    def __init__(self, rundir: RunDir) -> None:
        self.rundir = rundir

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.rundir.path

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.rundir.name

    @property
    def spec(self) -> dict[str, Any]:
        """What was asked for: agent, env, space, budget, seeds, ..."""
        return self.rundir.spec

    def trials(self) -> pd.DataFrame:
        """Return a row per trial: state, reason, configuration, objective, budget reached, cost."""
        from rltune.trials_table import read_trials

        return read_trials(self.rundir.trials_path)

    def history(self) -> pd.DataFrame:
        """Return a row per (trial, seed, iteration)."""
        from rltune.history import read_history

        return read_history(self.path)

    def episodes(self) -> pd.DataFrame:
        """Return a row per finished training episode."""
        from rltune.history import read_episodes

        return read_episodes(self.path)

    @property
    def best(self) -> dict[str, Any] | None:
        """The best configuration, or None before there is one."""
        return self._read_yaml("best/config.yaml")

    @property
    def answer(self) -> dict[str, Any] | None:
        """The answer of the search, or None before there is one."""
        return self._read_yaml("best/answer.yaml")

    def policy(
        self,
        *,
        best: bool = False,
        trial: int | None = None,
        env: str | None = None,
        device: str = "auto",
    ) -> Policy:
        """Return what the run has learned, to act with; see `rltune.load`."""
        from rltune.policy import load

        return load(self.path, best=best, trial=trial, env=env, device=device)

    def front(self, against: str | None = None) -> pd.DataFrame:
        """Return the front of a search with several objectives, a row per configuration.

        Columns: trial, label, on_front, dominated_by (trials that are better beyond chance), each
        objective with its interval (.low, .high; 95 %) and its value in the search (.tuning), the
        configuration, and the command that trains it again.

        Args:
            against: "env_steps" gives, of any search, the best objective by when, see `anytime.py`

        Raises:
            UserError: there is no such front, or not yet.
        """
        from rltune.against import STEPS
        from rltune.anytime import learning_front
        from rltune.front import Front

        if against is not None:
            if against != STEPS:
                raise UserError(
                    f"--against {against}: of a search that has run, only {STEPS} can be looked "
                    f"at; rltune run ... --against {against} searches for that front."
                )
            return learning_front(self)
        data = self._read_yaml("best/front.yaml")
        if data is None:
            what = "is not at its end" if self.spec.get("against") else "has one objective"
            raise UserError(f"{self.path} {what}: there is no front.")
        return Front.from_dict(data).frame()

    def figures(self) -> dict[str, Chart]:
        """Return the report's figures by name; a notebook shows them, ``save(folder)`` draws them.

        What the run does not carry yet is left out.
        """
        from rltune.reporting.figures import charts
        from rltune.summary import Summary

        return {chart.name: chart for chart in charts(Summary(self))}

    def _repr_html_(self) -> str:
        """Show the answer in a notebook."""
        from rltune.reporting import page
        from rltune.summary import Summary

        return page.of_run(Summary(self)).card()

    def _read_yaml(self, name: str) -> dict[str, Any] | None:
        file = self.path / name
        data = load_yaml(file) if file.exists() else None
        if not isinstance(data, dict | None):
            raise UserError(f"{file} is damaged: it has no names with values.")
        return data

    def __repr__(self) -> str:
        spec = self.spec
        what = " on ".join(str(spec[key]) for key in ("agent", "env") if key in spec)
        created = self.rundir.content.get("created", "")
        return f"<{self.rundir.kind} {self.name!r}: {what}, {created}, {self.path}>"


def open_run(path: str | os.PathLike[str]) -> Run:
    """Open a run for reading: a path, a name under ./runs, or "latest"."""
    return Run(RunDir.open(path))
