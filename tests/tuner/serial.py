"""A search without Ray: its jobs run here, one step of each in turn."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from rltune.backends.registry import config_class
from rltune.execution.messages import PAYLOAD, TASK
from rltune.execution.trainable import AgentTrainable
from rltune.planning.progress import SearchProgress
from rltune.runs.directory import RunDir
from rltune.runs.history import HistoryWriter
from rltune.runs.search_spec import SearchSpec
from rltune.runs.tracking_options import Tracking
from rltune.samplers.proposer import open_study
from rltune.schedulers.base import Population, Scheduler
from rltune.schedulers.registry import make_scheduler, rungs_of
from rltune.schedulers.resource import Resource
from rltune.screen.view import SearchView
from rltune.search.driver import Driver
from rltune.search.parts import SearchParts
from rltune.search.recording import Recorder
from rltune.search.request import starts
from rltune.search.search import Search
from rltune.space.space import Space
from rltune.study.study import SearchStudy
from rltune.tracking import Tracker

MORE_THAN_ENOUGH = 10_000


def make_parts(
    spec: SearchSpec,
    run: RunDir,
    study: SearchStudy,
    scheduler: Scheduler,
    history: HistoryWriter,
    progress: SearchProgress,
) -> SearchParts:
    """Return the parts of a search that is watched by nobody."""
    others = spec.further_objectives()
    view = SearchView("run", spec.agent, spec.env, progress)
    tracker = Tracker(run, Tracking(wandb="off"))
    recorder = Recorder(run, spec.env, study, others.goals, history, tracker, view)
    plan, resource = spec.seed_plan(rungs_of(spec)), Resource(spec.budget)
    return SearchParts(spec, run, study, scheduler, plan, others, resource, recorder)


class Serial:
    """A population in a run directory, made anew or found there.

    Args:
        folder: where the run is
        slots: jobs at once
        options: of `rltune.Search`
    """

    def __init__(self, folder: Path, slots: int = 2, **options: Any) -> None:
        if not (folder / "run").exists():
            search = Search(
                storage_path=folder, name="run", wandb="off", **{"report": False, **options}
            )
            RunDir.create(search.path, search.spec.to_dict())
        self.run = RunDir.open(folder / "run")
        self.spec = spec = SearchSpec.from_dict(self.run.spec)
        space, config = Space.from_dict(spec.space), config_class(spec.agent)
        self.study = open_study(
            self.run.study_path,
            space,
            sampler=spec.sampler,
            seed=spec.seed,
            starts=starts(space, spec.env, config),
        )
        self.study.reopen_cut()
        self.scheduler = make_scheduler(
            spec.scheduler,
            spec.budget,
            spec.scheduler_options,
            population=Population(
                spec=spec,
                space=space,
                config_class=config,
                study=self.study,
                checkpoint=self.run.checkpoint,
            ),
        )
        self.scheduler.restore(self.study.reports())
        self.history = HistoryWriter(self.run.path)
        self.driver = Driver(
            make_parts(
                spec,
                self.run,
                self.study,
                self.scheduler,
                self.history,
                SearchProgress(spec.budget, spec.trials, slots=slots),
            )
        )

    def go_on(self, results: int = MORE_THAN_ENOUGH) -> None:
        """Run so many results; then everything is left as `kill -9` leaves it."""
        driver, jobs = self.driver, dict[str, AgentTrainable]()
        for _ in range(results):
            while not driver.exhausted() and (task := driver.next_job()):
                jobs[task["job"]] = AgentTrainable({TASK: task})
            if not jobs:
                break
            name, job = next(iter(jobs.items()))
            jobs[name] = jobs.pop(name)  # to the end of the queue
            if driver.on_result(name, job.step()[PAYLOAD]):
                jobs.pop(name).cleanup()
            driver.use_the_time()
        else:
            assert results < MORE_THAN_ENOUGH
        self.history.close()
        self.study.close()

    def records(self) -> list[Any]:
        """Return the decisions that a search has to repeat, whenever it was killed."""
        keys = ("schedule", "stretch")
        return [
            (
                trial.number,
                trial.state,
                trial.value,
                trial.intermediate,
                *map(trial.attrs.get, keys),
            )
            for trial in self.study.trials()
        ]


def changes(records: list[Any]) -> list[Any]:
    """Return all changes of a population."""
    return list(itertools.chain.from_iterable(record[4] or [] for record in records))
