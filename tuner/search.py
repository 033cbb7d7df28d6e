"""A search from the first check to the answer: `rltune.Search`, and what `rltune run` runs."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rltune.agents.config import config_dict, hyperparameters, make_config
from rltune.agents.envs.suite import completed, environments, is_suite
from rltune.agents.envs.waiting import Watch, on_stderr
from rltune.agents.errors import ClusterError, StorageError, UserError, unknown
from rltune.backends.suite import check_together
from rltune.common.formats import plural
from rltune.common.signatures import takes_fields_of
from rltune.planning.evaluations import affordable, explained, longest_episode
from rltune.results import Run, SearchResult
from rltune.runs.cloud import below, fetched, mirrored, split_storage
from rltune.runs.directory import STORAGE, RunDir, default_name, find_run, run_path
from rltune.runs.search_spec import DEFAULT_TRIALS, SearchSpec, parse_duration
from rltune.space import surroundings
from rltune.space.space import Space
from rltune.space_choice import choose_space, named_agent

if TYPE_CHECKING:
    from rltune.cluster.nodes import Nodes
    from rltune.schedulers.base import Scheduler
    from rltune.space.dimensions import Dimension

SCREENS = ("auto", "live", "plain", "none")
SECONDS_TO_STOP = 20  # after a SIGTERM; Slurm and Kubernetes kill after 30

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
        from rltune.schedulers.options import POPULATIONS, members
        from rltune.schedulers.registry import check_population

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
        if options.get("scheduler") in POPULATIONS:
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
        if self.spec.scheduler in POPULATIONS:
            check_population(self.spec, self.space, self.config_class, len(self.starts))
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
    from rltune.schedulers.options import POPULATIONS

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
    if spec.scheduler in POPULATIONS and "trials" in changes:
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


@contextlib.contextmanager
def joined(
    spec: SearchSpec, path: str | os.PathLike[str], ray_output: bool = False
) -> Iterator[Nodes | None]:
    """Join the cluster that is asked for, and see whether it will do, before a file is written.

    Raises:
        UserError: there is no such cluster, a node has other versions or does not see the run
            directory, or a trial can never be placed.
    """
    from rltune.cluster.address import is_elsewhere
    from rltune.cluster.capacity import Room
    from rltune.cluster.code import folder_of_code
    from rltune.cluster.nodes import Nodes
    from rltune.cluster.resources import Resources
    from rltune.cluster.session import ray_session

    if not is_elsewhere(spec.address):
        yield None
        return
    code = folder_of_code(spec.agent, spec.env, spec.import_path)
    with ray_session(spec.address, quiet=not ray_output, code=code):
        nodes = Nodes(Path(path).expanduser().absolute())
        nodes.check()
        Room(Resources(spec.cpus_per_trial, spec.gpus_per_trial)).slots()
        yield nodes


def check_goals(spec: SearchSpec) -> None:
    """Find what cannot work with several objectives; UserError: something."""
    from rltune.schedulers.options import FOR_SEVERAL

    names = [goal.name.removeprefix("-") for goal in spec.goals]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"--against {name}: it is an objective already.")
    if not spec.against:
        return
    if spec.scheduler not in FOR_SEVERAL:
        raise UserError(
            f"scheduler {spec.scheduler!r} compares one number only; with --against use "
            f"{' or '.join(FOR_SEVERAL)}."
        )
    if "seconds" in spec.scheduler_options:
        raise UserError(
            f"scheduler {spec.scheduler!r}: with --against, rungs count env_steps; remove seconds."
        )
    if spec.warm_start:
        raise UserError(
            "--from ranks earlier trials by one objective, so it can't be used with --against."
        )


def check(spec: SearchSpec, space: Space, configs: Sequence[Mapping[str, Any]]) -> None:
    """Find the mistakes that would otherwise show up only in a worker, with these to try."""
    from rltune.agents.loop.controls import Controls
    from rltune.backends.checkpoints import check_weights
    from rltune.backends.registry import check_fit, check_start
    from rltune.cluster.address import is_elsewhere
    from rltune.cluster.resources import Resources, fitting
    from rltune.samplers.proposer import Proposer
    from rltune.schedulers.registry import rungs_of

    if wrong := [name for name in spec.controls if name not in Controls.__dataclass_fields__]:
        raise unknown("control", wrong[0], Controls.__dataclass_fields__)
    controls = Controls(**spec.controls)
    check_start(spec.agent, spec.eval_mode, spec.weights)
    if is_suite(spec.env):
        check_together(controls, spec.env_kwargs)
    here = not is_elsewhere(spec.address)
    tried: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []  # in which environment
    for config in configs:
        parts = surroundings.split(config, spec.env_kwargs, spec.budget)
        same = next((some for env_kwargs, some in tried if env_kwargs == parts.env_kwargs), None)
        if same is None:
            tried.append((parts.env_kwargs, same := []))
        same.append(parts.config)
    with Watch(on_stderr):
        for env in environments(spec.env):
            for env_kwargs, some in tried:
                check_fit(spec.agent, env, some, env_kwargs, has_data=here)
                if spec.weights is not None:
                    check_weights(spec.agent, env, some, env_kwargs, spec.weights)
    check_goals(spec)
    others = [goal.direction for goal in spec.goals[1:]]
    options = spec.sampler_options
    Proposer(space, spec.sampler, options, spec.seed, "maximize", other_directions=others)
    spec.seed_plan(rungs_of(spec))
    if here:  # else the cluster says what it has
        import torch

        _check_device(spec.device, torch.cuda.is_available())
        needed = Resources(spec.cpus_per_trial, spec.gpus_per_trial)
        fitting(needed, os.cpu_count() or 1, torch.cuda.device_count())


def _check_device(device: str, has_gpu: bool) -> None:
    import torch

    try:
        kind = "cpu" if device == "auto" else torch.device(device).type
    except RuntimeError:
        raise UserError(
            f"--device {device}: there is none of this name; write cpu, cuda, cuda:1 or auto."
        ) from None
    if kind == "cuda" and not has_gpu:
        raise UserError(
            f"--device {device}: PyTorch finds no GPU on this machine; leave it out, or write cpu."
        )


def drive(
    run: RunDir,
    spec: SearchSpec,
    config_class: type[Any],
    started: float,
    screen: str,
    ray_output: bool,
    nodes: Nodes | None = None,
) -> SearchResult:
    """Run or continue the search of a run directory."""
    from rltune.analysis.replay_scheduler import training_returns
    from rltune.answer.conclude import conclude
    from rltune.answer.model import label
    from rltune.backends.registry import learns_nothing
    from rltune.cluster.capacity import Room
    from rltune.cluster.resources import Resources
    from rltune.cluster.session import ray_session
    from rltune.driver import Driver
    from rltune.execution.tune import run_jobs
    from rltune.health import make_health
    from rltune.runs.history import HistoryWriter, read_episodes, read_history
    from rltune.runs.stop_requests import StopRequests
    from rltune.samplers.earlier_runs import take_over
    from rltune.samplers.proposer import open_study
    from rltune.schedulers.options import POPULATIONS
    from rltune.schedulers.registry import (
        make_pareto_scheduler,
        make_population,
        make_scheduler,
        rungs_of,
    )
    from rltune.schedulers.resource import Clock
    from rltune.screen import LiveScreen
    from rltune.screen.view import SearchView
    from rltune.study.optuna_log import silent_log
    from rltune.tracking import Tracker

    space = Space.from_dict(spec.space)
    first = starts(space, spec.env, config_class)
    others = spec.further_objectives()
    found: dict[str, Any] | None = None
    page = ""
    with contextlib.ExitStack() as tracking:
        tracking.callback(run.remove_remains)
        with run.lock(), silent_log():
            study = open_study(
                run.study_path,
                space,
                sampler=spec.sampler,
                sampler_options=spec.sampler_options,
                seed=spec.seed,
                starts=first,
                earlier=take_over(run, spec.warm_start, space, first[0].config),
                other_directions=[goal.direction for goal in others.goals],
            )
            study.reopen_cut()  # there is time again
            others.restore({t.number: t.other_intermediate for t in study.trials()})
            scheduler: Scheduler
            if spec.against:
                scheduler = make_pareto_scheduler(spec, others)
            elif spec.scheduler in POPULATIONS:
                scheduler = make_population(spec, space, config_class, study, run)
            else:
                scheduler = make_scheduler(spec.scheduler, spec.budget, spec.scheduler_options)
            history = HistoryWriter(run.path)
            clock = Clock.of(spec, read_history=lambda: read_history(run.path))
            known = study.reports()
            training = training_returns(read_history(run.path), spec) if known else {}
            scheduler.restore(clock.reports(known), study.stopped(), clock.reports(training))
            plan = spec.seed_plan(rungs_of(spec))
            health = make_health(spec) if spec.stop_rules else None
            if health and (going_on := [asked.number for asked in study.unfinished()]):
                health.restore(read_history(run.path), read_episodes(run.path), going_on)
            view = SearchView(
                name=run.name,
                agent=spec.agent,
                env=" + ".join(environments(spec.env)),
                budget=spec.budget,
                trials=spec.trials,
                time_limit=spec.time_limit,
                seeds=plan.most,
                searched=list(space.dimensions),
                started=started,
            )
            tick = tracking.enter_context(mirrored(run.path, run.mirror, view.message))
            tracker = Tracker(run, spec, warn=view.message)
            tracking.callback(tracker.close)
            requests = StopRequests(run.path)
            requests.forget()
            try:
                with (
                    LiveScreen(view, screen, stop=requests.ask, folder=run.path),
                    ray_session("local", quiet=not ray_output),
                ):
                    room = Room(
                        Resources(spec.cpus_per_trial, spec.gpus_per_trial, spec.concurrency)
                    )
                    driver = Driver(
                        spec,
                        run,
                        study,
                        scheduler,
                        plan,
                        history,
                        tracker,
                        view,
                        others=others,
                        clock=clock,
                        health=health,
                        requests=requests,
                        slots=room.slots(),
                        started=started,
                        between_writes=tick,
                    )
                    for start in first:
                        if reason := learns_nothing(start.config, spec.env, spec.budget):
                            view.message(f"{label(0, [start.origin])}: {reason}")
                    with _interrupts(driver.request_stop, run.path):
                        run_jobs(driver, room, spec.retries, quiet=not ray_output, nodes=nodes)
                view.begin("done")
                driver.give_up_the_rest()
                driver.write_trials_table(force=True)
                if not driver.stop_requested:
                    defaults = full_config(config_class, {})
                    refused = driver.prices.refused
                    found = conclude(run, spec, study, driver.scores, defaults, refused)
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
            finally:
                history.close()
                study.close()
        if found is not None:
            if spec.report:
                from rltune.reporting.report import report_quietly  # late: it takes a while

                page = report_quietly(run.path)
            tracker.search_finished(found)
    return SearchResult(Run(run), driver.stop_requested, page)


def _spread_evaluations(options: dict[str, Any], env: str, budget: int) -> str:
    """Choose the evaluations where nobody has; return what is to be said of them."""
    from rltune.schedulers.options import POPULATIONS

    longest = longest_episode(env, options.get("env_kwargs"))
    usual = SearchSpec.evaluations, SearchSpec.eval_episodes
    if not options.keys() & {"evaluations", "eval_episodes"}:
        evaluations, episodes = affordable(budget, longest, *usual)
        if options.get("scheduler") in POPULATIONS:  # pauses where it evaluates
            evaluations = SearchSpec.evaluations
        options.update(evaluations=evaluations, eval_episodes=episodes)
    now = options.get("evaluations", usual[0]), options.get("eval_episodes", usual[1])
    return explained(budget, longest, now, usual)


def starts(space: Space, env: str, config_class: type[Any]) -> list[Any]:
    """Return the trials that come first: the agent's defaults, then what is known to be good.

    The defaults are those of the agent but for what is fixed, and what follows from that alone.
    """
    from rltune.study.records import Start

    around = surroundings.defaults(space, env)
    known = [("default", space.resolve(around))]
    known += [
        (f"start:{i}", space.resolve({**around, **start.values}))
        for i, start in enumerate(space.starts_for(env))
    ]
    return [Start(origin, full_config(config_class, values)) for origin, values in known]


def full_config(config_class: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return every hyperparameter of the agent: ``values`` where given, else its defaults.

    What surrounds the agent is kept where it is given. Derived values that are no hyperparameters
    only served the constraints, and are left out.
    """
    known = hyperparameters(config_class)
    own = config_dict(make_config(config_class, {k: v for k, v in values.items() if k in known}))
    return {**own, **{k: v for k, v in values.items() if surroundings.is_surrounding(k)}}


