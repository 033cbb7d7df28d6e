"""Searches: `rltune.Search` and `rltune.resume`, from the checks of the request to the answer."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import UserError
from rltune.backends.names import IMPORTED, spec_of
from rltune.common.callbacks import Given, resolved
from rltune.common.formats import plural
from rltune.common.options import keywords, options_of, resumed
from rltune.common.reading import reading
from rltune.common.signatures import takes_options
from rltune.planning.processes import with_room_for_processes
from rltune.results import SearchResult
from rltune.runs.cloud import below, fetched, split_storage
from rltune.runs.directory import STORAGE, RunDir, default_name, run_path
from rltune.runs.search_options import SearchOptions
from rltune.runs.search_spec import SearchSpec
from rltune.search.assembly import drive, joined
from rltune.search.checks import check
from rltune.search.own_code import (
    asked_agent,
    complete_options,
    completed_choice,
    config_class_of,
)
from rltune.search.request import (
    check_paths,
    defaults_among,
    env_and_budget,
    full_config,
    number_of_trials,
    run_paths,
    spread_evaluations,
    starts,
    with_portfolio,
    written_out,
)
from rltune.search.space_choice import choose_space
from rltune.space import surroundings
from rltune.space.space import Space

if TYPE_CHECKING:
    from rltune.execution.workers import Workers
    from rltune.space.dimensions import Dimension

OPTIONS = options_of(SearchOptions)

_driving = threading.Lock()  # held by the thread that runs a search
_driving_thread: int | None = None


class Search:
    """A search for the best configuration of an agent on an environment.

    The keywords are named like the flags of ``rltune run``; `help(rltune.Search)` lists them below
    ``__init__``.

    Args:
        agent: name ("ppo"), "module:Class", or a class that can be imported; None: the space's.
        env: gymnasium id, "module:Class", or a class that can be imported; None: the space's.
            Several environments, as "CartPole-v1,Acrobot-v1", are searched at once (`scales`).
        space: a dict in the language of the YAML files, a path, a shipped name, or None for the one
            that ships for the agent.
        train: instead of an agent, a function of your own that trains, or its "module:name"
            (docs/bring-your-own.md).
        budget: whole budget of a trial, in env steps; None: the space's.
        trials: number of trials; None: 60, with a ``time_limit`` as many as fit.
        against: further objectives: "seconds", "cpu_seconds", or metrics as in `metric`.
        warm_start: run directories of earlier searches to learn from.
        dimensions: dimensions or fixed values that are added to the space or replace its own.
        zoo: a file of rl-zoo3's: its settings for the environment are tried first, by sb3: agents.
        name: name of the run directory below ``storage_path``.
        storage_path: a folder; or s3://..., gs://...: then the run is in ./runs, and copied there.
        screen: "live", "plain" lines, "none", or "auto" (live in a terminal).
        ray_output: print what Ray itself prints.
        callbacks: that are told what happens: objects or classes, or "module:Class"; see
            `rltune.Callback`.

    Attributes:
        spec: the resolved specification
        space: the resolved search space
        starts: the first trials: the agent's defaults and known-good settings
        notes: a sentence for each default that was taken and each setting that was changed

    Raises:
        UserError: anything is wrong with what was asked for; nothing has been written then.
    """

    @takes_options(OPTIONS)
    def __init__(
        self,
        agent: str | type | Callable[..., Any] | None = None,
        env: str | type | None = None,
        space: Mapping[str, Any] | str | os.PathLike[str] | None = None,
        *,
        train: Callable[..., Any] | str | None = None,
        budget: float | None = None,
        trials: int | None = None,
        against: Sequence[str] | str = (),
        warm_start: Sequence[str | os.PathLike[str]] = (),
        dimensions: Mapping[str, Dimension | Any] | None = None,
        zoo: str | os.PathLike[str] | None = None,
        name: str | None = None,
        storage_path: str | os.PathLike[str] = STORAGE,
        screen: str = "auto",
        ray_output: bool = False,
        callbacks: Given = (),
        **options: Any,
    ) -> None:
        """Resolve and check the request; a parameter above takes more types than its flag."""
        from rltune.samplers.earlier_runs import read_earlier

        check_paths(space, name, storage_path)
        self.started = time.time()
        self.workers: Workers | None = None  # that were asked for ahead
        self.screen = screen
        self.ray_output = ray_output
        self.callbacks = resolved(callbacks)
        options = keywords(options, OPTIONS)
        agent = asked_agent(agent, train, space)
        self.config_class = config_class_of(agent, space, dimensions or {})
        asked = spec_of(env) if env is not None else None
        choice = choose_space(agent, asked, space, self.config_class, dimensions or {}, zoo)
        choice = completed_choice(agent, choice)
        complete_options(agent, choice.space, options)
        env, budget = env_and_budget(choice, budget)
        surroundings.check(choice.space, env, budget)
        trials = number_of_trials(trials, options)
        searched = with_portfolio(choice.space, env, trials, options.get("portfolio", True))
        self.space = written_out(replace(searched, budget=budget), self.config_class)
        note = spread_evaluations(options, env, budget)
        self.notes = [*choice.notes, note] if note else choice.notes
        if options.get("weights") is not None:
            from rltune.backends.checkpoints import place_of

            options["weights"] = place_of(options["weights"])
        self.spec = SearchSpec(
            agent=agent,
            env=env,
            space=self.space.to_dict(),
            budget=budget,
            trials=trials,
            against=[against] if isinstance(against, str) else list(against),
            warm_start=run_paths(warm_start),
            defaults=full_config(self.config_class, {}),
            import_path=os.getcwd(),
            **options,
        )
        self.starts = starts(self.space, env, self.config_class)
        self.spec, added = with_room_for_processes(self.spec, self.space, self.starts)
        self.notes = [*self.notes, *added]
        check(self.spec, self.space, self.config_class, self.starts)
        self.storage_path, self.storage_uri = split_storage(storage_path)
        self.name = name or default_name(agent, env, self.storage_path)
        self.path = run_path(self.storage_path, self.name)
        default = defaults_among(self.starts).config
        self.earlier, self.taken = read_earlier(self.spec.warm_start, self.space, default)

    def run(self) -> SearchResult:
        """Run the search to its end, or until Ctrl-C, and return what it found.

        While another thread of this process runs a search, it waits: they would share one Ray.
        """
        with (
            _one_at_a_time() as waited,
            joined(self.spec, self.path, self.ray_output, self.workers) as place,
        ):
            self.started += waited
            mirror = self.storage_uri and below(self.storage_uri, self.name)
            run = RunDir.create(self.path, self.spec.to_dict(), mirror=mirror)
            if self.spec.weights:
                from rltune.backends.checkpoints import keep_weights

                keep_weights(self.spec.weights, run.path)
            return drive(
                run,
                self.spec,
                self.config_class,
                self.space,
                self.starts,
                self.started,
                self.screen,
                self.ray_output,
                place,
                self.callbacks,
            )


@takes_options(resumed(OPTIONS), resumed=True)
def resume(
    path: str | os.PathLike[str],
    *,
    screen: str = "auto",
    ray_output: bool = False,
    callbacks: Given = (),
    **changes: Any,
) -> SearchResult:
    """Go on with a search that was stopped or killed.

    Args:
        path: the run directory, its name or "latest"; from a storage URI, it is fetched first
        screen: as of `Search`
        ray_output: print what Ray itself prints
        callbacks: as of `Search`; a run directory does not keep them
        changes: the options below from now on; None: as it was

    Raises:
        UserError: the path is no search, another process drives it, or a change can't be made.
    """
    from rltune.backends.registry import config_class_in
    from rltune.schedulers.registry import is_population

    started, told = time.time(), resolved(callbacks)
    asked = keywords(changes, resumed(OPTIONS))
    changes = {name: value for name, value in asked.items() if value is not None}
    run = RunDir.open(fetched(path))
    if run.kind == "train":
        raise UserError(
            f"the run {run.name!r} is a training; rltune.resume_training goes on with it"
        )
    planned = SearchSpec.from_dict(run.spec)
    if planned.agent.startswith(IMPORTED):
        raise UserError(
            f"the run {run.name!r} was imported: nothing here can train its trials. A new search "
            f"learns from it with --from {run.name}"
        )
    _check_test_seeds(run, planned.test_seeds, changes.get("test_seeds"))
    # Modules beside the resuming user: run.yaml may come from a stranger.
    spec = replace(planned, **changes, import_path=os.getcwd())
    if is_population(spec.scheduler) and "trials" in changes:
        raise UserError(f"scheduler {spec.scheduler!r} can't add members to a population.")
    space = Space.from_dict(spec.space)
    found = config_class_in(spec.agent, space)
    _check_trials(run, changes.get("trials"))
    with _one_at_a_time() as waited, joined(spec, run.path, ray_output) as place:
        started += waited
        run.resumed(changes)
        first = starts(space, spec.env, found)
        return drive(run, spec, found, space, first, started, screen, ray_output, place, told)


def _check_test_seeds(run: RunDir, planned: int, wanted: int | None) -> None:
    """Raise UserError for fewer test seeds than have been run, which all count."""
    from rltune.answer.tournament import read_scores

    done = Counter(trial for trial, _ in read_scores(run))
    most = min(planned, max(done.values(), default=0))  # more were in place of spared ones
    if wanted is not None and wanted < most:
        raise UserError(
            f"--test-seeds {wanted}: {plural(most, 'test seed')} have been run already, and what "
            f"was measured counts. Write {most} or more."
        )


def _check_trials(run: RunDir, wanted: int | None) -> None:
    """Raise UserError for fewer trials than have begun, which all count."""
    if wanted is None or not run.study_path.exists():
        return
    from rltune.study.database import read_study

    with reading(run.study_path):
        begun = sum(trial.state.name != "WAITING" for trial in read_study(run.study_path))
    if wanted < begun:
        raise UserError(
            f"--trials {wanted}: {plural(begun, 'trial')} have begun already, and what was "
            f"measured counts. Write {begun} or more."
        )


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[float]:
    """Wait until no other thread runs a search; yield the seconds of waiting.

    Raises:
        UserError: this thread already runs a search.
    """
    global _driving_thread
    began = time.time()
    if _driving_thread == threading.get_ident():
        raise UserError("a search can't start another one; start it in a process of its own.")
    if not _driving.acquire(blocking=False):
        said = "rltune: another search runs in this process; this one begins when it has ended."
        print(said, file=sys.stderr, flush=True)
        _driving.acquire()
    try:
        _driving_thread = threading.get_ident()
        yield time.time() - began
    finally:
        _driving_thread = None
        _driving.release()
