"""The training loop: steps of the environments and updates of the algorithm in turn."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from rltune.agents.algorithm import Algorithm
from rltune.agents.envs.vector import Finished
from rltune.agents.loop.collector import Collector
from rltune.agents.loop.controls import Controls, Monitor
from rltune.agents.loop.results import Chunk, Episode
from rltune.agents.parallel.learners import Learners


class Beside(Protocol):
    """What learns beside the algorithm, behind each of its updates."""

    def update(self, env_steps: int, progress: float) -> dict[str, float]:
        """Learn; returns what is worth recording.

        Args:
            env_steps: of the training so far
            progress: the fraction of them that is done
        """


class Watcher(Protocol):
    """What is told of every step and update.

    Attributes:
        stops: whether the loop is to return as soon as it can
    """

    stops: bool

    def stepped(self, env_steps: int) -> None:
        """Hear of a step of all environments, and the updates behind it."""

    def updated(self, env_steps: int, metrics: Mapping[str, float]) -> None:
        """Hear of an update."""


@dataclass
class Progress:
    """The loop's counters."""

    env_steps: int = 0
    since_update: int = 0
    updates: int = 0
    diverged: str | None = None
    updates_from: int = 0  # env steps at which a memory that was not saved is filled again


@dataclass
class _Tally:
    """The episodes and the updates' metrics of one chunk."""

    episodes: list[Episode] = field(default_factory=list)
    values: dict[str, list[float]] = field(default_factory=dict)
    updates: int = 0

    def add(self, metrics: dict[str, float]) -> None:
        self.updates += 1
        for name, value in metrics.items():
            self.values.setdefault(name, []).append(value)


