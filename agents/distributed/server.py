"""Replay server: actors insert fragments, the learner takes and samples, a limiter keeps step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from numpy.typing import NDArray
from rltune.agents.distributed.actor import ActorSpec, make_algorithm
from rltune.agents.distributed.fragments import Fragment, Usage
from rltune.agents.distributed.limiter import RateLimiter
from rltune.agents.distributed.policies import Policy
from rltune.agents.distributed.tables import QueueTable, ReplayTable, Table
from rltune.agents.envs.vector import Finished

LOG, REPLAY, ROLLOUTS = "log", "replay", "rollouts"  # the tables


@dataclass(frozen=True)
class ServerSpec:
    """What a replay server is made from.

    Attributes:
        actor: one of the actors; its memory is made for as many environments
        n_actors: how many there are
        error_buffer: env steps that may be inserted and not yet learned from
        replays: whether transitions are kept and sampled; otherwise, rollouts are queued
    """

    actor: ActorSpec
    n_actors: int
    error_buffer: int
    replays: bool


class Summary(NamedTuple):
    """A fragment without its observations: what the learner has to know of it."""

    actor: int
    version: int
    valid: NDArray[Any]
    episodes: list[list[Finished]]
    statistics: dict[str, Any]
    usage: Usage

    @classmethod
    def of(cls, fragment: Fragment) -> Summary:
        """Return what a fragment says."""
        valid, episodes = fragment.steps["valid"], fragment.episodes
        about = (fragment.statistics, fragment.usage)
        return cls(fragment.actor, fragment.version, valid, episodes, *about)


def make_server(spec: ServerSpec) -> ReplayServer:
    """Return an empty server."""
    # Nothing waits for samples: the learner takes what is there.
    limiter = RateLimiter(samples_per_insert=1, min_size=0, error_buffer=spec.error_buffer)
    if not spec.replays:
        return ReplayServer({ROLLOUTS: QueueTable(lambda fragment: fragment)}, limiter)
    replay = ReplayTable(_memory_maker(spec), spec.n_actors, spec.actor.seeds.algorithm)
    return ReplayServer({REPLAY: replay, LOG: QueueTable(Summary.of)}, limiter)


def _memory_maker(spec: ServerSpec) -> Callable[[], Any]:
    """Return a function that makes an actor's share of the memory."""
    config = dict(spec.actor.config)
    config["buffer_size"] = max(1, config["buffer_size"] // spec.n_actors)
    algorithm = make_algorithm(replace(spec.actor, config=config), replays=True)
    return lambda: algorithm.make_memory()


class ReplayServer:
    """Tables that several actors fill and one learner reads.

    All methods are called in one event loop. The items that its limiter counts are env steps:
    inserted, and learned from.

    Args:
        tables: by name; each takes in every fragment
        limiter: of the inserts, which wait for what the learner has learned
    """

    def __init__(self, tables: Mapping[str, Table], limiter: RateLimiter) -> None:
        self.tables, self.limiter = tables, limiter
        self.policy: Policy | None = None
        self._changed = asyncio.Condition()

    async def insert(self, fragment: Fragment) -> Policy | None:
        """Take in a fragment as soon as the limiter lets it; return a newer policy, if any."""
        n = max(1, fragment.env_steps)
        async with self._changed:
            await self._changed.wait_for(lambda: self.limiter.can_insert(n))
            self.limiter.inserts += n
            for table in self.tables.values():
                table.insert(fragment)
            self._changed.notify_all()
        policy = self.policy
        return policy if policy is not None and policy.version > fragment.version else None

    async def newest(self) -> Policy:
        """Return the newest policy; wait for the first one."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.policy is not None)
        assert self.policy is not None
        return self.policy

    async def publish(self, policy: Policy) -> None:
        """Take over a new policy for all actors."""
        async with self._changed:
            self.policy = policy
            self._changed.notify_all()

    async def take(self, table: str, least: int, most: int, learned: int) -> list[Any]:
        """Return the oldest items of a queue, and forget them; wait for ``least``.

        Args:
            table: its name
            least, most: how many
            learned: env steps that were learned from since the last call
        """
        queue = self.tables[table]
        assert isinstance(queue, QueueTable)
        async with self._changed:
            self.limiter.samples += learned
            self._changed.notify_all()
            await self._changed.wait_for(lambda: len(queue) >= least)
            return queue.take(most)

    async def sample(self, method: str, *args: Any) -> list[Any]:
        """Return minibatches, as soon as there is something to draw.

        Args:
            method: of the replay table
            args: its arguments
        """
        async with self._changed:
            await self._changed.wait_for(lambda: self._replay.can(method, *args))
        found: list[Any] = getattr(self._replay, method)(*args)
        return found

    async def set_errors(self, slot: NDArray[Any], errors: NDArray[Any]) -> None:
        """Take over errors; see `ReplayTable.set_errors`."""
        self._replay.set_errors(slot, errors)

    @property
    def _replay(self) -> ReplayTable:
        table = self.tables[REPLAY]
        assert isinstance(table, ReplayTable)
        return table

    async def nbytes(self) -> int:
        """Return the bytes of the replayed transitions' arrays, filled or not."""
        return self._replay.nbytes

    async def state_dict(self) -> dict[str, Any]:
        """Return the replayed transitions."""
        return self._replay.state_dict()

    async def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        self._replay.load_state_dict(state)
