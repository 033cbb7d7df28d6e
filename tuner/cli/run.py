"""`rltune run` and `rltune resume`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from rltune.agents.envs.suite import HELP as ENVS
from rltune.agents.errors import UserError
from rltune.agents.registry import HELP as AGENTS
from rltune.cli.flags import parse_flags, parse_mapping, reject_extra
from rltune.samplers.registry import DEFAULT, SAMPLERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rltune.results import SearchResult
    from rltune.runs.directory import RunDir
    from rltune.search.search import Search

ADDRESS = (
    "a Ray cluster: auto (of this machine), host:6379, ray://host:10001, or local (none); default: "
    "RAY_ADDRESS (docs/cluster.md)"
)
WEIGHTS_HELP = "start from the networks of this checkpoint, or run, instead of new ones"
EVAL_MODE = "greedy (default), or stochastic: exploring as in training"
RUN_HELP = """\
Search for the best configuration of an agent on an environment.

  rltune run ppo --env CartPole-v1 --trials 30 --budget 5e4
  rltune run --space ppo                      # the file names agent, environment and budget
  rltune run ppo --space search_spaces/ppo.yaml --env LunarLander-v3 --time-limit 2h
  rltune run ppo --env CartPole-v1 --learning-rate 1e-5 1e-2 --n-epochs 4 10 20
  rltune run my_module:MyAgent --space my.yaml --env my_module:MyEnv

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
    run.add_argument("--dry-run", action="store_true", help="print the resolved plan and stop")
    _add_resume(subparsers)


def add_search_flags(run: argparse.ArgumentParser) -> None:
    """Add the flags that describe a search."""
    # No positional: without an agent, it would take the first value of a hyperparameter's flag.
    run.set_defaults(agent=None)
    run.usage = "%(prog)s [AGENT] [FLAG ...] [--HYPERPARAMETER VALUE ...]"
    run.add_argument_group("AGENT", f"{AGENTS};\n  default: the one that --space names")
    what = run.add_argument_group("what is searched")
    what.add_argument("--env", help=f"{ENVS}; default: the space's")
    what.add_argument("--env-kwargs", metavar="YAML", help='such as "{render_fps: 30}"')
    what.add_argument("--space", metavar="FILE", help="search space; default: the one that ships")
    what.add_argument(
        "-s",
        "--dimension",
        action="append",
        default=[],
        metavar="NAME=RANGE",
        help="add or override: learning_rate=1e-5..1e-2:log, optimizer=adam,rmsprop, n_epochs=10",
    )
    what.add_argument(
        "-n", "--budget", "--total-timesteps", "--n-timesteps",
        type=_number, metavar="STEPS", help="env_steps of a full trial",
    )  # fmt: skip
    what.add_argument("--weights", metavar="CHECKPOINT_OR_RUN", help=WEIGHTS_HELP)
    how = run.add_argument_group("how it is searched")
    how.add_argument(
        "--trials", "--n-trials", "--num-samples",
        type=_whole, metavar="N", help="default: 60; of pbt and pb2: 8",
    )  # fmt: skip
    how.add_argument("--time-limit", metavar="2h", help="for everything, the tournament included")
    how.add_argument(
        "--sampler",
        metavar="NAME",
        help=", ".join(SAMPLERS).replace(DEFAULT, f"{DEFAULT} (default)"),
    )
    how.add_argument("--sampler-options", metavar="YAML", help='such as "{n_startup_trials: 5}"')
    how.add_argument(
        "--from",
        dest="warm_start",
        action="append",
        default=[],
        metavar="RUN",
        help="learn from an earlier search, on this or another environment; may be repeated",
    )
    how.add_argument(
        "--scheduler",
        "--pruner",
        metavar="NAME",
        help="asha (default), hyperband, median, none; pbt, pb2: --trials is the population",
    )
    how.add_argument(
        "--scheduler-options",
        metavar="YAML",
        help='such as "{reduction_factor: 4}", "{interval: 1e4, quantile: 0.25}"',
    )
    how.add_argument(
        "--no-stop-rules",
        dest="stop_rules",
        action="store_false",
        default=None,
        help="let hopeless trials go on: collapsed, exploded, frozen, ... (docs/stop-rules.md)",
    )
    how.add_argument("--seed", type=_whole, help="of the search; default: 0")
    how.add_argument(
        "--seeds",
        metavar="N",
        help="per trial: a number, or racing (more seeds for who survives a rung, up to three), or "
        "racing:N; default: 1",
    )
    how.add_argument(
        "--over-seeds",
        metavar="HOW",
        help="what counts of several seeds: iqm (interquartile mean; default), mean, worst, or a "
        "quantile such as q25",
    )
    how.add_argument("--first-seed", type=_whole, metavar="N", help="of the trials; default: 0")
    how.add_argument("--evaluations", type=_whole, metavar="N", help="per trial; default: 9")
    how.add_argument("--eval-freq", type=_number, metavar="STEPS", help="instead of --evaluations")
    how.add_argument("--eval-episodes", type=_whole, metavar="N", help="each time; default: 10")
    how.add_argument("--eval-mode", metavar="MODE", help=EVAL_MODE)
    how.add_argument(
        "--objective",
        metavar="WHAT",
        help="of a trial's evaluations: last:3 (the mean of the last three; default), last, best, "
        "best:3, or area (under the curve)",
    )
    how.add_argument(
        "--metric",
        metavar="NAME",
        help="what is tuned: eval_return (default), success_rate (where the environment says so), "
        "eval_length, or what the agent reports, as in --metric=-kl (with a minus, the lower the "
        "better)",
    )
    how.add_argument(
        "--against",
        action="append",
        metavar="WHAT",
        help="a further objective, for a front: seconds, cpu_seconds, or a metric as above; may be "
        "repeated (docs/objectives.md)",
    )
    how.add_argument("--retries", type=_whole, metavar="N", help="of a failed trial; default: 2")
    how.add_argument(
        "--target-reward", type=float, help="a trial ends when it has this mean reward"
    )
    where = run.add_argument_group("where it runs")
    where.add_argument(
        "--concurrency", "--n-jobs",
        type=_whole, metavar="N", help="trials at once; default: all fit",
    )  # fmt: skip
    where.add_argument(
        "--cpus-per-trial", type=float, metavar="X", help="may be a fraction; default: 1"
    )
    where.add_argument(
        "--gpus-per-trial", type=float, metavar="X", help="may be a fraction; default: 0"
    )
    where.add_argument("--address", metavar="ADDRESS", help=ADDRESS)
    where.add_argument("--device", help="cpu, cuda or auto (default)")
    answer = run.add_argument_group("the answer")
    answer.add_argument("--no-tournament", dest="tournament", action="store_false", default=None)
    answer.add_argument("--finalists", type=_whole, metavar="N", help="of the search; default: 3")
    answer.add_argument("--test-seeds", type=_whole, metavar="N", help="default: 5")
    answer.add_argument("--first-test-seed", type=_whole, metavar="N", help="default: 100")
    files = run.add_argument_group("files and tracking")
    files.add_argument(
        "--name", "--study-name", help="of the run; default: agent, environment, date"
    )
    files.add_argument("--storage-path", "--storage", metavar="DIR", help="default: runs")
    files.add_argument("--wandb", metavar="MODE", help="auto (default), online, offline or off")
    files.add_argument("--track", dest="wandb", action="store_const", const="online")
    files.add_argument("--wandb-project", "--wandb-project-name", metavar="NAME")
    files.add_argument("--wandb-entity", metavar="NAME")
    files.add_argument("--wandb-group", metavar="NAME")
    add_trackers(files)
    add_checkpoint_flag(files)
    _add_output(run)


