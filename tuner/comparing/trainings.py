"""Records of trainings, as a comparison needs them, whatever they are read from."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rltune.agents.envs.suite import Scale
from rltune.objectives.metrics import objective_of

Array = npt.NDArray[np.float64]
EVALUATION = "eval_return"
TRAINING = "mean_reward"  # of training episodes, exploration included


@dataclass(frozen=True)
class Curve:
    """A metric over a training; all of shape (points,), ``seconds`` None where unknown."""

    env_steps: Array
    values: Array
    seconds: Array | None = None

    def until(self, env_steps: float | None) -> Curve:
        """Return the part up to there."""
        if env_steps is None:
            return self
        kept = self.env_steps <= env_steps
        seconds = None if self.seconds is None else self.seconds[kept]
        return Curve(self.env_steps[kept], self.values[kept], seconds)


@dataclass(frozen=True, kw_only=True)
class TrainingRecord:
    """The record of a training of one agent on one environment with one seed.

    Attributes:
        name: of its run or folder
        source: where it lies
        agent: its name where it is given no label
        env: with its arguments, where it has some
        scale: the returns that count as 0 and 1, where the run says it
        config: the agent's hyperparameters, with their schedule if any; None where unknown
        variant: distinguishes agents of the same name
        seed: None where unknown
        planned: env steps that it was to have, None where unknown
        reached: env steps that it had
        metric: of the curve: evaluations, or training episodes where there are none
        diverged: it ended in numbers that are none, or failed: the worst score there is
        finalists: the number that its configuration was the best of on these test seeds; 0: none
        tuned_for: the objective of its search, where it is not the usual one
        remark: a sentence that a comparison has to quote
    """

    name: str
    source: Path
    agent: str
    env: str
    curve: Curve
    metric: str
    scale: Scale | None = None
    config: Mapping[str, Any] | None = None
    variant: str = ""
    seed: int | None = None
    planned: int | None = None
    reached: int = 0
    diverged: bool = False
    finalists: int = 0
    tuned_for: str = ""
    remark: str = ""

    @property
    def identity(self) -> tuple[object, ...]:
        """The key that two records of the same training share."""
        if self.config is None or self.seed is None:
            return (self.source, self.name)
        agent = self.agent.removesuffix(" tuned").removesuffix(" defaults")
        return (agent, self.env, canonical(self.config), self.seed, self.planned)

    def score(self, objective: str, until: float | None = None) -> float:
        """Return the score that the training has reached; -inf if it diverged."""
        values = self.curve.until(until).values
        if self.diverged or not len(values):
            return -math.inf
        found = objective_of(values.tolist(), objective)
        return found if math.isfinite(found) else -math.inf


def canonical(config: Mapping[str, Any]) -> str:
    """Return the same text for the same configuration."""
    return json.dumps(dict(config), sort_keys=True, default=str)


def env_name(env: str, kwargs: Mapping[str, Any] | None) -> str:
    """Return the environment with its arguments: other arguments are another environment."""
    if not kwargs:
        return env
    return f"{env} ({', '.join(f'{name}={value}' for name, value in sorted(kwargs.items()))})"
