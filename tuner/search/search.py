"""A search from the first check to the answer: `rltune.Search`, and what `rltune run` runs."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rltune.agents.envs.suite import completed
from rltune.agents.errors import UserError, unknown
from rltune.backends.names import spec_of
from rltune.common.formats import plural
from rltune.common.signatures import takes_fields_of
from rltune.planning.evaluations import affordable, explained, longest_episode
from rltune.results import SearchResult
from rltune.runs.cloud import below, fetched, split_storage
from rltune.runs.directory import STORAGE, RunDir, default_name, run_path
from rltune.runs.search_spec import DEFAULT_TRIALS, SearchSpec, parse_duration
from rltune.search.assembly import drive, joined
from rltune.search.checks import check
from rltune.search.request import _run_paths, full_config, starts
from rltune.search.space_choice import choose_space, named_agent
from rltune.space import surroundings
from rltune.space.space import Space

if TYPE_CHECKING:
    from rltune.space.dimensions import Dimension

SCREENS = ("auto", "live", "plain", "none")

_driving = threading.Lock()  # held by the thread that runs a search
_driving_thread: int | None = None


class Search:
    """A search for the best configuration of an agent on an environment.

    The keywords are named like the flags of ``rltune run``, whose ``--help`` says what they mean.

    Args:
        agent: name ("ppo"), "module:Class", or a class that can be imported; None: the space's.
        env: gymnasium id, "module:Class", or a class that can be imported; None: the space's.
            Several environments, as "CartPole-v1,Acrobot-v1", are searched at once (`scales`).
        space: a dict in the language of the YAML files, a path, a shipped name, or None for the one
            that ships for the agent.
        budget: environment steps of a full trial; None: the space's.
        trials: how many; with only a ``time_limit``, as many as fit.
        time_limit: seconds, or a text such as "30m", for everything, the tournament included.
        weights: a checkpoint, or a run, whose networks every trial starts from.
        against: further objectives: "seconds", "cpu_seconds", or metrics as in `metric`.
        warm_start: run directories of earlier searches whose trials this one learns from.
        dimensions: dimensions or fixed values that are added to the space or replace its own.
        name: of the run directory below ``storage_path``.
        storage_path: a folder; or s3://..., gs://...: then the run is in ./runs, and copied there.
        screen: "live", "plain" lines, "none", or "auto" (live in a terminal).

    Attributes:
        spec: every choice, resolved
        space: what is searched
        starts: the trials that come first
        notes: what was taken that nobody named, and what was changed, a sentence each

    Raises:
        UserError: anything is wrong with what was asked for; nothing has been written then.
    """

    @takes_fields_of(SearchSpec, but=("import_path",))
    def __init__(
        self,
        agent: str | type | None = None,
        env: str | type | None = None,
        space: Mapping[str, Any] | str | os.PathLike[str] | None = None,
        *,
        budget: float | None = None,
        trials: int | None = None,
        time_limit: float | str | None = None,
        against: Sequence[str] | str = (),
        warm_start: Sequence[str | os.PathLike[str]] = (),
        dimensions: Mapping[str, Dimension | Any] | None = None,
        name: str | None = None,
        storage_path: str | os.PathLike[str] = STORAGE,
        screen: str = "auto",
        ray_output: bool = False,
        **options: Any,
    ) -> None:
        from rltune.backends.registry import config_class
        from rltune.samplers.earlier_runs import read_earlier
        from rltune.schedulers.pbt import members
        from rltune.schedulers.registry import is_population, scheduler_class

        _check_paths(space, name, storage_path)
        self.started = time.time()
        self.screen = screen
        self.ray_output = ray_output
        agent = spec_of(agent) if agent is not None else named_agent(space)
        self.config_class = config_class(agent)
        asked = spec_of(env) if env is not None else None
        choice = choose_space(agent, asked, space, self.config_class, dimensions or {})
        self.notes = choice.notes
        if choice.env is None:
            raise UserError("which environment? Give --env ID, or env: in the space file.")
        env = completed(choice.env)
        budget = budget if budget is not None else choice.space.budget
        if budget is None:
            raise UserError("how long is a trial? Give --budget STEPS, or budget: in the space.")
        budget = _whole(budget)
        surroundings.check(choice.space, env, budget)
        chosen = replace(choice.space, budget=budget)
        self.space = _written_out(chosen, self.config_class)
        if is_population(options.get("scheduler")):
            trials = members(options.get("scheduler_options", {}), trials)
        elif trials is None and time_limit is None:
            trials = DEFAULT_TRIALS
        if isinstance(time_limit, str):
            time_limit = parse_duration(time_limit)
        for option in options:
            if option not in SearchSpec.__dataclass_fields__:
                raise unknown("option", option, SearchSpec.__dataclass_fields__)
        if note := _spread_evaluations(options, env, budget):
            self.notes = [*self.notes, note]
        if options.get("weights") is not None:
            from rltune.backends.checkpoints import place_of

            options["weights"] = place_of(options["weights"])
        self.spec = SearchSpec(
            agent=agent,
            env=env,
            space=self.space.to_dict(),
            budget=budget,
            trials=trials,
            time_limit=time_limit,
            against=[against] if isinstance(against, str) else list(against),
            warm_start=_run_paths(warm_start),
            defaults=full_config(self.config_class, {}),
            import_path=os.getcwd(),
            **options,
        )
        self.starts = starts(self.space, env, self.config_class)
        import numpy as np

        drawn = self.space.resolve(self.space.sample(np.random.default_rng(self.spec.seed)))
        check(self.spec, self.space, [self.starts[0].config, full_config(self.config_class, drawn)])
        scheduler = scheduler_class(self.spec.scheduler)
        scheduler.check(self.spec, self.space, self.config_class, len(self.starts))
        self.storage_path, self.storage_uri = split_storage(storage_path)
        self.name = name or default_name(agent, env, self.storage_path)
        self.path = run_path(self.storage_path, self.name)
        default = self.starts[0].config
        self.earlier, self.taken = read_earlier(self.spec.warm_start, self.space, default)

    def run(self) -> SearchResult:
        """Run the search to its end, or until Ctrl-C, and return what it found.

        While another thread of this process runs a search, it waits: they would share one Ray.
        """
        with (
            _one_at_a_time() as waited,
            joined(self.spec, self.path, self.ray_output) as nodes,
        ):
            self.started += waited
            mirror = self.storage_uri and below(self.storage_uri, self.name)
            run = RunDir.create(self.path, self.spec.to_dict(), mirror=mirror)
            if self.spec.weights:
                from rltune.backends.checkpoints import keep_weights

                keep_weights(self.spec.weights, run.path)
            return drive(
                run, self.spec, self.config_class, self.started, self.screen, self.ray_output, nodes
            )


def resume(
    path: str | os.PathLike[str],
    *,
    trials: int | None = None,
    time_limit: float | str | None = None,
    concurrency: int | None = None,
    address: str | None = None,
    stop_rules: bool | None = None,
    test_seeds: int | None = None,
    tournament: bool | None = None,
    report: bool | None = None,
    screen: str = "auto",
    ray_output: bool = False,
) -> SearchResult:
    """Go on with a search that was stopped or killed.

    Args:
        path: the run directory, its name or "latest"; from a storage URI, it is fetched first
        trials: a new total
        time_limit: seconds, or a text such as "30m", from now on
        concurrency: trials at once
        address: of a Ray cluster
        stop_rules, tournament, report: whether there are some from now on
        test_seeds: a new total for each finalist
        screen: as of `Search`
        ray_output: show what Ray itself prints

    Raises:
        UserError: the path is no search, or another process drives it.
    """
    from rltune.backends.registry import config_class
    from rltune.schedulers.registry import is_population

    started = time.time()
    run = RunDir.open(fetched(path))
    if run.kind == "train":
        raise UserError(
            f"the run {run.name!r} is a training; rltune.resume_training goes on with it"
        )
    spec = SearchSpec.from_dict(run.spec)
    asked = {
        "trials": trials,
        "time_limit": parse_duration(time_limit) if isinstance(time_limit, str) else time_limit,
        "concurrency": concurrency,
        "address": address,
        "stop_rules": stop_rules,
        "test_seeds": test_seeds,
        "tournament": tournament,
        "report": report,
    }
    changes: dict[str, Any] = {key: value for key, value in asked.items() if value is not None}
    _check_test_seeds(run, spec.test_seeds, test_seeds)
    spec = replace(spec, **changes)
    if is_population(spec.scheduler) and "trials" in changes:
        raise UserError(f"scheduler {spec.scheduler!r} can't add members to a population.")
    # Modules are those of the user who resumes: run.yaml may name anybody's folder.
    spec = replace(spec, import_path=os.getcwd())
    found = config_class(spec.agent)
    with _one_at_a_time() as waited, joined(spec, run.path, ray_output) as nodes:
        started += waited
        run.resumed(changes)
        return drive(run, spec, found, started, screen, ray_output, nodes)


def _check_test_seeds(run: RunDir, planned: int, wanted: int | None) -> None:
    """Raise UserError for fewer test seeds than were run: what was measured counts."""
    from rltune.answer.tournament import read_scores

    done = Counter(trial for trial, _ in read_scores(run))
    most = min(planned, max(done.values(), default=0))  # more were in place of spared ones
    if wanted is not None and wanted < most:
        raise UserError(
            f"--test-seeds {wanted}: {plural(most, 'test seed')} have been run already, and what "
            f"was measured counts. Write {most} or more."
        )


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[float]:
    """Wait for the search of another thread; yield for how many seconds it was waited.

    Raises:
        UserError: this thread runs a search already.
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


