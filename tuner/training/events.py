"""The events of a training, as its callbacks hear of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rltune.agents.loop.results import Evaluation
    from rltune.backends.base import Trainer
    from rltune.common.callbacks import Callbacks


class TrainingEvents:
    """Tells the callbacks of a training what happens; the `Watcher` of agents that have one.

    Args:
        callbacks: of the training

    Attributes:
        stops: whether a callback has asked for the end
    """

    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks
        self._wants_steps = callbacks.wants("on_step")
        self._wants_updates = callbacks.wants("on_update")
        self.stops = False

    def tell(self, event: str, about: object) -> None:
        """Call the method of that name."""
        self.stops |= self._callbacks.call(event, about)

    def unheard(self, agent: Trainer) -> str:
        """Return a sentence on what the callbacks will not hear of; empty: they hear of all."""
        if not self._wants_steps or hasattr(agent, "watch"):
            return ""
        return (
            "on_step is not called: only rltune's own agents on a single environment tell their "
            "steps"
        )

    def watch(self, agent: Trainer) -> bool:
        """Hear of an agent's steps and updates where a callback wants to; return whether it can."""
        watch = getattr(agent, "watch", None)
        if watch is None:
            return False
        watch(self if self._wants_steps or self._wants_updates else None)
        return True

    def stepped(self, env_steps: int) -> None:
        """See `rltune.agents.loop.training.Watcher`."""
        if self._wants_steps:
            self._callbacks.at(env_steps)
            self.tell("on_step", env_steps)

    def updated(self, env_steps: int, metrics: Mapping[str, float]) -> None:
        """See `rltune.agents.loop.training.Watcher`."""
        if self._wants_updates:
            self._callbacks.at(env_steps)
            self.tell("on_update", metrics)

    def evaluated(self, env_steps: int, evaluation: Evaluation) -> None:
        """Tell of an evaluation."""
        self._callbacks.at(env_steps)
        self.tell("on_evaluation", evaluation)

    def saved(self, env_steps: int, path: Path) -> None:
        """Tell of a checkpoint."""
        self._callbacks.at(env_steps)
        self.tell("on_checkpoint", path)
