"""Liveness of workers: which jobs hang, and which environments do not answer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rltune.agents.envs.waiting import PATIENCE, silence
from rltune.common.formats import duration

if TYPE_CHECKING:
    from rltune.screen.view import SearchView
    from rltune.search.jobs import Running, RunningJob

# A worker that has not reported for so long hangs: seconds, and times the longest that one has
# taken so far. Trials of one space differ 25-fold in price.
HANGS_AFTER = 600.0
HANGS_FACTOR = 30.0
LOOK_EVERY = 10.0  # seconds; more between two looks is time in which this process slept, too


class Liveness:
    """Counts for how long nothing has come of each running job.

    Args:
        running: the jobs
        view: is told of environments that do not answer

    Attributes:
        longest_silence: seconds that a result has taken, at most
    """

    def __init__(self, running: Running, view: SearchView) -> None:
        self.running = running
        self.view = view
        self.longest_silence = 0.0
        self._hung: dict[str, str] = {}  # job -> why its worker was killed
        self._silent: set[str] = set()  # methods of the environment that have not answered for long
        self._looked = time.monotonic()

    def started(self, name: str) -> None:
        """Note that a worker has begun, or begun again, with the job."""
        if job := self.running.jobs.get(name) or self.running.ended_jobs.get(name):
            job.silence = 0.0

    def reported(self, job: RunningJob) -> None:
        """Note that a result has come of the job."""
        self.longest_silence = max(self.longest_silence, job.silence or 0.0)
        job.silence = 0.0

    def hanging(self) -> list[str]:
        """Return the jobs whose workers have not reported for much too long, each once."""
        now = time.monotonic()
        passed, self._looked = min(now - self._looked, LOOK_EVERY), now
        patience = max(HANGS_AFTER, HANGS_FACTOR * self.longest_silence)
        found = []
        for name, job in [*self.running.jobs.items(), *self.running.ended_jobs.items()]:
            if job.silence is None:
                continue
            job.silence += passed
            if job.silence > patience:
                self._hung[name] = f"hung: nothing came of it for {duration(patience)}"
                job.silence = None
                found.append(name)
        return found

    def explain(self, name: str, reason: str) -> str:
        """Return the reason of a failure: ``reason``, unless the worker was killed as it hung."""
        return self._hung.pop(name, reason)

    def show_silence(self, name: str, method: str) -> None:
        """Show that an environment does not answer, or (empty) that it has."""
        if job := self.running.jobs.get(name):
            self.view.trial_silent(job.number, method, seed=job.seed)
            if method and method not in self._silent:
                self._silent.add(method)  # of one space, all environments may be slow
                self.view.message(f"{job.name}: {silence(method, PATIENCE)}")
