"""Ray's processes of a fleet: an actor, and a replay server."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rltune.agents.distributed.actor import Actor, ActorSpec

if TYPE_CHECKING:
    from rltune.agents.distributed.evaluator import Found
    from rltune.agents.distributed.fragments import Fragment
    from rltune.agents.distributed.policies import Policy
    from rltune.agents.distributed.server import ServerSpec


class ActorProcess:
    """An actor in a process of its own, which one training after the other may use."""

    actor: Any = None

    def make(self, spec: ActorSpec, paths: Sequence[str]) -> int:
        """Make the actor: here, and not where the process begins, so that errors can be told.

        Returns:
            the number of the process

        Args:
            spec: of the actor
            paths: where the learner finds modules, such as a user's own environment
        """
        _find_modules(paths)
        self.actor = Actor(spec)
        return os.getpid()

    def collect(self, policy: Policy, rows: int) -> Fragment:
        """See `Actor.collect`."""
        fragment: Fragment = self.actor.collect(policy, rows)
        return fragment

    def state_dict(self) -> dict[str, Any]:
        """See `Actor.state_dict`."""
        state: dict[str, Any] = self.actor.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Actor.load_state_dict`."""
        self.actor.load_state_dict(state)

    def run(self, server: Any, rows: int) -> None:
        """Insert fragments of so many rows into a replay server until it has died."""
        import ray

        try:
            policy = ray.get(server.call.remote("newest"))
            while True:
                fragment = self.actor.collect(policy, rows)
                newer = ray.get(server.call.remote("insert", fragment))
                policy = newer or replace(policy, state=None, statistics={})
        except ray.exceptions.RayActorError:
            return  # the learner starts another server


class EvaluatorProcess:
    """An evaluation actor in a process of its own."""

    def __init__(self, spec: ActorSpec, paths: Sequence[str]) -> None:
        from rltune.agents.distributed.evaluator import Evaluator

        _find_modules(paths)
        self.evaluator = Evaluator(spec)

    def evaluate(self, policy: Policy) -> Found:
        """See `Evaluator.evaluate`."""
        return self.evaluator.evaluate(policy)


def _find_modules(paths: Sequence[str]) -> None:
    sys.path.extend(path for path in paths if path not in sys.path)


class ServerProcess:
    """A replay server in a process of its own, whose calls wait beside each other."""

    def __init__(self, spec: ServerSpec, paths: Sequence[str]) -> None:
        from rltune.agents.distributed.server import make_server

        _find_modules(paths)
        self.server = make_server(spec)

    def pid(self) -> int:
        """Return the number of the process."""
        return os.getpid()

    async def call(self, method: str, *args: Any) -> Any:
        """Return what a method of `ReplayServer` answers."""
        return await getattr(self.server, method)(*args)
