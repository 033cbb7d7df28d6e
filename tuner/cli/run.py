"""The commands `rltune run` and `rltune resume`: searches from the command line."""

from __future__ import annotations

import argparse
import contextlib
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import UserError
from rltune.agents.registry import HELP as AGENTS
from rltune.cli.flags import RUN, parse_flags, reject_extra
from rltune.cli.option_flags import add_callbacks, add_files, add_flag, add_groups, given
from rltune.common.formats import listed
from rltune.common.options import options_of, parse_duration, parse_steps, resumed
from rltune.runs.run_options import AGENT, EVALUATION
from rltune.runs.search_options import GROUPS, SEARCH, SearchOptions
from rltune.runs.tracking_options import FILES
from rltune.runs.train_options import CONTROLS, TrainOptions
from rltune.samplers.registry import SAMPLERS
from rltune.schedulers.registry import EARLY_STOPPING, POPULATIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rltune.common.options import Option
    from rltune.execution.workers import Workers
    from rltune.results import SearchResult
    from rltune.runs.directory import RunDir
    from rltune.search.search import Search
    from rltune.selection.agent_search import AgentSearchResult

SEARCH_OPTIONS = options_of(SearchOptions)
# What `rltune resume` changes, by the kind of the run.
OF_KIND = {
    "search": resumed(SEARCH_OPTIONS),
    "train": resumed({**options_of(TrainOptions), **CONTROLS}),
}
OTHERS = "or a plug-in's, or module:Class (docs/plugins.md)"
RUN_HELP = """\
Search for the best configuration of an agent on an environment.

  rltune run ppo --env CartPole-v1 --trials 30 --budget 5e4
  rltune run --space ppo                      # the file names agent, environment and budget
  rltune run ppo --space search_spaces/ppo.yaml --env LunarLander-v3 --time-limit 2h
  rltune run ppo --env CartPole-v1 --learning-rate 1e-5 1e-2 --n-epochs 4 10 20
  rltune run sb3:PPO --env CartPole-v1        # Stable-Baselines3's; rllib:PPO is RLlib's
  rltune run my_module:MyAgent --space my.yaml --env my_module:MyEnv
  rltune run ppo,sac,td3 --env Pendulum-v1 --time-limit 30m      # which agent is best?
  rltune run auto --env CartPole-v1                              # of all that can act there

Any hyperparameter of the agent is a flag too: one value fixes it, two numbers are a range that is
searched on the hyperparameter's own scale, anything else a choice. `rltune train AGENT --help`
lists them with their ranges.
"""