def add_checkpoint_flag(files: argparse._ArgumentGroup) -> None:
    """Add the flag that keeps checkpoints small."""
    files.add_argument(
        "--no-save-replay-buffer",
        dest="save_replay_buffer",
        action="store_false",
        default=None,
        help="small checkpoints; what is resumed from them fills a new replay memory first",
    )


def add_trackers(files: argparse._ArgumentGroup) -> None:
    """Add the flags of the trackers beside wandb."""
    files.add_argument(
        "--tensorboard", action="store_true", default=None, help="into tensorboard/ of the run"
    )
    files.add_argument(
        "--mlflow",
        nargs="?",
        const="",
        metavar="URI",
        help="default: MLFLOW_TRACKING_URI, else mlflow.db beside the runs",
    )


def _add_resume(subparsers: Any) -> None:
    resume = subparsers.add_parser(
        "resume",
        help="go on with a search or a training that was stopped or killed",
        description="Go on where a search or a training was stopped; nothing is done twice.",
    )
    resume.set_defaults(main=resume_main)
    resume.add_argument("run", help="the run directory, its name, or latest")
    resume.add_argument("--trials", type=_whole, metavar="N", help="a new total")
    resume.add_argument(
        "--time-limit", metavar="2h", help="from now on; trials that the old one cut go on, too"
    )
    resume.add_argument("--concurrency", type=_whole, metavar="N", help="trials at once")
    resume.add_argument("--address", metavar="ADDRESS", help=ADDRESS)
    resume.add_argument("--no-stop-rules", dest="stop_rules", action="store_false", default=None)
    resume.add_argument(
        "--test-seeds", type=_whole, metavar="N", help="a new total, to prove a lead"
    )
    resume.add_argument("--total-timesteps", "-n", type=_number, help="of a training: a new total")
    resume.add_argument(
        "--target-reward", type=float, help="of a training: a new mean reward at which it ends"
    )
    resume.add_argument("--no-tournament", dest="tournament", action="store_false", default=None)
    _add_output(resume)


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--no-report",
        dest="report",
        action="store_false",
        default=None,
        help="no page with figures at the end",
    )
    parser.add_argument(
        "--plain", action="store_true", help="plain lines instead of the live screen"
    )
    parser.add_argument("--quiet", action="store_true", help="print errors alone")
    parser.add_argument("--ray-output", action="store_true", help="show what Ray itself prints")


