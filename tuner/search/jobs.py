"""Running jobs and running trials: what is under way in a search."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rltune.answer.tournament import job_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rltune.execution.messages import Task
    from rltune.objectives.seeds import TrialSeeds


@dataclass
class RunningJob:
    """A training that Tune runs: a trial on one seed, or a re-training of the tournament.

    Attributes:
        task: what its worker was given
        origin: of the trial
        silence: seconds since its worker has begun or reported; None before it begins
        seconds, env_steps: of its training so far
        traceback: of its last failure
    """

    task: Task
    origin: str
    silence: float | None = None
    seconds: float = 0.0
    env_steps: int = 0
    traceback: str = ""

    @property
    def number(self) -> int:
        """Of the trial."""
        return self.task["number"]

    @property
    def seed(self) -> int:
        """That it is trained on."""
        return self.task["seed"]

    @property
    def is_test(self) -> bool:
        """Whether this is a re-training of the tournament."""
        return self.task["role"] == "test"

    @property
    def name(self) -> str:
        """The job's name in messages: its trial, and its seed where that differs."""
        number, seed = self.number, self.seed
        return f"trial {number} on seed {seed}" if self.is_test or seed else f"trial {number}"


@dataclass
class RunningTrial:
    """A trial of the search that has not ended.

    Attributes:
        number, config, origin: as the study has them
        seeds: its runs on its seeds
        started: Unix seconds
        retries: how often a worker of it was started again
        traceback: of its last failure
        value, others: its objectives at the last point that was judged
        cutoffs: rung -> value to go on from it, as far as it was known when the trial began
    """

    number: int
    config: dict[str, Any]
    origin: str
    seeds: TrialSeeds
    started: float = field(default_factory=time.time)
    retries: int = 0
    traceback: str = ""
    value: float | None = None
    others: tuple[float, ...] = ()
    cutoffs: dict[int, float] = field(default_factory=dict)


class Running:
    """The jobs and trials that are under way.

    Args:
        first_seed: that every trial is trained on

    Attributes:
        jobs: by name
        ended_jobs: those that have ended, but whose workers don't know it yet
        trials: of the search that have not ended, by number
    """

    def __init__(self, first_seed: int) -> None:
        self.first_seed = first_seed
        self.jobs: dict[str, RunningJob] = {}
        self.ended_jobs: dict[str, RunningJob] = {}
        self.trials: dict[int, RunningTrial] = {}

    def job_name(self, number: int, seed: int) -> str:
        """Return the name of the job that trains the trial on the seed."""
        return str(number) if seed == self.first_seed else job_name(number, seed)

    def is_training(self, number: int, seed: int) -> bool:
        """Whether a job trains the trial on the seed."""
        return self.job_name(number, seed) in self.jobs

    def search_jobs(self) -> Iterator[RunningJob]:
        """Yield the jobs of the search, without the re-trainings of the tournament."""
        return (job for job in self.jobs.values() if not job.is_test)

    def start(self, job: RunningJob) -> None:
        """Take a job that is handed to a worker."""
        self.jobs[job.task["job"]] = job

    def end(self, job: RunningJob) -> None:
        """Remove a job that ends with the result that was just judged."""
        del self.jobs[job.task["job"]]

    def end_trial(self, number: int) -> None:
        """Remove a trial with its jobs; their workers learn of it with their next result."""
        del self.trials[number]
        for name in [job.task["job"] for job in self.search_jobs() if job.number == number]:
            self.ended_jobs[name] = self.jobs.pop(name)

    def worker_knows(self, name: str) -> None:
        """Forget a job that has ended, now that its worker has learned of it."""
        self.ended_jobs.pop(name, None)
