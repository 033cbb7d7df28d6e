"""CartPole in a process that is killed once: an actor's, or a learner's."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import gymnasium


class Mortal(gymnasium.Wrapper):  # type: ignore[misc, type-arg]
    """Notes its node and its kind of process, and kills it once: an actor's after some episodes.

    Args:
        folder: of the notes
        victim: "actor", "learner", or "" for none
    """

    def __init__(self, folder: str, victim: str = "") -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self.folder, self.steps = Path(folder), 0
        self.kind = kind = "learner" if "rltune.execution.trainable" in sys.modules else "actor"
        # A learner steps environments in evaluations alone.
        self.last = 40 if kind == "actor" else 5
        self.marker = self.folder / f"killed-{kind}" if kind == victim else None

    def step(self, action: Any) -> Any:
        import ray

        self.steps += 1
        if self.steps == 1 and ray.is_initialized():
            node = ray.get_runtime_context().get_node_id()
            (self.folder / f"{self.kind}-{node}").touch()
        if self.marker is not None and self.steps == self.last and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


def mortal(folder: str, victim: str = "") -> gymnasium.Env[Any, Any]:
    return Mortal(folder, victim)
