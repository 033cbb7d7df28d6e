"""Texts of a plan: what a search will do and cost, for `rltune run --dry-run` and `rltune plan`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from rltune.backends.registry import learns_nothing
from rltune.common.formats import count, duration, plural, rung_at, settings, size
from rltune.objectives.metrics import METRIC, describe
from rltune.planning.bounds import may_exceed, most_env_steps
from rltune.planning.deadlines import Deadlines, TournamentTime
from rltune.samplers.proposer import Proposer
from rltune.schedulers.registry import rungs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rltune.objectives.seeds import SeedPlan
    from rltune.planning.forecast import About, Forecast
    from rltune.runs.search_spec import SearchSpec
    from rltune.samplers.earlier_runs import Taken
    from rltune.space.space import Space
    from rltune.study.records import StartConfig


def plan_lines(
    spec: SearchSpec,
    space: Space,
    starts: Sequence[StartConfig],
    folder: Path,
    command: str,
    taken: Sequence[Taken] = (),
) -> list[str]:
    """Return the plan, line by line.

    Args:
        spec: the search
        space: what is searched
        starts: the trials that come first
        folder: the run directory
        command: the line that the user typed
        taken: what earlier searches bring
    """
    lines = [*_search_lines(spec), "", *_space_lines(spec, space)]
    lines += [f"learns from {run}" for run in taken]
    lines += ["", *_start_lines(spec, space, starts)]
    if spec.tournament:
        finalists = spec.finalists + len(starts)
        lines += [
            "",
            f"tournament: up to {finalists} finalists, each re-trained on seeds "
            f"{spec.first_test_seed} to {spec.first_test_seed + spec.test_seeds - 1}",
        ]
    if (most := most_env_steps(spec, space, starts)) is not None:
        lines.append(f"{_at_most(spec, most)}; stopped trials take less")
    return [*lines, "", f"run directory: {folder}", f"to run it: {command}"]


def _search_lines(spec: SearchSpec) -> list[str]:
    """Return the lines about the trials of the search and their resources."""
    trials = plural(spec.trials, "trial") if spec.trials else "as many trials as fit"
    limit = f", at most {duration(spec.time_limit)} in all" if spec.time_limit else ""
    rungs = rungs_of(spec)
    seconds = spec.scheduler_options.get("seconds")
    places = [rung_at(r, seconds and seconds * r / spec.budget) for r in rungs[:-1]]
    at = f" at {', '.join(places)}{'' if seconds else ' env steps'}" if places else ""
    evaluations = f"every {count(spec.budget / len(spec.evaluate_at))} env steps"
    at_once = spec.concurrency or "as many as fit"
    return [
        f"{spec.agent} on {spec.env}: {trials} of {count(spec.budget)} env steps{limit}",
        f"sampler {spec.sampler}, seed {spec.seed}; scheduler {spec.scheduler}{at}",
        f"each trial on {_seeds(spec.seed_plan(rungs))}; "
        f"{'' if spec.eval_share is None else 'up to '}"
        f"{plural(spec.eval_episodes, 'greedy episode')} "
        f"{evaluations}; the objective is {describe(spec.objective)}"
        + (f" of {spec.metric}" if spec.metric != METRIC else "")
        + "".join(f", against {goal.name}" for goal in spec.goals[1:]),
        f"at once: {at_once}, each with {spec.cpus_per_trial:g} CPU and {spec.gpus_per_trial:g} "
        f"GPU, on device {spec.device}",
    ]


def _space_lines(spec: SearchSpec, space: Space) -> list[str]:
    """Return the lines about the searched space, and how its sampler proposes from it."""
    lines = [f"searched ({len(space.dimensions)}):"]
    width = max(map(len, space.dimensions))
    for name, dimension in space.dimensions.items():
        lines.append(f"  {name:<{width}}  {dimension.describe()}")
    lines += [f"  derived: {name} = {e.text}" for name, e in space.derived.items()]
    lines += [f"  always: {constraint.text}" for constraint in space.constraints]
    proposer = Proposer(space, spec.sampler, spec.sampler_options, spec.seed, "maximize")
    return [*lines, proposer.describe()]


def _start_lines(spec: SearchSpec, space: Space, starts: Sequence[StartConfig]) -> list[str]:
    """Return the lines about the trials that come first."""
    lines = [f"first ({len(starts)}):"]
    own = spec.defaults
    for start in starts:
        differing = (name for name, value in start.config.items() if value != own.get(name))
        shown = settings(start.config, {*space.dimensions, *differing})
        lines.append(f"  {start.origin}: {', '.join(shown)}")
        if reason := learns_nothing(start.config, spec.env, spec.budget):
            lines.append(f"    {reason}")
    return lines


def _at_most(spec: SearchSpec, most: int) -> str:
    beyond = ", and the rest of each training's last rollout" if may_exceed(spec) else ""
    return f"at most {most:,} env steps in all{beyond}"


def _seeds(plan: SeedPlan) -> str:
    """Return "seed 0", "seeds 0 to 2" or "seed 0, the best on seeds 0 to 2"."""
    first, last = plan.first, plan.first + plan.most - 1
    all_seeds = f"seeds {first} to {last}" if last > first else f"seed {first}"
    return f"seed {first}, the best on {all_seeds}" if plan.races else all_seeds


def forecast_lines(spec: SearchSpec, found: Forecast) -> list[str]:
    """Return the forecast cost of the search, line by line."""
    runs = f", then {_whole(found.runs)} re-trainings on test seeds" if spec.tournament else ""
    lines = [
        f"{spec.agent} on {spec.env}: {plural(found.trials, 'trial')} of up to "
        f"{count(spec.budget)} env steps{runs}",
        f"{plural(found.slots, 'trial')} at once, each with {spec.cpus_per_trial:g} CPU and "
        f"{spec.gpus_per_trial:g} GPU, on device {spec.device}",
        f"faster library: {found.libraries}",
        "",
        f"a trial's whole budget, from {plural(len(found.measured), 'measurement')} in "
        f"{duration(found.seconds)}:",
    ]
    for priced in found.measured:
        measured = priced.measured
        steps = "whole" if measured.is_whole else f"{count(measured.env_steps)} env steps"
        lines.append(f"  {_seconds(measured.likely.wall):>9}  {priced.name} ({steps})")
    lines += [
        f"  {_seconds(found.trial.value):>9}  the mean over the space, most between "
        f"{_seconds(found.trial.low)} and {_seconds(found.trial.high)}",
        "",
        f"the search, about      {'':12}between",
        _row("env steps", found.env_steps, count),
        _row("CPU time", found.cpu, _hours),
    ]
    if spec.gpus_per_trial:
        lines.append(_row("GPU time", found.gpu, _hours))
    lines.append(_row("wall time", found.wall, duration))
    workers = f"{plural(found.slots, 'worker')} of {found.memory_each / 1e9:.2g} GB"
    lines.append(f"  {'memory':<12} {f'{found.memory / 1e9:.2g} GB':>10}    {workers}")
    lines.append(f"  {'checkpoints':<12} {_checkpoints(found)}")
    if found.most_env_steps is not None:
        lines.append(f"  {_at_most(spec, found.most_env_steps)}")
    if found.money is not None:
        lines.append(_row("money", found.money, lambda value: f"{value:,.2f}"))
    lines.append("")
    tests = TournamentTime.of(found.runs.value, spec.test_seeds, found.slots, found.trial.value)
    deadlines = Deadlines(time.time(), spec.time_limit, spec.tournament)
    if deadlines.too_short(tests):
        lines.append(deadlines.advice(tests, spec.budget))
    if spec.trials is None:
        lines.append(f"The time limit leaves room for about {plural(found.trials, 'trial')}.")
    elif found.is_cut:
        lines.append("The time limit will end the search before all its trials have run.")
    lines.append(
        f"A predicted price was off by {found.error:.0%} (typically). The wall time holds if the "
        "machine stays as busy as it was just now.".replace("%", " %")
    )
    return lines


def _row(name: str, about: About, text: Callable[[float], str]) -> str:
    return f"  {name:<12} {text(about.value):>10}    {text(about.low)} and {text(about.high)}"


def _checkpoints(found: Forecast) -> str:
    """Return the size of the trials' checkpoints: the largest that was measured for each."""
    runs = found.trials + round(found.runs.value)
    text = f"{size(runs * found.checkpoint):>10}    {runs} of {size(found.checkpoint)}"
    if found.replay:
        text += f", and {size(found.replay)} of replay memory until it ends"
    return text


def _whole(about: About) -> str:
    low, high = round(about.low), round(about.high)
    return str(low) if low == high else f"{low} to {high}"


def _seconds(value: float) -> str:
    return duration(value) if value >= 100 else f"{value:.2g} s"


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.2g} h" if seconds >= 3600 else duration(seconds)
