"""Episodes of evaluations: as many as a decision needs, and all of them for the record.

The evaluations that the value of a training at its end is made of run all their episodes. Of the
others, one that a rung looks at ends when the trial is clearly too low, and one that nothing
depends on has a few. All together take no more than a part of the training. That is counted in env
steps: by a clock, a search that was killed would not decide like one that was not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rltune.objectives.metrics import parse_objective

LEAST = 3  # episodes of an evaluation that something depends on, and most of any other
EVAL_SHARE = 0.2  # of a training's time, for its evaluations
# What an env step of an evaluation costs, in those of training: a half to a seventh of one with PPO
# on CartPole, Acrobot and Pendulum, less with agents that learn after every env step.
COST = 0.2
CLEAR = 4.0  # standard deviations


def is_too_low(
    returns: Sequence[float], needed: float, episodes: int, training: Sequence[float]
) -> bool:
    """Whether it is clear from its first episodes that an evaluation's mean will be too low.

    The mean of n episodes is off that of all by about ``s * sqrt(1 / n - 1 / all)``; it is clear
    where it misses by more than `CLEAR` times that. The training's returns, counted as one episode
    more, are in the deviation s: a few equal returns do not mean that all are equal.

    A trial that is clearly good enough runs all episodes nevertheless: its value stays, in the rung
    that later trials are compared with, and in its next values.

    Args:
        returns: of the first episodes
        needed: the mean that is high enough
        episodes: in all
        training: returns of the training episodes before
    """
    n, mean = len(returns), math.fsum(returns) / len(returns)
    squares = math.fsum((value - mean) ** 2 for value in returns)
    if len(training) > 1:
        squares, n = squares + float(np.var(training)), n + 1
    deviation = math.sqrt(squares / (n - 1) * (1 / len(returns) - 1 / episodes))
    return needed - mean > CLEAR * deviation


def affordable_steps(share: float, env_steps: int) -> float:
    """Return the env steps of evaluations that take such a part of a training's time.

    Args:
        share: of the time of training and evaluating, below 1
        env_steps: of the training
    """
    return share / (1 - share) / COST * env_steps


@dataclass(frozen=True)
class EvaluationPlan:
    """The number of episodes that each evaluation of a training has.

    Attributes:
        episodes: of an evaluation, at most
        points: env steps at which the training is evaluated, ascending; the last is its end
        stops: those of them at which it is judged, its end among them
        cutoffs: stop -> value that lets the trial go on there, as far as it was known when the
            trial began
        env_steps: that the evaluations may take in all, unless those for the record, or without a
            cutoff, take more
        objective: how evaluations become a value, see `metrics.py`
    """

    episodes: int
    points: list[int]
    stops: list[int]
    cutoffs: dict[int, float]
    env_steps: float
    objective: str

    def window(self, stop: int) -> list[int]:
        """Return the points whose evaluations the value at a stop is made of."""
        kind, n = parse_objective(self.objective)
        reached = [point for point in self.points if point <= stop]
        return reached[-n:] if kind == "last" else reached

    def most(self, point: int, spent: int, length: float | None) -> int:
        """Return the number of episodes that the evaluation at a point has, at most.

        It depends on nothing that the evaluation itself finds: that would favour long episodes.

        Args:
            point: in env steps
            spent: env steps of the training's evaluations so far
            length: expected of an episode; None: unknown
        """
        recorded = self.window(self.points[-1])
        decides = [stop for stop in self.stops if point in self.window(stop)]
        if point in recorded or not self.cutoffs.keys() >= set(decides):
            return self.episodes  # values that later ones are compared with
        least, most = (LEAST, self.episodes) if decides else (1, LEAST)
        within = 0.0
        if length:
            free = self.env_steps - len(recorded) * self.episodes * length
            within = (free * point / self.points[-1] - spent) // length
        return int(min(self.episodes, most, max(least, within)))

    def needed(self, point: int, earlier: Sequence[float]) -> float | None:
        """Return the mean return with which the trial goes on from a stop; None: not known.

        Args:
            point: in env steps
            earlier: the mean returns of the evaluations before
        """
        if point not in self.cutoffs or point in self.window(self.points[-1]):
            return None
        before = len(self.window(point)) - 1
        window = earlier[len(earlier) - before :]
        return self.cutoffs[point] * (before + 1) - math.fsum(window)
