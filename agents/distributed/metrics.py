"""Metrics of actors: how fast each is, how busy, and how old the policies are that act."""

from __future__ import annotations

import time

from rltune.agents.distributed.fragments import Usage

MOST_SHOWN = 16  # actors that have a metric of their own


class ActorMetrics:
    """Gathers what fragments say, from one report to the next.

    Args:
        n_actors: how many there are

    Attributes:
        cpu_seconds: of all actors so far
    """

    def __init__(self, n_actors: int) -> None:
        self.n_actors = n_actors
        self.cpu_seconds = 0.0
        self._memory = [0] * n_actors
        self._begin()

    def _begin(self) -> None:
        self._since = time.perf_counter()
        self._env_steps = [0] * self.n_actors
        self._seconds = 0.0
        self._lags: list[float] = []

    @property
    def memory(self) -> int:
        """The bytes that all actors have had at most."""
        return sum(self._memory)

    def note(self, actor: int, env_steps: int, usage: Usage, lag: int) -> None:
        """Take in a fragment.

        Args:
            actor: its number
            env_steps: of the fragment
            usage: what it took
            lag: updates since the one whose policy acted
        """
        self._env_steps[actor] += env_steps
        self._seconds += usage.seconds
        self.cpu_seconds += usage.cpu_seconds
        self._memory[actor] = usage.memory
        self._lags.append(lag)

    def take(self) -> dict[str, list[float]]:
        """Return the metrics since the last call; nothing where no fragment came."""
        if not self._lags:
            return {}
        elapsed = max(1e-9, time.perf_counter() - self._since)
        found = {
            "policy_lag": self._lags,
            "actors_busy": [min(1.0, self._seconds / (elapsed * self.n_actors))],
        }
        for i, env_steps in enumerate(self._env_steps[:MOST_SHOWN]):
            found[f"actor_{i}_env_steps_per_second"] = [env_steps / elapsed]
        self._begin()
        return found
