"""Results of training: episodes, a chunk of training, and an evaluation."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from rltune.agents.engines import TORCH


@dataclass(frozen=True)
class Episode:
    """A finished training episode; ``env_steps`` of the agent when it ended, ``time`` in Unix s."""

    env_steps: int
    episode_return: float
    length: int
    time: float

    def row(self) -> dict[str, Any]:
        """Return the columns of the episodes' table."""
        return {
            "env_steps": self.env_steps,
            "episode_return": self.episode_return,
            "length": self.length,
            "timestamp": self.time,
        }


@dataclass(frozen=True)
class Chunk:
    """The outcome of one call of ``learn``.

    ``values`` are those of each metric, one for each update that gave it; ``mean_reward`` is that
    of the last training episodes (`Controls.reward_buffer_size`); ``diverged`` says what became
    infinite or NaN; ``engine`` is what computed; ``notes`` are what a user should hear of.
    """

    env_steps: int
    seconds: float
    values: dict[str, list[float]]
    episodes: list[Episode]
    mean_reward: float | None
    best_reward: float | None
    stop_reason: str | None
    diverged: str | None
    updates: int = 0
    engine: str = TORCH
    notes: list[str] = field(default_factory=list)

    @classmethod
    def merged(cls, chunks: Sequence[Chunk]) -> Chunk:
        """Return consecutive chunks as the one that a single call would have given."""
        values: dict[str, list[float]] = {}
        for chunk in chunks:
            for name, found in chunk.values.items():
                values.setdefault(name, []).extend(found)
        return replace(
            chunks[-1],
            seconds=sum(chunk.seconds for chunk in chunks),
            values=values,
            episodes=[episode for chunk in chunks for episode in chunk.episodes],
            updates=sum(chunk.updates for chunk in chunks),
            notes=[note for chunk in chunks for note in chunk.notes],
        )

    @property
    def metrics(self) -> dict[str, float]:
        """The mean of each metric over the updates."""
        return {name: sum(values) / len(values) for name, values in self.values.items()}

    def row(self, iteration: int, since: int, **measured: float) -> dict[str, Any]:
        """Return the columns of the history.

        Args:
            iteration: its number within the training
            since: the env steps of the agent before the chunk
            measured: further columns: the training's seconds so far, the worker's memory
        """
        return {
            "iteration": iteration,
            "env_steps": self.env_steps,
            "step": self.env_steps,
            "mean_reward": self.mean_reward,
            "best_reward": self.best_reward,
            "episode_reward": self.episodes[-1].episode_return if self.episodes else None,
            **measured,
            "env_steps_per_second": (self.env_steps - since) / max(self.seconds, 1e-9),
            "timestamp": time.time(),
            "node": platform.node(),
            "engine": self.engine,
            **self.metrics,
        }


@dataclass(frozen=True)
class Evaluation:
    """Episodes of an evaluation: their undiscounted returns, lengths, and the seconds they took.

    ``successes`` are those of the episodes of which the environment says it; ``metrics`` are means
    of what else is known of them; ``cut`` is how many had no time limit and did not end.
    """

    returns: list[float]
    lengths: list[int]
    seconds: float
    successes: list[bool] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    cut: int = 0

    def and_then(self, more: Evaluation) -> Evaluation:
        """Return this evaluation with further episodes of the same policy."""
        n, m = len(self.returns), len(more.returns)
        return Evaluation(
            self.returns + more.returns,
            self.lengths + more.lengths,
            self.seconds + more.seconds,
            self.successes + more.successes,
            {name: (n * self.metrics[name] + m * more.metrics[name]) / (n + m)
             for name in self.metrics.keys() & more.metrics.keys()},
            self.cut + more.cut,
        )  # fmt: skip

    @property
    def mean(self) -> float:
        """The mean return."""
        return math.fsum(self.returns) / len(self.returns)

    @property
    def std(self) -> float:
        """The standard deviation of the returns."""
        return float(np.std(self.returns))

    @property
    def success_rate(self) -> float | None:
        """The part of the episodes that were a success; None: the environment does not say."""
        return sum(self.successes) / len(self.successes) if self.successes else None

    def row(self) -> dict[str, float]:
        """Return the columns of the history."""
        columns = {
            "eval_return": self.mean,
            "eval_std": self.std,
            "eval_episodes": len(self.returns),
            "eval_length": sum(self.lengths) / len(self.lengths),
        }
        if (rate := self.success_rate) is not None:
            columns["success_rate"] = rate
        if self.cut:
            columns["eval_cut"] = self.cut
        return {**columns, **self.metrics}
