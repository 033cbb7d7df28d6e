"""Backends: the base class of the kinds of things that train agents, and the protocol `Trainer`.

A `Backend` says what one kind can do and makes its trainers; a `Trainer` is what a search and
`rltune train` need of an agent. rltune's own agents, RLlib's and Stable-Baselines3's algorithms,
and several environments at once are such kinds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rltune.agents.engines import AUTO, ENGINES
from rltune.agents.errors import UserError
from rltune.agents.eval_modes import EVAL_MODES, GREEDY
from rltune.agents.loop.controls import Controls
from rltune.backends.names import EXPLORES, NO_WEIGHTS

if TYPE_CHECKING:
    import gymnasium
    from rltune.agents.loop.results import Chunk, Evaluation
    from rltune.space.core import SpaceCore
    from typing_extensions import Self


class KnownGood(NamedTuple):
    """Settings that are known to be good; ``env_steps`` of the training, if they say it."""

    config: dict[str, Any]
    env_steps: int | None


class Trainer(Protocol):
    """An agent that can be trained, evaluated, saved and continued; see `rltune.agents.Agent`.

    Args:
        algorithm: its name
        env: an environment, or several
        config: hyperparameters; absent ones have their defaults
        total_timesteps: env steps of the whole training
        seed: of everything that is drawn
        device: "auto", "cpu", "cuda", ...
        engine: as in `rltune.agents.Agent`
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
        engine: str = AUTO,
    ) -> None: ...

    @property
    def algorithm_spec(self) -> str:
        """The name of the algorithm."""

    @property
    def config(self) -> Any:
        """Its configuration: a dataclass of hyperparameters."""

    @property
    def engine(self) -> str:
        """What computes: "torch" or "numpy"."""

    @property
    def seed(self) -> int:
        """Its seed."""

    @property
    def controls(self) -> Controls:
        """The controls that end its training early."""

    @property
    def env_steps(self) -> int:
        """Decisions so far."""

    @property
    def total_timesteps(self) -> int:
        """The length of the whole training, in env steps."""

    @total_timesteps.setter
    def total_timesteps(self, total: int) -> None: ...

    @property
    def stop_reason(self) -> str | None:
        """The reason why the controls ended the training; None if they did not."""

    @property
    def diverged(self) -> str | None:
        """A text on the value that became infinite or NaN; None if none did."""

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
        *,
        first: int = 0,
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
        """Return the agent that ``save`` wrote, ready to go on, or to act only."""

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
        """The settings with which its environment is shown to it."""

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """The space of its observations, of one environment."""

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """The space of its actions, of one environment."""

    def normalised(self, obs: Any) -> Any:
        """Return observations (n, ...) as training normalises them."""


class Backend(ABC):
    """One kind of thing that trains agents.

    A new one is a subclass and an entry in `single.py`.

    Attributes:
        name: in messages
        prefix: of its agents' names, such as "rllib:"; rltune's own have none
        starts_from_weights: whether a training can begin with the networks of a checkpoint
        eval_modes: in which its agents can be evaluated
        engines: that its agents know
        changes_hyperparameters: whether they can change in a training that has begun
        resumes_exactly: whether a resumed training is bit-equal to one that was never stopped
        own_code: whether it runs trainings of the user's own, whose hyperparameters the space names
    """

    name: str
    prefix: str
    starts_from_weights: bool = True
    eval_modes: Sequence[str] = EVAL_MODES
    engines: Sequence[str] = ENGINES
    changes_hyperparameters: bool = True
    resumes_exactly: bool = True
    own_code: bool = False

    @abstractmethod
    def agents(self) -> list[str]:
        """Return the names of its agents that are known without importing a user's code."""

    @abstractmethod
    def config_class(self, agent: str) -> type[Any]:
        """Return the class of an agent's configurations: a dataclass of hyperparameters.

        Raises:
            UserError: there is no such agent, or it can't be imported, or it is none.
        """

    def config_class_in(
        self, agent: str, space: SpaceCore | None, more: Iterable[str] = ()
    ) -> type[Any]:
        """Return the class of an agent's configurations in a search, see `config_class`.

        Args:
            agent: its name
            space: what is searched; None: it is made of the agent's hyperparameters
            more: names of further dimensions
        """
        return self.config_class(agent)

    @abstractmethod
    def trainer(self, agent: str) -> type[Trainer]:
        """Return the class that trains an agent."""

    @abstractmethod
    def check_fit(
        self,
        agent: str,
        env: str,
        configs: Sequence[Mapping[str, Any]],
        env_kwargs: Mapping[str, Any],
        *,
        has_data: bool,
    ) -> None:
        """Raise `UserError` when an agent can't be trained on an environment, before it is tried.

        ``has_data`` says whether recorded data that it learns from lie on this machine.
        """

    def check_start(self, agent: str, eval_mode: str, weights: str | None, engine: str) -> None:
        """Raise `UserError` for weights, a mode of evaluation or an engine that it does without."""
        if weights is not None and not self.starts_from_weights:
            raise UserError(f"{agent} {NO_WEIGHTS}")
        if eval_mode not in self.eval_modes:
            raise UserError(f"{agent} can only be evaluated greedily: {EXPLORES}")
        if engine not in self.engines:
            raise UserError(f"{agent} computes with PyTorch alone; leave out --engine {engine}.")

    def check_controls(self, controls: Controls, env_kwargs: Mapping[str, Any] | None) -> None:
        """Raise `UserError` for what its trainings can't have."""
        return

    def command(
        self,
        agent: str,
        env: str,
        config: Mapping[str, Any],
        *,
        env_kwargs: Mapping[str, Any],
        budget: int,
        seed: int,
    ) -> str | None:
        """Return the command that trains a configuration; None: `rltune train` does."""
        return None

    def zoo_settings(self, agent: str, env: str, file: str | Path) -> KnownGood:
        """Return the settings for an environment in a file of rl-zoo3's.

        Raises:
            UserError: they are for agents of Stable-Baselines3, or something in them is wrong.
        """
        raise UserError(f"--zoo is for agents such as sb3:PPO; leave it out with {agent}.")

    def is_own(self, agent: str) -> bool:
        """Whether an agent is ``module:Class`` of the user's own."""
        return False

    def needs_data(self, agent: str) -> bool:
        """Whether an agent learns from recorded data alone, which a file has to give."""
        return False

    def may_exceed(self, agent: str) -> bool:
        """Whether a training may go beyond its budget by what is left of its last rollout."""
        return True