class TrainingLoop:
    """Collects steps, and lets the algorithm learn from them when an update is due.

    Args:
        algorithm: the policy that learns
        collector: steps the environments and fills the memory
        controls: when to stop early and when to lower the learning rate
        total_timesteps: the env steps at which the training ends
        beside: what learns behind each update of the algorithm

    Attributes:
        monitor: applies the controls
        progress: the counters
        learners: update the algorithm together; None: it does so alone
        watcher: is told of every step and update; None: nobody is
    """

    def __init__(
        self,
        algorithm: Algorithm[Any],
        collector: Collector,
        controls: Controls,
        total_timesteps: int,
        beside: Sequence[Beside] = (),
    ) -> None:
        self.algorithm, self.collector, self.beside = algorithm, collector, beside
        self.memory = collector.memory
        self.learners: Learners | None = None
        self.watcher: Watcher | None = None
        self.total_timesteps = total_timesteps
        self.monitor = Monitor(controls)
        self.progress = Progress()
        self._until = total_timesteps

    def run(self, until: int, deadline: float | None = None) -> Chunk:
        """Train until ``env_steps`` reaches ``until``, or the clock ``deadline`` (Unix seconds)."""
        started = time.perf_counter()
        self._until = until
        tally = _Tally()
        self.collector.begin()
        while not self.is_done(until):
            self._step(tally)
            if self.watcher is not None:
                self.watcher.stepped(self.progress.env_steps)
                if self.watcher.stops:
                    break
            if deadline is not None and time.time() >= deadline:
                break
        return Chunk(
            env_steps=self.progress.env_steps,
            seconds=time.perf_counter() - started,
            values=tally.values,
            episodes=tally.episodes,
            mean_reward=self.monitor.mean_reward,
            best_reward=self.monitor.best_reward,
            stop_reason=self.monitor.stop_reason,
            diverged=self.progress.diverged,
            updates=tally.updates,
            engine=self.algorithm.engine,
        )

    def is_done(self, until: int) -> bool:
        """Tell whether nothing is left to do before ``until``, counted in env steps."""
        progress = self.progress
        if progress.diverged or self.monitor.stop_reason:
            return True
        if progress.env_steps < until:
            return False
        rollout_is_done = progress.since_update == 0 or not self.algorithm.on_policy
        return until < self.total_timesteps or rollout_is_done

    @property
    def due(self) -> int:
        """The env steps up to the next update, or to where `run` will return."""
        progress = self.progress
        update = self.algorithm.update_every - progress.since_update
        return max(1, min(update, min(self._until, self.total_timesteps) - progress.env_steps))

    def _step(self, tally: _Tally) -> None:
        """Do one step of all environments, and an update when it is time for one."""
        progress = self.progress
        step = self.collector.step()
        env_steps = int(np.count_nonzero(step.valid))
        progress.env_steps += env_steps
        # A rollout has a row for each environment, valid or not.
        progress.since_update += len(step.valid) if self.algorithm.on_policy else env_steps
        for finished in step.episodes:
            self._note(finished, tally)
        # Many environments must not mean fewer updates for each of their steps.
        while progress.since_update >= self.algorithm.update_every and not progress.diverged:
            progress.since_update -= self.algorithm.update_every
            self._update(tally)
        if progress.env_steps >= self.total_timesteps:
            self._end_rollout(tally)

    def _note(self, finished: Finished, tally: _Tally) -> None:
        env_steps = self.progress.env_steps
        self.monitor.episode(finished.episode_return, env_steps)
        tally.episodes.append(
            Episode(env_steps, finished.episode_return, finished.length, time.time())
        )

    def _end_rollout(self, tally: _Tally) -> None:
        """Learn from an unfinished rollout: no steps are left to fill it."""
        progress = self.progress
        end_rollout = getattr(self.memory, "end_rollout", None)
        if not self.algorithm.on_policy or progress.since_update == 0 or end_rollout is None:
            return
        if progress.diverged is None:
            end_rollout()
            progress.since_update = 0
            self._update(tally)

    def _update(self, tally: _Tally) -> None:
        progress = self.progress
        if progress.env_steps < progress.updates_from:
            return
        self.algorithm.learning_rate_factor = self.monitor.learning_rate_factor
        done = min(1.0, progress.env_steps / max(1, self.total_timesteps))
        metrics = (self.learners or self.algorithm).update(self.memory, done)
        for learner in self.beside:
            metrics = {**metrics, **learner.update(progress.env_steps, done)}
        progress.updates += 1
        broken = [name for name, value in metrics.items() if not math.isfinite(value)]
        if broken:
            progress.diverged = (
                f"non-finite {broken[0]} at {progress.env_steps:,} env_steps{_blame(self.memory)}"
            )
        else:
            tally.add(metrics)
            if self.watcher is not None:
                self.watcher.updated(progress.env_steps, metrics)

    def drop_rollout(self, update_every: int) -> None:
        """Forget the running rollout if it has ``update_every`` env steps or more."""
        if self.algorithm.on_policy and self.progress.since_update >= update_every:
            self.memory.interrupt()
            self.progress.since_update = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the counters and the state of the controls."""
        return {"progress": vars(self.progress), "monitor": self.monitor.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        self.progress = Progress(**state["progress"])
        if not isinstance(self.progress.env_steps, int):
            raise ValueError("env_steps are no number")
        self.monitor.load_state_dict(state["monitor"])

    def load_experience(self, state: Mapping[str, Any], learning_starts: int) -> None:
        """Take over the memory and where the environments stood.

        Args:
            state: of a checkpoint; its ``memory`` is None where it was not saved
            learning_starts: env steps that fill a new memory before the next update
        """
        progress = self.progress
        if state["memory"] is not None:
            self.memory.load_state_dict(state["memory"])
        elif self.algorithm.on_policy:
            progress.since_update = 0
        else:
            progress.updates_from = progress.env_steps + learning_starts
        # Where the environments begin new episodes, an unfinished rollout can't be continued.
        if not self.collector.replays and self.algorithm.on_policy:
            progress.since_update = 0
        self.collector.load_state_dict(state)


def _blame(memory: Any) -> str:
    """Return an addition to the message of a divergence that the environment caused.

    Looked for when a training has come to nothing: with every step, it would cost too much.
    """
    non_finite = getattr(memory, "non_finite", None)  # a user's own memory may not know
    bad = non_finite() if non_finite else []
    return f": the environment gave {' and '.join(bad)} with NaN or infinity in it" if bad else ""
