"""What a search is going to do, for `rltune run --dry-run`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rltune.asha import make_scheduler
from rltune.formats import count, duration, plural, settings
from rltune.objectives import describe
from rltune.pbt import NAMES, pauses
from rltune.samplers import Proposer
from rltune.spec import FIRST_TEST_SEED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltune.space import Space
    from rltune.spec import SearchSpec
    from rltune.study import Start


def plan_lines(
    spec: SearchSpec, space: Space, starts: Sequence[Start], folder: Path, command: str
) -> list[str]:
    """Return the plan, line by line.

    Args:
        spec: the search
        space: what is searched
        starts: the trials that come first
        folder: the run directory
        command: the line that the user typed
    """
    trials = plural(spec.trials, "trial") if spec.trials else "as many trials as fit"
    limit = f", at most {duration(spec.time_limit)} in all" if spec.time_limit else ""
    if spec.scheduler in NAMES:
        stops = pauses(spec)
    else:
        scheduler = make_scheduler(spec.scheduler, spec.budget, spec.scheduler_options)
        stops = [rung.budget for rung in scheduler.table()][:-1]
    at = f" at {', '.join(map(count, stops))} env_steps" if stops else ""
    evaluations = f"every {count(spec.budget / len(spec.evaluate_at))} env_steps"
    at_once = spec.concurrency or "as many as fit"
    lines = [
        f"{spec.agent} on {spec.env}: {trials} of {count(spec.budget)} env_steps{limit}",
        f"sampler {spec.sampler}, seed {spec.seed}; scheduler {spec.scheduler}{at}",
        f"each trial on seed {spec.tune_seed}; {plural(spec.eval_episodes, 'greedy episode')} "
        f"{evaluations}; the objective is {describe(spec.objective)}",
        f"at once: {at_once}, each with {spec.cpus_per_trial:g} CPU and {spec.gpus_per_trial:g} "
        f"GPU, on device {spec.device}",
        "",
        f"searched ({len(space.dimensions)}):",
    ]
    width = max(map(len, space.dimensions))
    for name, dimension in space.dimensions.items():
        lines.append(f"  {name:<{width}}  {dimension.describe()}")
    lines += [f"  derived: {name} = {e.text}" for name, e in space.derived.items()]
    lines += [f"  always: {constraint.text}" for constraint in space.constraints]
    proposer = Proposer(space, spec.sampler, spec.sampler_options, spec.seed, "maximize")
    lines.append(proposer.describe())
    lines += ["", f"first ({len(starts)}):"]
    for start in starts:
        lines.append(f"  {start.origin}: {', '.join(settings(start.config, space.dimensions))}")
    if spec.tournament:
        finalists = spec.finalists + len(starts)
        lines += [
            "",
            f"tournament: up to {finalists} finalists, each re-trained on seeds {FIRST_TEST_SEED} "
            f"to {FIRST_TEST_SEED + spec.test_seeds - 1}",
        ]
    most = (spec.trials or 0) * spec.budget
    if spec.tournament:
        most += (spec.finalists + len(starts)) * spec.test_seeds * spec.budget
    if spec.trials:
        lines.append(f"at most {count(most)} env_steps in all; stopped trials take less")
    return [*lines, "", f"run directory: {folder}", f"to run it: {command}"]