def _number(text: str) -> int:
    value = float(text)
    if not 1 <= value < 1e15:
        raise ValueError
    return round(value)


def _whole(text: str) -> int:
    value = float(text)
    if value != int(value):
        raise ValueError
    return int(value)


_number.__name__ = _whole.__name__ = "whole number"

PASSED_ON = (
    "trials",
    "sampler",
    "scheduler",
    "stop_rules",
    "seed",
    "seeds",
    "over_seeds",
    "first_seed",
    "evaluations",
    "eval_episodes",
    "eval_mode",
    "weights",
    "save_replay_buffer",
    "objective",
    "metric",
    "against",
    "retries",
    "concurrency",
    "cpus_per_trial",
    "gpus_per_trial",
    "device",
    "address",
    "tournament",
    "finalists",
    "test_seeds",
    "first_test_seed",
    "wandb",
    "wandb_project",
    "wandb_entity",
    "wandb_group",
    "tensorboard",
    "mlflow",
    "report",
)


def run_main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Run a search."""
    if args.command == "tune":
        print("rltune tune is rltune run.", file=sys.stderr)
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


def make_search(args: argparse.Namespace, extra: Sequence[str]) -> Search:
    """Return the search that the flags describe, and say what it takes that they leave open."""
    from rltune.backends.registry import config_class
    from rltune.search.search import Search
    from rltune.search.space_choice import named_agent
    from rltune.space.space import dimension_from_values, parse_override
    from rltune.space.surroundings import searchable

    if extra and not extra[0].startswith("-"):
        args.agent, extra = extra[0], extra[1:]
    else:
        args.agent = named_agent(args.space)
    known = searchable(config_class(args.agent))
    dimensions = dict(parse_override(text, known) for text in args.dimension)
    for name, values in parse_flags(args, extra, known).items():
        key, dimension = dimension_from_values(name, values, known)
        dimensions[key] = dimension
    options = {key: getattr(args, key) for key in PASSED_ON if getattr(args, key) is not None}
    for key in ("env_kwargs", "sampler_options", "scheduler_options"):
        if getattr(args, key) is not None:
            options[key] = parse_mapping("--" + key.replace("_", "-"), getattr(args, key))
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
    search = Search(
        args.agent,
        args.env,
        args.space,
        budget=args.budget,
        time_limit=args.time_limit,
        warm_start=args.warm_start,
        dimensions=dimensions,
        name=args.name,
        screen="plain" if args.plain else "auto",
        ray_output=args.ray_output,
        **options,
    )
    for note in search.notes:
        print(note, file=sys.stderr, flush=True)
    return search


# Flags of `rltune resume` that mean nothing for a run of the other kind.
OF_TRAININGS = {"total_timesteps": "-n", "target_reward": "--target-reward"}
OF_SEARCHES = {
    "trials": "--trials",
    "time_limit": "--time-limit",
    "concurrency": "--concurrency",
    "address": "--address",
    "stop_rules": "--no-stop-rules",
    "test_seeds": "--test-seeds",
    "tournament": "--no-tournament",
    "report": "--no-report",
}


def _refuse(args: argparse.Namespace, run: RunDir, flags: Mapping[str, str]) -> None:
    """Raise UserError where one of the flags was given, which mean nothing for the run."""
    for name, flag in flags.items():
        if getattr(args, name) is not None:
            this, other = ("search", "training")[:: 1 if run.kind == "search" else -1]
            raise UserError(f"{flag} is for a {other}; {run.name!r} is a {this}: leave it out.")


def resume_main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Go on with a run."""
    reject_extra(args, extra)
    from rltune.runs.cloud import fetched
    from rltune.runs.directory import RunDir

    args.run = fetched(args.run)
    run = RunDir.open(args.run)
    _refuse(args, run, OF_TRAININGS if run.kind == "search" else OF_SEARCHES)
    if run.kind == "train":
        from rltune.training.train import resume as resume_training

        return resume_training(
            args.run,
            total_timesteps=args.total_timesteps,
            target_reward=args.target_reward,
            plain=args.plain,
        )
    from rltune.search.search import resume

    return _report(
        resume(
            args.run,
            screen="plain" if args.plain else "auto",
            ray_output=args.ray_output,
            trials=args.trials,
            time_limit=args.time_limit,
            concurrency=args.concurrency,
            address=args.address,
            stop_rules=args.stop_rules,
            test_seeds=args.test_seeds,
            tournament=args.tournament,
            report=args.report,
        )
    )


def _report(result: SearchResult) -> int:
    from rltune.analysis.show import show

    if result.interrupted:
        print(f"Stopped. Nothing is lost; go on with: rltune resume {result.path}", file=sys.stderr)
        return 130
    show(result.path)
    if result.page:
        print(result.page)
    return 0 if result.best is not None else 1
