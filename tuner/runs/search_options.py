"""The options of a search: each with its flag, default, range and help.

A new option is one field here; then it is a flag of `rltune run`, a keyword of `rltune.Search` and
a key of run.yaml (`rltune.common.options`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rltune.common.options import option, parse_duration, parse_steps
from rltune.objectives.metrics import DEFAULT, METRIC
from rltune.runs.run_options import AGENT, EVALUATION, RESOURCES, RunOptions
from rltune.runs.tracking_options import FILES

# Tuning and test seeds never overlap (Eimer et al., ICML 2023).
FIRST_SEED = 0
FIRST_TEST_SEED = 100
DEFAULT_TRIALS = 60  # so many it takes to tell what matters from noise (docs/importances.md)

SEARCH = "search"
TOURNAMENT = "tournament"
GROUPS = (AGENT, SEARCH, EVALUATION, RESOURCES, TOURNAMENT, FILES)  # of the help page, in order


@dataclass(frozen=True, kw_only=True)
class SearchOptions(RunOptions):
    """The options of a search, as `rltune run` and `rltune.Search` take them."""

    budget: int = option(
        flags=("-n", "--budget", "--total-timesteps", "--n-timesteps"),
        parse=parse_steps,
        least=1,
        below=1e15,
        group=AGENT,
        metavar="STEPS",
        help="whole budget of a trial, in env steps",
        shown="that of --space",
    )
    trials: int | None = option(
        DEFAULT_TRIALS,
        flags=("--trials", "--n-trials", "--num-samples"),
        least=1,
        group=SEARCH,
        metavar="N",
        help="number of trials; for pbt and pb2 the size of the population",
        shown=f"{DEFAULT_TRIALS}; for pbt and pb2 8; with --time-limit as many as fit",
        resume="new total number of trials",
    )
    time_limit: float | None = option(
        None,
        parse=parse_duration,
        above=0,
        group=SEARCH,
        metavar="2h",
        help="wall time of the search with its tournament: seconds, or such as 90s, 30m, 1h30m",
        resume="wall time from now on; trials that the old limit cut go on, too",
    )
    sampler: str = option(
        "tpe",
        group=SEARCH,
        metavar="NAME",
        help="algorithm that proposes configurations",  # the command line adds the names
        written="a name such as 'tpe' (what it is made with goes into sampler_options)",
    )
    sampler_options: dict[str, Any] = option(
        {},
        group=SEARCH,
        metavar="YAML",
        help='options of the sampler, such as "{n_startup_trials: 5}"',
    )
    warm_start: list[str] = option(
        [],
        flags=("--from",),
        group=SEARCH,
        metavar="RUN",
        help="earlier search to learn from, on this or another environment; may be repeated",
    )
    scheduler: str = option(
        "asha",
        flags=("--scheduler", "--pruner"),
        group=SEARCH,
        metavar="NAME",
        help="algorithm that stops trials early, or trains a population",  # the names likewise
        written="a name such as 'asha' (what it is made with goes into scheduler_options)",
    )
    scheduler_options: dict[str, Any] = option(
        {},
        group=SEARCH,
        metavar="YAML",
        help='options of the scheduler, such as "{reduction_factor: 4}" or '
        '"{interval: 1e4, quantile: 0.25}"',
    )
    stop_rules: bool = option(
        True,
        group=SEARCH,
        help="let hopeless trials go on: collapsed, exploded, frozen, ... (docs/stop-rules.md)",
        resume=True,
    )
    portfolio: bool = option(
        True,
        group=SEARCH,
        help="don't begin with the space's portfolio: configurations that are often good elsewhere",
    )
    seed: int = option(0, least=0, group=SEARCH, help="random seed of the search")
    seeds: str | int = option(
        1,
        group=SEARCH,
        metavar="N",
        help="seeds per trial: a number; or racing, three for trials among the best after their "
        "whole budget; or racing:N",
    )
    over_seeds: str = option(
        "iqm",
        group=SEARCH,
        metavar="HOW",
        help="statistic over the seeds of a trial: iqm (interquartile mean), mean, worst, or a "
        "quantile such as q25",
    )
    first_seed: int = option(
        FIRST_SEED, least=0, group=SEARCH, metavar="N", help="first seed of the trials"
    )
    retries: int = option(
        2, least=0, group=SEARCH, metavar="N", help="retries of a training that failed"
    )
    evaluations: int = option(
        9,
        least=1,
        group=EVALUATION,
        metavar="N",
        help="evaluations per trial",
        shown="9, fewer where episodes are long",
    )
    eval_share: float | None = option(
        None,
        above=0,
        below=1,
        group=EVALUATION,
        metavar="X",
        help="part of a training's time for evaluations: fewer episodes where nothing depends on "
        "them, or a trial is clearly too bad (docs/objectives.md)",
        shown="0.2; all episodes with --evaluations, --eval-freq or --eval-episodes",
    )
    objective: str = option(
        DEFAULT,
        group=EVALUATION,
        metavar="WHAT",
        help="objective, from a trial's evaluations: last:3 (mean of the last three), last, best, "
        "best:3, or area (under the curve)",
    )
    metric: str = option(
        METRIC,
        group=EVALUATION,
        metavar="NAME",
        help="metric to maximise: eval_return, success_rate (where the environment reports it), "
        "eval_length, or one that the agent reports; with a minus it is minimised, as in "
        "--metric=-kl",
        written="the name of a column of the history",
    )
    against: list[str] = option(
        [],
        group=EVALUATION,
        metavar="WHAT",
        help="further objective, for a Pareto front: seconds, cpu_seconds, or a metric as in "
        "--metric; may be repeated (docs/objectives.md)",
    )
    concurrency: int | None = option(
        None,
        flags=("--concurrency", "--n-jobs"),
        least=1,
        group=RESOURCES,
        metavar="N",
        help="number of trials that run at once",
        shown="as many as fit",
        resume=True,
    )
    cpus_per_trial: float = option(
        1, above=0, group=RESOURCES, metavar="X", help="CPUs per trial; below 1 they are shared"
    )
    gpus_per_trial: float = option(
        0,
        least=0,
        group=RESOURCES,
        metavar="X",
        help="GPUs per trial; below 1 they are shared",
        resume=True,
    )
    cpus_per_actor: float = option(
        1,
        above=0,
        group=RESOURCES,
        metavar="X",
        help="CPUs per actor of a trial, beside those of its learner (num_actors, docs/actors.md)",
    )
    address: str | None = option(
        None,
        group=RESOURCES,
        metavar="ADDRESS",
        help="Ray cluster (docs/cluster.md): auto (of this machine), host:6379, ray://host:10001, "
        "or local (none)",
        shown="RAY_ADDRESS",
        resume=True,
    )
    tournament: bool = option(
        True,
        group=TOURNAMENT,
        help="don't train the best trials again on test seeds",
        resume=True,
    )
    finalists: int = option(
        3, least=1, group=TOURNAMENT, metavar="N", help="number of trials in the tournament"
    )
    test_seeds: int = option(
        5,
        least=1,
        group=TOURNAMENT,
        metavar="N",
        help="test seeds per finalist",
        resume="new total of test seeds per finalist, to prove a lead",
    )
    first_test_seed: int = option(
        FIRST_TEST_SEED, least=0, group=TOURNAMENT, metavar="N", help="first test seed"
    )
    report: bool = option(
        True, group=FILES, help="write no page with figures at the end", resume=True
    )
