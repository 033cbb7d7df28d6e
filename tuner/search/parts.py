"""The parts of a search: what its driver, its judge and its tournament work with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rltune.search.events import SearchEvents

if TYPE_CHECKING:
    from rltune.objectives.goals import FurtherObjectives
    from rltune.objectives.seeds import SeedPlan
    from rltune.planning.progress import SearchProgress
    from rltune.runs.directory import RunDir
    from rltune.runs.search_spec import SearchSpec
    from rltune.schedulers.base import Scheduler
    from rltune.schedulers.resource import Resource
    from rltune.screen.view import SearchView
    from rltune.search.recording import Recorder
    from rltune.search.stop_rules import Health
    from rltune.study.study import SearchStudy


@dataclass(frozen=True)
class SearchParts:
    """The parts that a search is put together from.

    Attributes:
        spec: every choice, resolved
        run: the run directory
        study: its trials
        scheduler: says which trials go on
        plan: which seeds a trial is trained on
        others: the objectives beside the first one
        resource: the resource by which the scheduler compares trials
        recorder: writes down what happens
        health: the stop rules; None: there are none
        events: tells the callbacks
    """

    spec: SearchSpec
    run: RunDir
    study: SearchStudy
    scheduler: Scheduler
    plan: SeedPlan
    others: FurtherObjectives
    resource: Resource
    recorder: Recorder
    health: Health | None = None
    events: SearchEvents = field(default_factory=SearchEvents)

    @property
    def view(self) -> SearchView:
        """The model of the live screen."""
        return self.recorder.view

    @property
    def progress(self) -> SearchProgress:
        """The progress of the search, and the time that the rest takes."""
        return self.recorder.progress