def _spread_evaluations(options: dict[str, Any], env: str, budget: int) -> str:
    """Choose the evaluations where nobody has; return what is to be said of them."""
    from rltune.schedulers.registry import is_population

    longest = longest_episode(env, options.get("env_kwargs"))
    usual = SearchSpec.evaluations, SearchSpec.eval_episodes
    if not options.keys() & {"evaluations", "eval_episodes"}:
        evaluations, episodes = affordable(budget, longest, *usual)
        if is_population(options.get("scheduler")):  # pauses where it evaluates
            evaluations = SearchSpec.evaluations
        options.update(evaluations=evaluations, eval_episodes=episodes)
    now = options.get("evaluations", usual[0]), options.get("eval_episodes", usual[1])
    return explained(budget, longest, now, usual)


def _check_paths(space: object, name: object, storage_path: object) -> None:
    """Raise UserError for what is no place; what a place may be is checked where it is used."""
    if space is not None and not isinstance(space, (Mapping, str, os.PathLike)):
        raise UserError(f"space must be a dict, a path, or a name that ships, not {space!r:.80}.")
    if name is not None and not isinstance(name, str):
        raise UserError(f"name must be a text, not {name!r:.80}.")
    if not isinstance(storage_path, (str, os.PathLike)):
        raise UserError(f"storage_path must be a folder or a URI, not {storage_path!r:.80}.")


def _whole(budget: Any) -> int:
    """Return env_steps such as 5e4 as a whole number. UserError: it is no finite number."""
    if not isinstance(budget, (int, float)) or not math.isfinite(budget):
        raise UserError(f"budget must be a whole number, not {budget!r:.80}.")
    return int(budget)


def _written_out(space: Space, config_class: type[Any]) -> Space:
    """Return the space with the agent's defaults, so that a configuration stays what it is."""
    defaults = full_config(config_class, space.fixed)
    varied = {*space.dimensions, *space.derived}
    fixed = {name: value for name, value in defaults.items() if name not in varied}
    return replace(space, fixed=fixed)
