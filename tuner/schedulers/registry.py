"""The registry of schedulers: by name, for one objective, several, or a population."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rltune.agents.config import hyperparameters
from rltune.agents.errors import UserError
from rltune.backends.names import RLLIB
from rltune.objectives.seeds import parse_seeds
from rltune.schedulers.asha import ASHA
from rltune.schedulers.base import NoScheduler, Scheduler
from rltune.schedulers.explorers import Explorer
from rltune.schedulers.hyperband import Hyperband
from rltune.schedulers.options import POPULATIONS, check_options, members, pauses
from rltune.schedulers.pareto_asha import ParetoASHA
from rltune.schedulers.pbt import PBT
from rltune.space.surroundings import is_surrounding

if TYPE_CHECKING:
    from rltune.objectives.goals import FurtherObjectives
    from rltune.runs.directory import RunDir
    from rltune.runs.search_spec import SearchSpec
    from rltune.schedulers.base import Scheduler
    from rltune.space.space import Space
    from rltune.study.study import SearchStudy


def default_rungs(budget: int, reduction_factor: float = 3, n_rungs: int = 3) -> list[int]:
    """Return the rungs up to the full budget, each `reduction_factor` times the one before.

    50,000 env_steps give 5,556, 16,667 and 50,000.
    """
    rungs = {round(budget / reduction_factor**k) for k in range(n_rungs)}
    return sorted(rung for rung in rungs if rung >= 1)


def make_scheduler(
    name: str,
    budget: int,
    options: Mapping[str, Any] | None = None,
    direction: str = "maximize",
) -> Scheduler:
    """Return the scheduler of that name for trials of `budget` env_steps.

    "asha"; "hyperband"; "median", which divides the budget into `n_rungs` equal steps and, from the
    second on, stops whoever is below the median of those who got there; "none". ("pbt" and "pb2"
    need more than the budget: `pbt.make_scheduler`.)

    Raises:
        UserError: unknown name or option, or an option out of its range.
    """
    values = check_options(name, options or {})
    if name == "none":
        return NoScheduler()
    population, n_rungs = int(values["min_population"]), int(values["n_rungs"])
    margin, seconds = values["margin"], values["seconds"]
    if name == "median":
        rungs = [round(budget * k / n_rungs) for k in range(2, n_rungs + 1)]
        rungs = [r for r in rungs if r >= 1] or [budget]
        return ASHA(rungs, 2, population, direction, margin, seconds)
    factor = values["reduction_factor"]
    kind = Hyperband if name == "hyperband" else ASHA
    rungs = default_rungs(budget, factor, n_rungs)
    return kind(rungs, factor, population, direction, margin, seconds)


def make_pareto_scheduler(spec: SearchSpec, others: FurtherObjectives) -> Scheduler:
    """Return the scheduler of a search with several objectives (`against.check` has passed)."""
    if spec.scheduler == "none":
        return NoScheduler()
    options = check_options(spec.scheduler, spec.scheduler_options)
    factor = options["reduction_factor"]
    rungs = default_rungs(spec.budget, factor, options["n_rungs"])
    return ParetoASHA(rungs, factor, options["min_population"], options["margin"], others)


def rungs_of(spec: SearchSpec) -> list[int]:
    """Return the env_steps at which the scheduler compares trials, the budget last.

    Raises:
        UserError: there is no such scheduler or option.
    """
    if spec.scheduler in POPULATIONS:
        return [*pauses(spec), spec.budget]
    scheduler = make_scheduler(spec.scheduler, spec.budget, spec.scheduler_options)
    return [rung.budget for rung in scheduler.table()]


def check_population(
    spec: SearchSpec, space: Space, config_class: type[Any], n_starts: int
) -> None:
    """Find the mistakes that would show up only after a while.

    Args:
        spec: the search
        space: what is searched
        config_class: of the agent's configurations
        n_starts: trials that are points of comparison

    Raises:
        UserError: no population can be trained so.
    """
    options = check_options(spec.scheduler, spec.scheduler_options)
    if spec.agent.startswith(RLLIB):
        raise UserError(
            f"scheduler {spec.scheduler!r} changes hyperparameters while an agent trains, which "
            "RLlib's can't do here; take asha, hyperband, median or none."
        )
    if parse_seeds(spec.seeds) != (False, 1):
        raise UserError(
            f"scheduler {spec.scheduler!r} trains each member on one seed; leave out --seeds, or "
            "take asha."
        )
    pauses(spec)
    make_explorer(spec, space, config_class)
    if members(options, spec.trials) < n_starts + 2:
        others = "" if n_starts == 1 else f" and {n_starts - 1} known-good settings"
        raise UserError(
            f"a population of {spec.trials} is too small: the defaults{others} belong to it and "
            f"are never changed, and at least 2 others are needed; give --trials {n_starts + 2} or "
            "more."
        )


def make_explorer(spec: SearchSpec, space: Space, config_class: type[Any]) -> Explorer:
    """Return what changes the configurations of a search."""
    from rltune.schedulers.pb2 import PB2Explorer

    around = [name for name in space.dimensions if is_surrounding(name)]
    if around:
        raise UserError(
            f"{spec.scheduler} changes what an agent trains with on the way, and {around[0]} can't "
            "change; fix it, or take --scheduler asha."
        )
    resample = check_options(spec.scheduler, spec.scheduler_options)["resample"]
    kind = PB2Explorer if spec.scheduler == "pb2" else Explorer
    return kind(space, hyperparameters(config_class), resample)


def make_population(
    spec: SearchSpec, space: Space, config_class: type[Any], study: SearchStudy, run: RunDir
) -> PBT:
    """Return the scheduler of a search that is "pbt" or "pb2".

    Raises:
        UserError: an option is wrong, or the space has nothing that can change.
    """
    options = check_options(spec.scheduler, spec.scheduler_options)
    members(options, spec.trials)
    return PBT(
        study,
        pauses(spec),
        spec.budget,
        make_explorer(spec, space, config_class),
        run.checkpoint,
        seed=spec.seed,
        quantile=options["quantile"],
    )
