"""The protocol `Trainer`: what a search and `rltune train` need of whatever trains an agent.

rltune's own agents (`rltune.agents.Agent`), RLlib's algorithms and several environments at once
have it alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rltune.agents.eval_modes import GREEDY
from rltune.agents.loop.controls import Controls

if TYPE_CHECKING:
    import gymnasium
    from rltune.agents.loop.results import Chunk, Evaluation
    from typing_extensions import Self


class Trainer(Protocol):
    """An agent that can be trained, evaluated, saved and continued; see `rltune.agents.Agent`.

    Args:
        algorithm: its name
        env: an environment, or several
        config: hyperparameters; absent ones have their defaults
        total_timesteps: env_steps of the whole training
        seed: of everything that is drawn
        device: "auto", "cpu", "cuda", ...
        controls: what ends a training early
        env_kwargs: arguments of the environment

    Attributes:
        extra: what the caller keeps in its checkpoints
    """

    env: str
    env_kwargs: dict[str, Any]
    extra: dict[str, Any]

    def __init__(
        self,
        algorithm: str,
        env: str,
        config: Mapping[str, object] | None = None,
        *,
        total_timesteps: int,
        seed: int = 0,
        device: str = "auto",
        controls: Controls | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
    ) -> None: ...

    @property
    def algorithm_spec(self) -> str:
        """What is trained, by name."""

    @property
    def config(self) -> Any:
        """Its configuration: a dataclass of hyperparameters."""

    @property
    def seed(self) -> int:
        """Its seed."""

    @property
    def controls(self) -> Controls:
        """What ends its training early."""

    @property
    def env_steps(self) -> int:
        """Decisions so far."""

    @property
    def total_timesteps(self) -> int:
        """The length of the whole training, in env_steps."""

    @total_timesteps.setter
    def total_timesteps(self, total: int) -> None: ...

    @property
    def stop_reason(self) -> str | None:
        """Why the controls ended the training; None if they did not."""

    @property
    def diverged(self) -> str | None:
        """What became infinite or NaN, and where; None if nothing did."""

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to train."""

    @property
    def replays(self) -> bool:
        """Whether its memory is more than a rollout that is learned from once."""

    def learn(self, until: int, deadline: float | None = None) -> Chunk:
        """Train until ``env_steps`` reaches ``until``, or the deadline (`time.monotonic`)."""

    def evaluate(
        self,
        episodes: int = 10,
        seed: int | None = None,
        max_steps: int | None = None,
        mode: str = GREEDY,
    ) -> Evaluation:
        """Run episodes on environments of their own; training is not touched."""

    def with_config(self, config: Mapping[str, object]) -> Trainer:
        """Return one that goes on here with other hyperparameters; UserError: it can't."""

    def load_weights(self, path: str | Path) -> None:
        """Begin with the networks of a checkpoint."""

    def go_on(self, controls: Controls) -> None:
        """Let other controls decide from now on."""

    def save(self, path: str | Path, *, memory: bool = True) -> None:
        """Write everything that going on needs, atomically."""

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        device: str = "auto",
        env: str | None = None,
        algorithm: str | None = None,
        acts_only: bool = False,
    ) -> Self:
        """Return what ``save`` wrote, ready to go on, or to act only."""

    def close(self) -> None:
        """Close its environments."""


class SingleTrainer(Trainer, Protocol):
    """One that is trained on a single environment, and acts there.

    Attributes:
        algorithm: the network that acts
        monitor: what the controls watch
        view: how its environment is shown to it
    """

    algorithm: Any
    monitor: Any

    @property
    def view(self) -> dict[str, Any]:
        """How its environment is shown to it."""

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """What it sees of one environment."""

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """What one environment takes."""

    def normalised(self, obs: Any) -> Any:
        """Return observations (n, ...) as training normalises them."""
