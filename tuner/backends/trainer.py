"""`BaseTrainer`: what trainers beside rltune's own agents share, also those of plug-ins."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rltune.agents.engines import TORCH
from rltune.agents.errors import UserError
from rltune.agents.loop import checkpoint
from rltune.agents.loop.controls import Controls, Monitor
from rltune.backends.names import NO_WEIGHTS

if TYPE_CHECKING:
    from typing_extensions import Self


class BaseTrainer(ABC):
    """The settings, the controls and the checkpoint file of a `Trainer` (`rltune.backends.base`).

    A subclass has a constructor with the arguments of `Trainer`, ``env_steps`` (an attribute will
    do), ``learn``, ``evaluate``, ``close``, and the two halves of its checkpoint: ``_state`` and
    ``_take_over``.

    Args:
        algorithm: its name
        env: its environment
        config: its configuration, made
        total_timesteps: the length of the whole training in env steps
        seed: of everything that is drawn
        controls: when to stop early
        env_kwargs: handed to the environment's constructor

    Attributes:
        acts_only: whether it was made to act, not to be trained
        engine: what computes
        observations: how it normalises them; None: it does not
        replays: whether its memory is more than a rollout that is learned from once
        diverged: a text on the value that became infinite or NaN; None if none did
        monitor: what the controls watch
        extra: what the caller keeps in its checkpoints
        view: the settings with which its environment is shown to it
    """

    acts_only = False
    engine: str = TORCH
    observations = None
    replays = False

    def __init__(
        self,
        algorithm: str,
        env: str,
        config: Any,
        *,
        total_timesteps: int,
        seed: int,
        controls: Controls | None,
        env_kwargs: Mapping[str, Any] | None,
    ) -> None:
        self.algorithm_spec = algorithm
        self.env = env
        self.env_kwargs = dict(env_kwargs or {})
        self.config = config
        self.total_timesteps = int(total_timesteps)
        self.seed = seed
        self.controls = controls or Controls()
        self.monitor = Monitor(self._watched(self.controls))
        self.diverged: str | None = None
        self.extra: dict[str, Any] = {}
        self.view: dict[str, Any] = {}

    @property
    @abstractmethod
    def env_steps(self) -> int:
        """Decisions so far."""

    @property
    def stop_reason(self) -> str | None:
        """The reason why the controls ended the training; None if they did not."""
        return self.monitor.stop_reason

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to train."""
        return self._is_done(self.total_timesteps)

    def _is_done(self, until: int) -> bool:
        return bool(self.diverged or self.stop_reason) or self.env_steps >= until

    def _watched(self, controls: Controls) -> Controls:
        """Return the controls as its monitor follows them."""
        return controls

    def go_on(self, controls: Controls) -> None:
        """Let other controls decide from now on."""
        if controls != self.controls:
            self.controls = controls
            self.monitor.go_on(self._watched(controls))

    def with_config(self, config: Mapping[str, object]) -> Self:
        """Return one that goes on here with other hyperparameters; UserError: it can't."""
        raise UserError(f"{self.algorithm_spec} can't change its hyperparameters as it trains")

    def load_weights(self, path: str | Path) -> None:
        """Begin with the networks of a checkpoint; UserError: it can't."""
        raise UserError(f"{self.algorithm_spec} {NO_WEIGHTS}")

    def normalised(self, obs: Any) -> Any:
        """Return observations (n, ...) as training normalises them."""
        return obs

    # --------------------------------------------------------------------------------- checkpoints

    @abstractmethod
    def _state(self, *, memory: bool) -> dict[str, Any]:
        """Return what has been learned, and with ``memory`` the replay: tensors, plain Python."""

    @abstractmethod
    def _take_over(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; whatever is raised becomes a `UserError`: it does not fit."""

    @classmethod
    def _arguments(cls, state: Mapping[str, Any], acts_only: bool) -> dict[str, Any]:
        """Return further arguments of its constructor, to go on from a state."""
        return {}

    def save(self, path: str | Path, *, memory: bool = True) -> None:
        """Write everything that going on needs, atomically; ``memory``: the replay, too."""
        checkpoint.write(
            path,
            {
                **checkpoint.about(self),
                "env_steps": self.env_steps,
                "diverged": self.diverged,
                "monitor": self.monitor.state_dict(),
                **self._state(memory=memory),
            },
        )

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
        """Return the one that ``save`` wrote, ready to go on, or to act only.

        Args:
            path: the file
            device: see the constructor
            env, algorithm: refuse the file if it is of another one
            acts_only: it will act, and not be trained

        Raises:
            UserError: there is no such file, or it does not fit.
        """
        state = checkpoint.read(path, env=env, agent=algorithm)
        checkpoint.whole(state, "env_steps", path)
        more = {
            **checkpoint.setting(state, path),
            **cls._arguments(state, acts_only),
            "device": device,
        }
        made: Any = cls
        trainer: Self = made(state["agent"], state["env"], state["config"], **more)
        try:
            with checkpoint.fitting(path, state["agent"], state["env"]):
                trainer.extra = state["extra"]
                trainer.diverged = state["diverged"]
                trainer.monitor.load_state_dict(state["monitor"])
                trainer._take_over(state)
        except UserError:
            trainer.close()
            raise
        return trainer

    @abstractmethod
    def close(self) -> None:
        """Close what it has opened."""