def spec_of(thing: str | type) -> str:
    """Return "module:Class" for a class."""
    if isinstance(thing, str):
        return thing
    if not hasattr(thing, "__qualname__"):
        known = getattr(getattr(thing, "spec", None), "id", None)
        raise UserError(
            f"{thing!r:.80} is one object, but every trial makes its own: give "
            + (f"the id {known!r}." if known else "an id or a name, 'module:Class', or a class.")
        )
    if thing.__module__ == "__main__":
        raise UserError(
            f"{thing.__qualname__} is defined in the script that is running, where the workers "
            "cannot import it; put it into a module of its own."
        )
    return f"{thing.__module__}:{thing.__qualname__}"


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


def _run_paths(runs: Sequence[str | os.PathLike[str]] | str | os.PathLike[str]) -> list[str]:
    """Return the run directories as absolute paths: a resume may be called from elsewhere."""
    several = [runs] if isinstance(runs, (str, os.PathLike)) else runs
    return [str(find_run(run).absolute()) for run in several]


def _written_out(space: Space, config_class: type[Any]) -> Space:
    """Return the space with the agent's defaults, so that a configuration stays what it is."""
    defaults = full_config(config_class, space.fixed)
    varied = {*space.dimensions, *space.derived}
    fixed = {name: value for name, value in defaults.items() if name not in varied}
    return replace(space, fixed=fixed)


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
        for one in signals:
            signal.signal(one, end)

    if threading.current_thread() is not threading.main_thread():
        yield  # signals are somebody else's
        return
    before = [signal.signal(one, handle) for one in signals]
    try:
        yield
    finally:
        overdue.cancel()
        for one, handler in zip(signals, before, strict=True):
            signal.signal(one, handler)