def add_parser(subparsers: Any) -> None:
    """Add the two commands."""
    run = subparsers.add_parser(
        "run",
        help="search for the best configuration of an agent",
        description=RUN_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.set_defaults(main=run_main)
    subparsers.choices["tune"] = run  # as xagents calls it; unlike an alias, not in the help
    add_search_flags(run)
    run.add_argument(
        "--dry-run", action="store_true", help="print the resolved plan without running it"
    )
    add_callbacks(run)
    _add_resume(subparsers)


def add_search_flags(run: argparse.ArgumentParser) -> None:
    """Add the flags that describe a search: those of `SearchOptions`, and a few beside them."""
    # No positional: without an agent, it would take the first value of a hyperparameter's flag.
    run.set_defaults(agent=None)
    run.usage = "%(prog)s [AGENT] [FLAG ...] [--HYPERPARAMETER VALUE ...]"
    several = "several, as ppo,sac, or auto: a search over agents"
    run.add_argument_group("AGENT", f"{AGENTS}; {several}\n  (default: that of --space)")
    groups = add_groups(run, GROUPS, {**SEARCH_OPTIONS, **_named()}.values())
    what = groups[AGENT]
    what.add_argument(
        "--space", metavar="FILE", help="search space (default: the one that ships for the agent)"
    )
    what.add_argument(
        "--zoo",
        metavar="FILE",
        help="rl-zoo3's settings (YAML): those for the environment are tried first, by sb3: agents",
    )
    what.add_argument(
        "-s",
        "--dimension",
        action="append",
        default=[],
        metavar="NAME=RANGE",
        help="dimension to add or override, such as learning_rate=1e-5..1e-2:log, "
        "optimizer=adam,rmsprop or n_epochs=10; may be repeated",
    )
    what.add_argument(
        "--trial-time",
        type=parse_duration,
        metavar="30s",
        help="with several agents, instead of --budget: the time that each agent's defaults train; "
        "a trial of the agent has as many env steps (default: 30s)",
    )
    groups[EVALUATION].add_argument(
        "--eval-freq",
        type=parse_steps,
        metavar="STEPS",
        help="env steps from one evaluation to the next, instead of --evaluations",
    )
    add_flag(groups[SEARCH], CONTROLS["target_reward"], "mean reward at which a trial ends")
    add_files(groups[FILES], study=True)
    _add_output(run)


def _named() -> dict[str, Option]:
    """Return the options whose help lists the names of a registry."""
    sampler, scheduler = SEARCH_OPTIONS["sampler"], SEARCH_OPTIONS["scheduler"]
    stops = f"algorithm that stops trials early: {listed(list(EARLY_STOPPING))}"
    populations = listed(list(POPULATIONS))
    return {
        "sampler": replace(sampler, help=f"{sampler.help}: {', '.join(SAMPLERS)}; {OTHERS}"),
        "scheduler": replace(
            scheduler, help=f"{stops}; or that trains a population: {populations}; {OTHERS}"
        ),
    }


def _add_resume(subparsers: Any) -> None:
    resume = subparsers.add_parser(
        "resume",
        help="go on with a search or a training that was stopped or killed",
        description="Go on where a search or a training was stopped; nothing is done twice. "
        "Without a flag, an option stays as it was.",
    )
    resume.set_defaults(main=resume_main)
    resume.add_argument("run", help=RUN)
    search, train = OF_KIND.values()
    for title, names in (
        ("of a search", search.keys() - train.keys()),
        ("of a training", train.keys() - search.keys()),
        ("of both", search.keys() & train.keys()),
    ):
        group = resume.add_argument_group(title)
        for name, option in (search | train).items():
            if name in names:
                add_flag(group, option, option.described(resumed=True))
    add_callbacks(resume)
    _add_output(resume)


def _add_output(parser: argparse.ArgumentParser) -> None:
    output = parser.add_argument_group("output")
    output.add_argument(
        "--plain", action="store_true", help="print plain lines instead of the live screen"
    )
    output.add_argument("--quiet", action="store_true", help="print errors alone")
    output.add_argument("--ray-output", action="store_true", help="print what Ray itself prints")


def run_main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Run a search."""
    if args.command == "tune":
        print("rltune tune is rltune run.", file=sys.stderr)
    with contextlib.nullcontext() if args.dry_run else _ahead(args, args.address):
        return _run(args, extra)


@contextlib.contextmanager
def _ahead(args: argparse.Namespace, address: str | None) -> Iterator[None]:
    """Start Ray beside the imports and checks, where the search will run on this machine.

    Only in a process of the command's own: what calls it from Python may go on with a Ray.
    """
    from rltune.cluster.address import is_elsewhere

    if not args.owns_process or is_elsewhere(address):
        yield
        return
    from rltune.cluster.session import started_ahead

    with started_ahead(quiet=not args.ray_output, wait=False):
        yield


def _run(args: argparse.Namespace, extra: Sequence[str]) -> int:
    from rltune.selection.candidates import names_several

    if extra and names_several(extra[0]):
        return _run_agents(args, extra[0], extra[1:])
    search = make_search(args, extra)
    search.started = args.started  # the time limit counts the imports, too
    if args.dry_run:
        from rltune.common.provenance import command_line
        from rltune.planning.plan import plan_lines

        command = command_line().replace(" --dry-run", "")
        lines = plan_lines(
            search.spec, search.space, search.starts, search.path, command, search.taken
        )
        print("\n".join(lines))
        return 0
    return _report(search.run())


def _run_agents(args: argparse.Namespace, agents: str, extra: Sequence[str]) -> int:
    """Run a search over several agents."""
    from rltune.selection.agent_search import AgentSearch

    if extra or args.dimension or args.zoo:
        word = extra[0] if extra else "--dimension" if args.dimension else "--zoo"
        raise UserError(f"{word} is for a search of one agent: each has a space of its own.")
    if args.env is None:
        raise UserError("which environment? Give --env ID.")
    options = _options(args)
    if args.space is not None:
        options["space"] = args.space
    env = options.pop("env")
    search = AgentSearch(
        agents, env, trial_time=args.trial_time, name=args.name,
        screen="plain" if args.plain else "auto", ray_output=args.ray_output,
        callbacks=args.callbacks, **options,
    )  # fmt: skip
    search.started = args.started
    for line in search.spec.plan():
        print(line, file=sys.stdout if args.dry_run else sys.stderr, flush=True)
    return 0 if args.dry_run else _report_agents(search.run())


def make_search(args: argparse.Namespace, extra: Sequence[str]) -> Search:
    """Return the search that the flags describe, and print its notes on defaults."""
    from rltune.search.own_code import config_class_of, resolved
    from rltune.search.search import Search
    from rltune.search.space_choice import named_agent
    from rltune.selection.candidates import names_several
    from rltune.space.space import dimension_from_values, parse_override
    from rltune.space.surroundings import searchable

    if extra and not extra[0].startswith("-"):
        args.agent, extra = extra[0], extra[1:]
        if names_several(args.agent):
            raise UserError(
                f"{args.command} takes one agent; `rltune run {args.agent} --dry-run` shows the "
                "rounds of a search over several."
            )
    else:
        args.agent = named_agent(args.space)
    args.agent = resolved(args.agent)
    more = [text.partition("=")[0].strip() for text in args.dimension]
    known = searchable(config_class_of(args.agent, args.space, more))
    dimensions = dict(parse_override(text, known) for text in args.dimension)
    for name, values in parse_flags(args, extra, known).items():
        key, dimension = dimension_from_values(name, values, known)
        dimensions[key] = dimension
    if getattr(args, "trial_time", None) is not None:
        raise UserError("--trial-time is for a search over several agents; give --budget STEPS.")
    options = _options(args)
    worker = _ask_for_a_worker(args.agent, options)
    search = Search(
        args.agent,
        space=args.space,
        dimensions=dimensions,
        zoo=args.zoo,
        name=args.name,
        screen="plain" if args.plain else "auto",
        ray_output=args.ray_output,
        callbacks=getattr(args, "callbacks", ()),  # `rltune plan` has none
        **options,
    )
    search.workers = worker
    for note in search.notes:
        print(note, file=sys.stderr, flush=True)
    return search


def _ask_for_a_worker(agent: str, options: dict[str, Any]) -> Workers | None:
    """Ask for the first worker, where Ray starts beside: it imports while the search is checked."""
    from rltune.cluster.resources import Resources
    from rltune.cluster.session import when_up
    from rltune.execution.workers import Workers

    if "cpus_per_trial" in options or "gpus_per_trial" in options:
        return None  # they are not checked yet
    workers = Workers(agent, "", Resources(), 1)
    when_up(workers.ask)
    return workers


def _options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the keywords of `Search` that the flags give."""
    options = given(args, SEARCH_OPTIONS)
    if args.target_reward is not None:
        options["controls"] = {"target_reward": args.target_reward}
    if args.eval_freq is not None:
        if args.evaluations is not None:
            raise UserError("--evaluations and --eval-freq say the same; keep one of them.")
        if args.budget is None:
            raise UserError("--eval-freq needs --budget.")
        options["evaluations"] = max(1, round(args.budget / args.eval_freq))
    if args.storage_path is not None:
        options["storage_path"] = args.storage_path
    return options


def _refuse(args: argparse.Namespace, run: RunDir, options: Mapping[str, Option]) -> None:
    """Raise UserError where an option of the other kind of run is given."""
    for name in given(args, options):
        this, other = ("search", "training")[:: 1 if run.kind == "search" else -1]
        flag = options[name].spellings[0]
        raise UserError(f"{flag} is for a {other}; {run.name!r} is a {this}: leave it out.")


def resume_main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Go on with a run."""
    reject_extra(args, extra)
    from rltune.runs.cloud import fetched
    from rltune.runs.directory import AGENTS, RunDir

    args.run = fetched(args.run)
    run = RunDir.open_whole(args.run)
    if run.kind == AGENTS:
        return _resume_agents(args, run)
    own = OF_KIND[run.kind]
    for options in OF_KIND.values():
        _refuse(args, run, {name: options[name] for name in options.keys() - own.keys()})
    changes = given(args, own)
    if run.kind == "train":
        from rltune.training.train import resume as resume_training

        return resume_training(args.run, plain=args.plain, callbacks=args.callbacks, **changes)
    from rltune.search.search import resume

    screen = "plain" if args.plain else "auto"
    with _ahead(args, changes.get("address", run.spec.get("address"))):
        output = {"screen": screen, "ray_output": args.ray_output, "callbacks": args.callbacks}
        return _report(resume(args.run, **output, **changes))


def _resume_agents(args: argparse.Namespace, run: RunDir) -> int:
    from rltune.selection.agent_search import resume

    changes = given(args, {**OF_KIND["search"], **OF_KIND["train"]})
    time_limit = changes.pop("time_limit", None)
    if changes:
        raise UserError(
            f"--{next(iter(changes)).replace('_', '-')} can't be changed in a search over several "
            "agents; --time-limit can."
        )
    screen = "plain" if args.plain else "auto"
    with _ahead(args, None):
        return _report_agents(
            resume(
                run.path,
                time_limit=time_limit,
                screen=screen,
                ray_output=args.ray_output,
                callbacks=args.callbacks,
            )
        )


def _report_agents(result: AgentSearchResult) -> int:
    from rltune.runs.directory import RunDir
    from rltune.selection.show import show

    if result.interrupted:
        return 130
    if result.agent is None:
        print("\n".join(result.answer.sentences if result.answer else ()))
        return 1
    show(RunDir.open_whole(result.path))
    return 0


def _report(result: SearchResult) -> int:
    from rltune.analysis.show import show

    if result.interrupted:
        print(f"Stopped. Nothing is lost; go on with: rltune resume {result.path}", file=sys.stderr)
        return 130
    show(result.path)
    if result.page:
        print(result.page)
    return 0 if result.best is not None else 1
