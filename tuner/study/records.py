"""Records of trials, and their order: which of two trials is better."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rltune.stats.pareto import front, spread

# The attribute of a trial that says when it was proposed, if that was before it began.
PROPOSED_AT = "proposed_at"


@dataclass(frozen=True)
class StartConfig:
    """A configuration to try first: the full configuration, exactly as it will be trained."""

    origin: str  # "default", "start:0", ...
    config: dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """A trial to run."""

    number: int
    config: dict[str, Any]
    origin: str  # a start's, or "sampler"
    attrs: dict[str, Any] = field(default_factory=dict)  # what is kept beside


@dataclass(frozen=True)
class TrialRecord:
    """The record of a trial.

    Attributes:
        state: "WAITING", "RUNNING", "COMPLETE", "PRUNED" or "FAIL"
        value: objective of a complete trial; the last intermediate value of a pruned one
        intermediate: env_steps -> value
        attrs: what was told beside the value; "proposal" is the source of its proposal, "also" what
            other starts have the same configuration
        started, finished: Unix seconds
        others: the values of the other objectives, where there are some
        other_intermediate: env_steps -> those values
    """

    number: int
    state: str
    reason: str
    origin: str
    config: dict[str, Any]
    hash: str
    value: float | None
    intermediate: dict[int, float]
    attrs: dict[str, Any]
    started: float | None
    finished: float | None
    others: tuple[float, ...] = ()
    other_intermediate: dict[int, tuple[float, ...]] = field(default_factory=dict)

    @property
    def values(self) -> tuple[float, ...] | None:
        """The value of every objective, the first one first."""
        return None if self.value is None else (self.value, *self.others)

    @property
    def objective_mean(self) -> float | None:
        """The mean of the first objective over all evaluations, where it is known."""
        mean: float | None = self.attrs.get("objective_mean")
        return mean

    @property
    def origins(self) -> tuple[str, ...]:
        """Its origin, and those of the starts with the same configuration."""
        return (self.origin, *self.attrs.get("also", ()))


@dataclass(frozen=True)
class Proposal:
    """A configuration for the next trial.

    Attributes:
        config: the whole configuration, with fixed and derived values
        values: of the active dimensions
        source: the sampler's name, "warm start", or "random" while there is too little to learn
            from
        system_attrs: what the sampler has to find again beside the trial
    """

    config: dict[str, Any]
    values: dict[str, Any]
    source: str
    system_attrs: dict[str, Any]


def quality(
    values: Sequence[float | None], mean: float | None, minimize: Sequence[bool] = (False,)
) -> tuple[float, ...]:
    """Return the sort key of trials with the same, whole budget: the greater, the better.

    Args:
        values: of each objective, the first one decides; None: unknown, which is the worst
        mean: of the first objective over all evaluations; it decides among ties
        minimize: whether lower is better, of each objective
    """
    known = [*zip(values, minimize, strict=True), (mean, minimize[0])]
    return tuple(-math.inf if v is None else -v if lower else v for v, lower in known)


def merit(state: str, value: float, env_steps: float = 0) -> tuple[int, float, float]:
    """Return the sort key of trials that got differently far: the greater, the better.

    A trial that got further is better, as to Optuna's TPE: the scheduler stopped the worse half of
    its rung. Of those that got equally far, the value decides; a failed one is the worst.

    Args:
        state: "COMPLETE", "PRUNED" or "FAIL"
        value: the greater, the better
        env_steps: of a pruned trial, at its value
    """
    if state == "COMPLETE":
        return 2, 0, value
    return (1, env_steps, value) if state == "PRUNED" else (0, 0, 0)


def is_reference(origin: str) -> bool:
    """Whether a trial is a point of comparison: the defaults or known-good settings."""
    return origin == "default" or origin.startswith("start")


def pareto_front(trials: Iterable[TrialRecord], minimize: Sequence[bool]) -> list[TrialRecord]:
    """Return the trials with their whole budget that no other one dominates, far apart first."""
    complete = [t for t in trials if t.state == "COMPLETE" and t.values is not None]
    best = [complete[i] for i in front([t.values or () for t in complete], minimize)]
    return [best[i] for i in spread([t.values or () for t in best], minimize)]
