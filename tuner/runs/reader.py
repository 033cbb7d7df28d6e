"""The reader of a run: frames, the specification and the answer, from its directory alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import UserError
from rltune.common.reading import load_yaml
from rltune.runs.directory import RunDir

if TYPE_CHECKING:
    import pandas as pd


class RunReader:
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
        """The specification: agent, env, space, budget, seeds, ..."""
        return self.rundir.spec

    def trials(self) -> pd.DataFrame:
        """Return a row per trial: state, reason, configuration, objective, budget reached, cost."""
        from rltune.runs.trials_table import read_trials

        return read_trials(self.rundir.trials_path)

    def history(self) -> pd.DataFrame:
        """Return a row per (trial, seed, iteration)."""
        from rltune.runs.history import read_history

        return read_history(self.path)

    def episodes(self) -> pd.DataFrame:
        """Return a row per finished training episode."""
        from rltune.runs.history import read_episodes

        return read_episodes(self.path)

    @property
    def best(self) -> dict[str, Any] | None:
        """The best configuration, or None before there is one."""
        return self.read_yaml("best/config.yaml")

    @property
    def answer(self) -> dict[str, Any] | None:
        """The answer of the search, or None before there is one."""
        return self.read_yaml("best/answer.yaml")

    def read_yaml(self, name: str) -> dict[str, Any] | None:
        """Return the content of a YAML file of the run; None: it is not there."""
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


def read_run(path: str | os.PathLike[str]) -> RunReader:
    """Open a run for reading: a path, a name under ./runs, or "latest"."""
    return RunReader(RunDir.open(path))
