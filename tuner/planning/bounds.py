"""Upper bounds of what a search takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltune.agents.envs.suite import environments, shares
from rltune.backends.registry import backend_of
from rltune.schedulers.registry import rungs_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltune.runs.search_spec import SearchSpec
    from rltune.space.space import Space
    from rltune.study.records import StartConfig


def most_env_steps(spec: SearchSpec, space: Space, starts: Sequence[StartConfig]) -> int | None:
    """Return the env steps of all trials and re-trainings, at most; None: unknown.

    A training of ours ends with the step of all its environments that reaches the budget. Those
    that fill their last rollout whatever its length (RLlib's, and agents of a user's own that can't
    cut it) may go beyond.
    """
    if spec.trials is None or "n_envs" in space.derived:
        return None
    trainings = spec.trials * spec.seed_plan(rungs_of(spec)).most
    if spec.tournament:
        trainings += (spec.finalists + len(starts)) * spec.test_seeds
    each = max(_longest(spec, n_envs) for n_envs in _numbers_of_envs(space, starts))
    return trainings * each


def may_exceed(spec: SearchSpec) -> bool:
    """Whether a training may go beyond its budget by what is left of its last rollout."""
    return backend_of(spec.agent).may_exceed(spec.agent)


def _longest(spec: SearchSpec, n_envs: int) -> int:
    parts = shares(spec.budget, len(environments(spec.env)))
    return sum(-(-part // n_envs) * n_envs for part in parts)


def _numbers_of_envs(space: Space, starts: Sequence[StartConfig]) -> set[int]:
    """Return those that a configuration may have; of a range, all that lie in it."""
    found = {start.config.get("n_envs", 1) for start in starts}
    dimension = space.dimensions.get("n_envs")
    if dimension is None:
        return {*found, space.fixed.get("n_envs", 1)}
    if dimension.kind == "choice":
        return {*found, *dimension.choices}
    low, high = int(dimension.low), int(dimension.high)
    return {*found, *(n for n in range(low, high + 1) if dimension.contains(n))}
