"""The assembly of a search: its parts are made, restored, and driven to the end."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rltune.agents.envs.suite import environments
from rltune.agents.errors import ClusterError, StorageError
from rltune.results import Run, SearchResult
from rltune.runs.cloud import mirrored
from rltune.runs.directory import RunDir
from rltune.runs.search_spec import SearchSpec
from rltune.search.request import full_config

if TYPE_CHECKING:
    from rltune.cluster.nodes import Nodes
    from rltune.common.callbacks import Callback
    from rltune.execution.workers import Workers
    from rltune.objectives.goals import FurtherObjectives
    from rltune.schedulers.base import Scheduler
    from rltune.screen.view import SearchView
    from rltune.search.driver import Driver
    from rltune.search.events import SearchEvents
    from rltune.search.parts import SearchParts
    from rltune.search.recording import Recorder
    from rltune.space.space import Space
    from rltune.study.records import StartConfig
    from rltune.study.study import SearchStudy

SECONDS_TO_STOP = 20  # after a SIGTERM; Slurm and Kubernetes kill after 30


@dataclass
class Place:
    """The place where the jobs of a search run.

    Attributes:
        nodes: of the cluster that was joined
        workers: on this machine, that have been asked for
    """

    nodes: Nodes | None = None
    workers: Workers | None = None


@contextlib.contextmanager
def joined(
    spec: SearchSpec,
    path: str | os.PathLike[str],
    ray_output: bool = False,
    early: Workers | None = None,
) -> Iterator[Place]:
    """Join the cluster that is asked for, and see whether it will do, before a file is written.

    Without one, this machine's Ray and its workers start beside what the block does. ``early`` are
    those that were asked for before.

    Raises:
        UserError: there is no such cluster, a node has other versions or does not see the run
            directory, or a trial can never be placed.
    """
    from rltune.backends.registry import is_own
    from rltune.cluster.address import is_elsewhere
    from rltune.cluster.capacity import Room
    from rltune.cluster.code import folder_of_code
    from rltune.cluster.nodes import Nodes
    from rltune.cluster.resources import Resources
    from rltune.cluster.session import ray_session, started_ahead
    from rltune.execution.workers import Workers

    if not is_elsewhere(spec.address):
        needed = Resources.of(spec)
        workers = Workers(spec.agent, spec.env, needed, spec.trials)
        with started_ahead(quiet=not ray_output) as when_up:
            when_up(lambda: workers.ask(early))
            try:
                yield Place(workers=workers)
            finally:
                workers.dismiss()
        return
    code = folder_of_code(is_own(spec.agent), spec.env, spec.import_path)
    with ray_session(spec.address, quiet=not ray_output, code=code):
        nodes = Nodes(Path(path).expanduser().absolute())
        nodes.check()
        Room(Resources.of(spec)).slots()
        yield Place(nodes=nodes)


def drive(
    run: RunDir,
    spec: SearchSpec,
    config_class: type[Any],
    space: Space,
    first: Sequence[StartConfig],
    started: float,
    screen: str,
    ray_output: bool,
    place: Place,
    callbacks: Sequence[Callback] = (),
) -> SearchResult:
    """Run or continue the search of a run directory.

    Args:
        run: the run directory
        spec: the search
        config_class: of the agent
        space: what is searched, as ``spec.space`` describes it
        first: the trials that come first
        started: Unix seconds
        screen, ray_output: as of `Search`
        place: where its jobs run, which `joined` has given
        callbacks: that are told what happens
    """
    from rltune.answer.conclude import conclude
    from rltune.runs.history import HistoryWriter
    from rltune.search.recording import Recorder
    from rltune.study.optuna_log import silent_log
    from rltune.tracking import Tracker

    found: dict[str, Any] | None = None
    page = ""
    with contextlib.ExitStack() as outlasting:  # what is open longer than the run is locked
        outlasting.callback(run.remove_remains)
        with run.lock(), silent_log(), contextlib.ExitStack() as files:
            study = _open_study(run, spec, space, first)
            files.callback(study.close)
            history = HistoryWriter(run.path, tidies=False)
            files.callback(history.close)
            view = _make_view(run, spec, space, started)
            tick = outlasting.enter_context(mirrored(run.path, run.mirror, view.message))
            tracker = Tracker(run, spec, warn=view.message)
            outlasting.callback(tracker.close)
            goals = spec.further_objectives().goals
            recorder = Recorder(run, spec.env, study, goals, history, tracker, view)
            events = _events(run, spec, study, view, callbacks, outlasting)
            with _advising(run):
                parts = _make_parts(run, spec, config_class, space, study, recorder, events)
                driver = _run(parts, first, screen, ray_output, place, tick)
                if not driver.stop_requested:
                    defaults, refused = full_config(config_class, {}), driver.prices.refused
                    found = conclude(run, spec, study, driver.retesting.scores, defaults, refused)
        if found is not None:
            if spec.report:
                from rltune.reporting.report import report_quietly  # late: it takes a while

                page = report_quietly(run.path)
            tracker.search_finished(found)
            events.answered(found)
    return SearchResult(Run(run), driver.stop_requested, page)


def _events(
    run: RunDir,
    spec: SearchSpec,
    study: SearchStudy,
    view: SearchView,
    callbacks: Sequence[Callback],
    outlasting: contextlib.ExitStack,
) -> SearchEvents:
    """Return what tells the callbacks, now that the search begins and when it has ended."""
    from rltune.common.callbacks import Callbacks, RunInfo
    from rltune.search.events import SearchEvents

    def say(text: str) -> None:
        view.message(text)
        if view.phase == "done":  # there is no screen any more
            print(text, file=sys.stderr, flush=True)

    events = SearchEvents(Callbacks(callbacks, run.path, say), study.incumbent())
    begun = any(trial.state != "WAITING" for trial in study.trials())
    about = RunInfo(run.name, run.path, spec.to_dict(), resumed=begun)
    outlasting.callback(events.search_ended, about)
    events.search_started(about)
    return events


def _open_study(
    run: RunDir, spec: SearchSpec, space: Space, first: Sequence[StartConfig]
) -> SearchStudy:
    from rltune.samplers.earlier_runs import take_over
    from rltune.samplers.proposer import open_study

    study = open_study(
        run.study_path,
        space,
        sampler=spec.sampler,
        sampler_options=spec.sampler_options,
        seed=spec.seed,
        starts=first,
        earlier=take_over(run, spec.warm_start, space, first[0].config if first else {}),
        other_directions=[goal.direction for goal in spec.further_objectives().goals],
    )
    study.reopen_cut()  # there is time again
    return study


def _make_view(run: RunDir, spec: SearchSpec, space: Space, started: float) -> SearchView:
    from rltune.planning.progress import SearchProgress
    from rltune.schedulers.registry import rungs_of
    from rltune.screen.view import SearchView

    progress = SearchProgress(
        budget=spec.budget,
        trials=spec.trials,
        time_limit=spec.time_limit,
        seeds=spec.seed_plan(rungs_of(spec)).count,
        started=started,
    )
    env = " + ".join(environments(spec.env))
    return SearchView(run.name, spec.agent, env, progress, list(space.dimensions))


def _make_parts(
    run: RunDir,
    spec: SearchSpec,
    config_class: type[Any],
    space: Space,
    study: SearchStudy,
    recorder: Recorder,
    events: SearchEvents,
) -> SearchParts:
    """Make the parts of a search, and restore what they knew of its trials before a resume."""
    from rltune.analysis.replay_scheduler import training_returns
    from rltune.backends.registry import is_own_code
    from rltune.runs.history import read_episodes, read_history
    from rltune.schedulers.registry import rungs_of
    from rltune.schedulers.resource import Resource
    from rltune.search.parts import SearchParts
    from rltune.search.stop_rules import make_health

    others = spec.further_objectives()
    others.restore({t.number: t.other_intermediate for t in study.trials()})
    scheduler = _make_scheduler(run, spec, config_class, space, study, others)
    resource = Resource.of(spec, read_history=lambda: read_history(run.path))
    known = study.reports()
    training = training_returns(read_history(run.path), spec) if known else {}
    scheduler.restore(resource.reports(known), study.stopped(), resource.reports(training))
    watched = spec.stop_rules and not is_own_code(spec.agent)  # its metrics may mean anything
    health = make_health(spec) if watched else None
    if health and (going_on := [asked.number for asked in study.unfinished()]):
        health.restore(read_history(run.path), read_episodes(run.path), going_on)
    return SearchParts(
        spec=spec,
        run=run,
        study=study,
        scheduler=scheduler,
        plan=spec.seed_plan(rungs_of(spec)),
        others=others,
        resource=resource,
        recorder=recorder,
        health=health,
        events=events,
    )


def _make_scheduler(
    run: RunDir,
    spec: SearchSpec,
    config_class: type[Any],
    space: Space,
    study: SearchStudy,
    others: FurtherObjectives,
) -> Scheduler:
    from rltune.schedulers.base import Population
    from rltune.schedulers.registry import make_scheduler

    return make_scheduler(
        spec.scheduler,
        spec.budget,
        spec.scheduler_options,
        others=others,
        population=Population(
            spec=spec,
            space=space,
            config_class=config_class,
            study=study,
            checkpoint=run.checkpoint,
        ),
    )


def _run(
    parts: SearchParts,
    first: Sequence[StartConfig],
    screen: str,
    ray_output: bool,
    place: Place,
    tick: Callable[[], None],
) -> Driver:
    """Run the jobs of a search on Ray, with its screen; return its driver."""
    from rltune.answer.model import label
    from rltune.backends.registry import learns_nothing
    from rltune.cluster.capacity import Room
    from rltune.cluster.resources import Resources
    from rltune.cluster.session import ray_session
    from rltune.execution.tune import run_jobs
    from rltune.runs.stop_requests import StopRequests
    from rltune.screen import LiveScreen
    from rltune.search.driver import Driver

    spec, run, view = parts.spec, parts.run, parts.view
    requests = StopRequests(run.path)
    requests.forget()
    with (
        LiveScreen(view, screen, stop=requests.ask, folder=run.path),
        ray_session("local", quiet=not ray_output),
    ):
        room = Room(Resources.of(spec))
        parts.progress.slots = room.slots()
        driver = Driver(parts, requests, between_writes=tick)
        for number, start in enumerate(first):
            if reason := learns_nothing(start.config, spec.env, spec.budget):
                view.message(f"{label(number, [start.origin])}: {reason}")
        with _interrupts(driver.request_stop, run.path):
            run_jobs(
                driver,
                room,
                spec.retries,
                quiet=not ray_output,
                nodes=place.nodes,
                workers=place.workers,
            )
    view.begin("done")
    driver.finish()
    return driver


@contextlib.contextmanager
def _advising(run: RunDir) -> Iterator[None]:
    """Say with an error how the search goes on."""
    try:
        yield
    except Exception as error:
        if not run.is_there:
            raise StorageError(
                f"{run.path} was deleted while the search ran: what it had found is lost. "
                "Start it anew."
            ) from error
        advice = f"go on with: rltune resume {run.path}"
        if isinstance(error, StorageError):
            raise StorageError(f"{error} Then {advice}") from error
        if isinstance(error, ClusterError):
            raise ClusterError(f"{error} When it is back, {advice}") from error
        raise


@contextlib.contextmanager
def _interrupts(request_stop: Callable[[], None], path: Path) -> Iterator[None]:
    """Ctrl-C (or SIGTERM) asks for a clean stop; a second one ends the process at once.

    SIGTERM often goes to Ray's processes, too (Slurm, systemd, timeout), without which Tune waits
    for a minute, until Ray ends this process without a word of how to go on.
    """
    from rltune.screen import restore_terminal

    signals = (signal.SIGINT, signal.SIGTERM)

    def end(signum: int, frame: object) -> None:
        restore_terminal()
        os._exit(130)

    def give_up() -> None:
        restore_terminal()
        text = f"Stopped; Ray does not answer. Nothing is lost; go on with: rltune resume {path}"
        print(text, file=sys.stderr, flush=True)
        os._exit(130)

    overdue = threading.Timer(SECONDS_TO_STOP, give_up)
    overdue.daemon = True

    def handle(signum: int, frame: object) -> None:
        request_stop()
        if signum == signal.SIGTERM:
            overdue.start()
        for sig in signals:
            signal.signal(sig, end)

    if threading.current_thread() is not threading.main_thread():
        yield  # signals belong to the main thread
        return
    before = [signal.signal(sig, handle) for sig in signals]
    try:
        yield
    finally:
        overdue.cancel()
        for sig, handler in zip(signals, before, strict=True):
            signal.signal(sig, handler)
