"""Fleets: what runs the actors of a training, wherever they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from rltune.agents.distributed.actor import Actor, ActorSpec
from rltune.agents.distributed.evaluator import Evaluator, Found
from rltune.agents.distributed.fragments import Fragment
from rltune.agents.distributed.policies import Policy
from rltune.agents.distributed.server import ServerSpec


class Fleet(Protocol):
    """The actors of one training.

    An actor that dies is replaced by one that begins new episodes; what happened stands in
    ``notes`` until it is taken from there. ``saved`` is the training's last checkpoint.
    """

    notes: list[str]
    saved: Path | None

    def start(self, specs: Sequence[ActorSpec]) -> None:
        """Start an actor for each specification.

        Raises:
            UserError: what it says can't be made.
        """

    def collect(self, policy: Policy, rows: int) -> list[Fragment]:
        """Let every actor take so many steps by a policy; wait for all, in the order of actors.

        Args:
            policy: to act by
            rows: steps of each environment
        """

    def states(self) -> list[dict[str, Any]]:
        """Return where the actors stand, in their order."""

    def restore(self, states: Sequence[dict[str, Any]]) -> None:
        """Let the actors take over what `states` gave."""

    def stream(self, spec: ServerSpec, rows: int) -> None:
        """Start a replay server, and let the actors insert fragments of so many rows, on and on."""

    def ask(self, method: str, *args: Any) -> Any:
        """Return what a method of the replay server answers.

        A server that died is replaced by one with the memory of the last checkpoint, and asked
        again.

        Raises:
            Exception: whatever an environment raised in an actor
        """

    def begin(self, method: str, *args: Any) -> Any:
        """Ask the replay server, and return a token at once."""

    def finish(self, token: Any) -> Any:
        """Wait for the answer that `begin` asked for; as `ask`."""

    @property
    def evaluates(self) -> bool:
        """Whether an evaluation is under way."""

    def evaluate(self, policy: Policy) -> None:
        """Let the evaluation actor begin with a policy; the first call starts it."""

    def evaluated(self) -> Found | None:
        """Return what the evaluation actor has found since the last call."""

    def close(self) -> None:
        """End the actors."""


class LocalFleet:
    """Actors in this process, one after the other, in lock-step alone: for tests."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.saved: Path | None = None
        self.actors: list[Actor] = []
        self._evaluator: Evaluator | None = None
        self._found: Found | None = None

    def start(self, specs: Sequence[ActorSpec]) -> None:
        """Make the actors."""
        self.actors = [Actor(spec) for spec in specs]

    def collect(self, policy: Policy, rows: int) -> list[Fragment]:
        """Let one actor after the other take its steps."""
        return [actor.collect(policy, rows) for actor in self.actors]

    def states(self) -> list[dict[str, Any]]:
        """Return where the actors stand."""
        return [actor.state_dict() for actor in self.actors]

    def restore(self, states: Sequence[dict[str, Any]]) -> None:
        """Let the actors take over what `states` gave."""
        for actor, state in zip(self.actors, states, strict=True):
            actor.load_state_dict(state)

    def _refuse(self, *_: Any) -> Any:
        raise NotImplementedError("actors in one process can't run beside the learner")

    stream = ask = begin = finish = _refuse
    evaluates = False

    def evaluate(self, policy: Policy) -> None:
        """Evaluate a policy, here and now."""
        self._evaluator = self._evaluator or Evaluator(self.actors[0].spec)
        self._found = self._evaluator.evaluate(policy)

    def evaluated(self) -> Found | None:
        """Return what the last evaluation has found, once."""
        found, self._found = self._found, None
        return found

    def close(self) -> None:
        """Close the actors' environments."""
        for actor in self.actors:
            actor.close()
