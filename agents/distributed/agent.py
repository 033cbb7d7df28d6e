"""The agent whose experience is collected by actors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from rltune.agents.config import config_dict
from rltune.agents.distributed.actor import ActorSpec
from rltune.agents.distributed.fleet import Fleet, LocalFleet
from rltune.agents.distributed.policies import policy_of
from rltune.agents.distributed.rounds import RoundsCollector
from rltune.agents.distributed.server import ServerSpec
from rltune.agents.distributed.stream import QueueCollector, RemoteReplay, StreamCollector
from rltune.agents.errors import UserError
from rltune.agents.loop.agent import Agent
from rltune.agents.reward_signals import has_signals

if TYPE_CHECKING:
    from rltune.agents.algorithm import Algorithm
    from rltune.agents.loop.results import Chunk

MOST_ROWS = 64  # of a fragment for a replay server


class DistributedAgent(Agent):
    """An agent that has actors where its configuration says so; otherwise, it is as `Agent`.

    Attributes:
        fleet: what runs the actors
    """

    fleet: ClassVar[type[Fleet]] = LocalFleet
    _fleet: Fleet | None = None

    def _make_collection(self) -> tuple[Any, Any]:
        config: Any = self.config
        if not config.num_actors or self.acts_only:
            return super()._make_collection()
        lag = config.max_policy_lag
        check_actors(self.algorithm_spec, type(self.algorithm), config)
        self._fleet = fleet = self.fleet()
        specs = self._actor_specs(rates_actions=lag > 0 and self.algorithm.on_policy)
        fleet.start(specs)
        if lag and not self.algorithm.on_policy:
            return self._replayed(fleet, specs)
        memory: Any = self.algorithm.make_memory()
        collector = QueueCollector if lag else RoundsCollector
        if lag:
            memory.log_prob = np.zeros_like(memory.reward)
            buffer = lag * self.algorithm.update_every
            fleet.stream(ServerSpec(specs[0], len(specs), buffer, replays=False), config.n_steps)
        return memory, collector(
            fleet,
            len(specs),
            self.algorithm,
            memory,
            self.normalizers,
            replays=self._envs.replays and not lag,
        )

    def _replayed(self, fleet: Fleet, specs: list[ActorSpec]) -> tuple[Any, Any]:
        """Return a memory that a replay server holds, and what counts the steps in it."""
        lag = self.config.max_policy_lag
        buffer = lag * self.algorithm.update_every
        # Two fragments of each actor fit into the buffer, so that none waits for the learner.
        rows = min(MOST_ROWS, max(1, buffer // (2 * self.config.n_envs)))
        buffer = max(buffer, 2 * rows * self.config.n_envs)
        fleet.stream(ServerSpec(specs[0], len(specs), buffer, replays=True), rows)
        memory = RemoteReplay(fleet, self.algorithm.device)
        publish_every = max(1, lag // 4)
        collector = StreamCollector(
            fleet, self.algorithm, memory, self.normalizers, len(specs), publish_every
        )
        return memory, collector

    def _actor_specs(self, *, rates_actions: bool) -> list[ActorSpec]:
        n_actors = self.config.num_actors
        return [
            ActorSpec(
                self.algorithm_spec,
                self.env,
                self.env_kwargs,
                config_dict(self.config),
                self.seed,
                number,
                self.config.n_envs // n_actors,
                self.engine,
                rates_actions=rates_actions,
            )
            for number in range(n_actors)
        ]

    @property
    def cpu_elsewhere(self) -> float:
        """CPU seconds of the actors so far."""
        return self._collector.metrics.cpu_seconds if self._fleet is not None else 0.0

    @property
    def memory_elsewhere(self) -> int:
        """Bytes of the actors' processes, and of a replay server's but for what it replays."""
        if self._fleet is None:
            return 0
        actors: int = self._collector.metrics.memory
        server = actors // self.config.num_actors if self.config.max_policy_lag else 0
        return actors + server

    def learn(self, until: int, deadline: float | None = None) -> Chunk:
        """Train as `Agent.learn`; what happened to actors stands in the chunk's ``notes``."""
        if self._fleet is None:
            return super().learn(until, deadline)
        self._collector.loop = self._loop
        chunk = super().learn(until, deadline)
        notes, self._fleet.notes = self._fleet.notes, []
        values = {**chunk.values, **self._collector.metrics.take(), **self._evaluated()}
        return replace(chunk, notes=notes, values=values)

    def _evaluated(self) -> dict[str, list[float]]:
        """Return what the evaluation actor has found, and give it the newest policy."""
        if self._fleet is None or not self.config.evaluation_actor:
            return {}
        found = self._fleet.evaluated()
        if not self._fleet.evaluates:
            progress = self._loop.progress
            policy = policy_of(
                self.algorithm, self.normalizers, progress.updates, progress.env_steps, whole=False
            )
            self._fleet.evaluate(policy)
        if found is None:
            return {}
        return {
            "eval_actor_return": [found.mean_return],
            "eval_actor_env_steps": [found.env_steps],
        }

    def save(self, path: str | Path, *, memory: bool = True) -> None:
        """Save as `Agent.save`; a replay server that dies begins again with this memory."""
        super().save(path, memory=memory)
        if self._fleet is not None and memory:
            self._fleet.saved = Path(path)

    def close(self) -> None:
        """Close the environments, and end the actors."""
        super().close()
        if self._fleet is not None:
            self._fleet.close()


def check_actors(agent: str, algorithm: type[Algorithm[Any]], config: Any) -> None:
    """Raise `UserError` for what can't learn from actors, or from actors that run ahead.

    Args:
        agent: the name of the algorithm
        algorithm: its class
        config: its configuration
    """
    if not config.num_actors:
        return
    if algorithm.offline:
        raise UserError(f"{agent} steps no environment; leave num_actors out")
    if not config.max_policy_lag:
        return
    if not algorithm.tolerates_lag:
        raise UserError(f"{agent} learns from the policy that acted alone; give max_policy_lag 0")
    if has_signals(config):
        raise UserError("reward signals learn from what the learner holds; give max_policy_lag 0")
