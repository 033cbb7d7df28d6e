"""The request of a search: what was asked for, made complete before it is a `SearchSpec`."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rltune.agents.config import config_dict, hyperparameters, make_config
from rltune.agents.envs.suite import completed
from rltune.agents.errors import UserError
from rltune.backends.names import METRIC_NAME
from rltune.objectives.episodes import EVAL_SHARE, affordable_steps
from rltune.objectives.metrics import DEFAULT, parse_objective
from rltune.planning.evaluations import SHARE, affordable, explained, longest_episode
from rltune.runs.directory import find_run
from rltune.runs.search_options import DEFAULT_TRIALS, SearchOptions
from rltune.space import surroundings
from rltune.space.space import Space

if TYPE_CHECKING:
    from rltune.search.space_choice import Choice
    from rltune.study.records import StartConfig

DEFAULTS = "default"
PORTFOLIO_SHARE = 1 / 3  # of the trials, at most


def starts(space: Space, env: str, config_class: type[Any]) -> list[StartConfig]:
    """Return the first trials: the portfolio, the agent's defaults, the known-good settings.

    The portfolio brings a good trial soonest: it is chosen for what it gains for its cost. Members
    that would learn nothing within the budget are left out. In the defaults, fixed values take the
    place of the agent's, and derived values follow them.
    """
    from rltune.backends.registry import learns_nothing
    from rltune.study.records import StartConfig

    around = surroundings.defaults(space, env)
    portfolio, known_good = (
        [
            (f"{part}:{i}", space.resolve({**around, **start.values}))
            for i, start in enumerate(space.starts_for(env, part))
        ]
        for part in ("portfolio", "start")
    )
    own = [(DEFAULTS, space.resolve(around))]
    if not getattr(config_class, "has_defaults", True):  # a function has what the space says
        own = []
    known = [*portfolio, *own, *known_good]
    found = [StartConfig(origin, full_config(config_class, values)) for origin, values in known]
    return [
        start
        for start in found
        if not start.origin.startswith("portfolio")
        or space.budget is None
        or not learns_nothing(start.config, env, space.budget)
    ]


def defaults_among(starts: Sequence[StartConfig]) -> StartConfig:
    """Return the start with the agent's defaults; where it has none, the first known-good one."""
    from rltune.study.records import StartConfig, is_reference

    ordered = sorted(starts, key=lambda start: start.origin != DEFAULTS)
    references = (start for start in ordered if is_reference(start.origin))
    return next(references, StartConfig(DEFAULTS, {}))


def with_portfolio(space: Space, env: str, trials: int | None, wanted: bool) -> Space:
    """Return the space with as much of its portfolio as a search begins with.

    Args:
        space: what is searched
        env: the environment
        trials: of the search; None: as many as there is time for
        wanted: whether the search begins with it at all
    """
    members = space.starts_for(env, "portfolio") if wanted else []
    if isinstance(trials, int):  # of another type, `SearchSpec` says what is wrong
        members = members[: int(PORTFOLIO_SHARE * trials)]
    return replace(
        space, starts=tuple(s for s in space.starts if s.part == "start" or s in members)
    )


def full_config(config_class: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return every hyperparameter of the agent: ``values`` where given, else its defaults.

    Values of the agent's surroundings are kept where they are given. Derived values that are no
    hyperparameters are left out: they only serve constraints.
    """
    known = hyperparameters(config_class)
    own = config_dict(make_config(config_class, {k: v for k, v in values.items() if k in known}))
    own = {name: value for name, value in own.items() if value is not None}  # without a default
    return {**own, **{k: v for k, v in values.items() if surroundings.is_surrounding(k)}}


def run_paths(runs: Sequence[str | os.PathLike[str]] | str | os.PathLike[str]) -> list[str]:
    """Return the run directories as absolute paths: a resume may be called from elsewhere."""
    several = [runs] if isinstance(runs, (str, os.PathLike)) else runs
    return [str(find_run(run).absolute()) for run in several]


def number_of_trials(trials: int | None, options: Mapping[str, Any]) -> int | None:
    """Return the number of trials: the size of a population, or None where the time decides."""
    from rltune.schedulers.pbt import members
    from rltune.schedulers.registry import is_population

    if is_population(options.get("scheduler")):
        return members(options.get("scheduler_options", {}), trials)
    if trials is None and options.get("time_limit") is None:
        return DEFAULT_TRIALS
    return trials


def env_and_budget(choice: Choice, budget: float | None) -> tuple[str, int]:
    """Return the environment and the whole budget of a trial, in env steps.

    Raises:
        UserError: neither the caller nor the space says which, or the budget is no number.
    """
    if choice.env is None:
        raise UserError("which environment? Give --env ID, or env: in the space file.")
    budget = budget if budget is not None else choice.space.budget
    if budget is None:
        raise UserError("how long is a trial? Give --budget STEPS, or budget: in the space.")
    return completed(choice.env), _whole(budget)


def spread_evaluations(options: dict[str, Any], env: str, budget: int) -> str:
    """Add the evaluations and their episodes to the options where none is given.

    Returns:
        a sentence for the user where they differ from the usual ones or take long, else ""
    """
    from rltune.schedulers.registry import is_population

    if METRIC_NAME in (options.get("env_kwargs") or {}):
        return ""  # code of the user's own reports values, whatever they cost
    longest = longest_episode(env, options.get("env_kwargs"))
    usual = SearchOptions.evaluations, SearchOptions.eval_episodes
    share, recorded = SHARE, None
    if not options.keys() & {"evaluations", "eval_episodes"}:
        population = is_population(options.get("scheduler"))  # decides, and pauses, there
        part = options.setdefault("eval_share", None if population else EVAL_SHARE)
        if isinstance(part, (int, float)) and 0 < part < 1:  # else `SearchSpec` says what is wrong
            share = affordable_steps(part, 1)
            kind, n = parse_objective(options.get("objective", DEFAULT))
            recorded = n if kind == "last" else None
        evaluations, episodes = affordable(budget, longest, *usual, share=share, recorded=recorded)
        if population:
            evaluations = SearchOptions.evaluations
        options.update(evaluations=evaluations, eval_episodes=episodes)
    now = options.get("evaluations", usual[0]), options.get("eval_episodes", usual[1])
    return explained(budget, longest, now, usual, share)


def check_paths(space: object, name: object, storage_path: object) -> None:
    """Raise UserError for arguments of the wrong type; whether a place exists is seen later."""
    if space is not None and not isinstance(space, (Mapping, str, os.PathLike)):
        raise UserError(f"space must be a dict, a path, or a name that ships, not {space!r:.80}.")
    if name is not None and not isinstance(name, str):
        raise UserError(f"name must be a text, not {name!r:.80}.")
    if not isinstance(storage_path, (str, os.PathLike)):
        raise UserError(f"storage_path must be a folder or a URI, not {storage_path!r:.80}.")


def _whole(budget: Any) -> int:
    """Return env steps such as 5e4 as a whole number. UserError: it is no finite number."""
    if not isinstance(budget, (int, float)) or not math.isfinite(budget):
        raise UserError(f"budget must be a whole number, not {budget!r:.80}.")
    return int(budget)


def written_out(space: Space, config_class: type[Any]) -> Space:
    """Return the space with the agent's defaults, so that a configuration stays what it is."""
    defaults = full_config(config_class, space.fixed)
    varied = {*space.dimensions, *space.derived}
    fixed = {name: value for name, value in defaults.items() if name not in varied}
    return replace(space, fixed=fixed)
