"""Recording: a search's results in the history, the table of trials, the tracker and the screen."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from rltune.agents.config import config_hash
from rltune.backends.registry import cut_off
from rltune.runs.trials_table import TrialsTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rltune.execution.messages import Result
    from rltune.objectives.goals import Goal
    from rltune.objectives.seeds import SeedRun
    from rltune.runs.directory import RunDir
    from rltune.runs.history import HistoryWriter
    from rltune.screen.view import SearchView
    from rltune.search.jobs import RunningJob
    from rltune.study.records import TrialRecord
    from rltune.study.study import SearchStudy
    from rltune.tracking import Tracker


class Recorder:
    """Writes down what happens, and tells the screen and the tracker.

    Args:
        run: the run directory
        env: the environment, as the user calls it
        study: what the table of trials is made from
        goals: further objectives, columns of that table
        history, tracker, view: where it is written and shown, the view's progress included
    """

    def __init__(
        self,
        run: RunDir,
        env: str,
        study: SearchStudy,
        goals: Sequence[Goal],
        history: HistoryWriter,
        tracker: Tracker,
        view: SearchView,
    ) -> None:
        self.run = run
        self.env = env
        self.study = study
        self.history = history
        self.tracker = tracker
        self.view = view
        self.progress = view.progress
        self.table = TrialsTable(run.trials_path, goals)
        self._told_of_cuts = False  # of evaluations' episodes
        self._table_is_old = False

    def job_started(self, job: RunningJob, env_steps: int, expected: float | None) -> None:
        """Show a job that starts, or goes on from ``env_steps``.

        ``expected`` is the seconds that its whole training should take; None: unknown.
        """
        task, config = job.task, job.task["config"]
        self.view.trial_started(
            self.progress.training_started(job.number, job.seed, task["role"], env_steps),
            job.origin,
            config=config,
            checkpoint=os.path.relpath(task["checkpoint"], self.run.path),
            expected=expected,
        )
        about = {"trial": job.number, "origin": job.origin, "hash": config_hash(config)}
        self.tracker.trial_started(about, config, job.seed, task["role"])

    def write(self, job: RunningJob, result: Result) -> dict[str, Any] | None:
        """Make the result durable before anything is concluded from it.

        Returns:
            the row of the history; None: it was there before a resume
        """
        key = (job.number, job.seed)
        last = self.history.last_iteration(*key)
        written = result.restored and result.iteration <= last
        keep = result.iteration if written else result.iteration - 1
        if last > keep:  # the trial came back from a checkpoint: what follows is written anew
            self.history.rewind(*key, keep)
        about = {
            "trial": job.number,
            "seed": job.seed,
            "role": job.task["role"],
            "iteration": result.iteration,
        }
        # By the time of its arrival, the order of the decisions can be told (`replay_scheduler`).
        row = {**result.row, "timestamp": time.time()}
        if not written:
            self.history.append({**about, **row}, [{**about, **e} for e in result.episodes])
            self.tracker.log(job.number, job.seed, job.task["role"], row)
        if not self._told_of_cuts and (text := cut_off(row, self.env)):
            self._told_of_cuts = True
            self.view.message(text)
        if not result.restored:
            for note in result.notes:
                self.view.message(f"{job.name}: {note}")
        job.env_steps = row["env_steps"]
        job.seconds = row["time"]
        return None if written else {**about, **row}

    def show(self, job: RunningJob, objective: float | None) -> None:
        """Show how far a job is, and its latest objective where it was evaluated."""
        self.progress.training_progress(job.number, job.seed, job.env_steps, job.seconds)
        self.view.trial_progress(job.number, objective, seed=job.seed)

    def trial_ended(
        self, number: int, state: str, reason: str, value: float | None, runs: Mapping[int, SeedRun]
    ) -> None:
        """Show that a trial of the search has ended, with its runs by seed."""
        seed = min(runs, default=0)
        self.progress.training_ended(number, seed, state)
        self.view.trial_ended(number, state, reason, value, seed=seed)
        self._table_is_old = True
        for seed, run in runs.items():
            summary = _summary(state, reason, value, run.seconds, run.env_steps)
            self.tracker.trial_finished(number, summary, seed, "tune")

    def test_ended(self, job: RunningJob, state: str, reason: str, value: float | None) -> None:
        """Show that a re-training of the tournament has ended."""
        self.progress.training_ended(job.number, job.seed, state)
        self.view.trial_ended(job.number, state, reason, value, seed=job.seed)
        summary = _summary(state, reason, value, job.seconds, job.env_steps)
        self.tracker.trial_finished(job.number, summary, job.seed, "test")

    def show_incumbent(self) -> TrialRecord | None:
        """Show the best trial so far, and return it."""
        incumbent = self.study.incumbent()
        if incumbent is not None and incumbent.value is not None:
            self.view.set_incumbent(incumbent.number, incumbent.value, incumbent.config)
        return incumbent

    def tidy(self) -> None:
        """Write what can wait: the table of trials, and the history's rows as parquet."""
        if self._table_is_old and self.table.is_due:
            self.write_trials_table()
            self._table_is_old = False
        self.history.tidy()

    def write_trials_table(self, force: bool = False) -> None:
        """Write trials.parquet from the study; now and then unless forced."""
        self.table.write(self.study.trials, force)


def _summary(
    state: str, reason: str, value: float | None, seconds: float, env_steps: int
) -> dict[str, Any]:
    """Return the summary that the tracker keeps of a training that has ended."""
    return {
        "state": state,
        "reason": reason,
        "objective": value,
        "seconds": seconds,
        "budget_reached": env_steps,
    }
