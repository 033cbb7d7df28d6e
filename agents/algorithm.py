"""The algorithm interface: a class that acts, learns from a memory, and can be saved.

An algorithm knows no environment, no loop and no logger; `rltune.agents.loop.agent` runs it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.config import AgentConfig, C
from rltune.agents.engines import NUMPY, TORCH, check_engine
from rltune.agents.errors import NotStandardError, UserError
from rltune.agents.schedules import value_at
from rltune.agents.spaces import Spaces
from torch import Tensor

if TYPE_CHECKING:
    from typing_extensions import Unpack


class VectorStep(TypedDict):
    """One step of all environments, as memories take it; the first axis of every array is n_envs.

    ``next_obs`` is the true successor: the final observation where an episode ended. Rows that are
    not ``valid`` must never be learned from.
    """

    obs: NDArray[Any]
    action: NDArray[Any]
    reward: NDArray[Any]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    next_obs: NDArray[Any]
    valid: NDArray[np.bool_]


class Memory(Protocol):
    """The experience that the loop stores and that ``update`` learns from.

    A memory may have more; ours have all of it:

    * ``end_rollout()``, of rollouts: no further steps will come. The loop calls it before the last
      update, when the training's env steps are used up. Without it, the last rollout is filled
      beyond them.
    * ``non_finite() -> list[str]``: which of "an observation" and "a reward" hold NaN or infinity.
      The loop asks when a training has diverged, to say whether the environment is at fault.
    * ``nbytes``: the bytes of the arrays, for the estimate of a search's memory.
    """

    def add(self, **step: Unpack[VectorStep]) -> None:
        """Store one step of all environments, given by keywords."""

    def interrupt(self) -> None:
        """Note that new episodes begin although none has ended: drop an unfinished rollout."""

    def state_dict(self) -> dict[str, Any]:
        """Return the content as tensors and plain Python."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the content that ``state_dict`` gave."""


class Algorithm(ABC, Generic[C]):
    """The base of all agents.

    Attributes:
        Config: the configuration class
        on_policy: an update takes all steps since the last one, and a training ends with one
        offline: it learns from what its memory holds from the beginning, and no environment is
            stepped: each update stands for ``update_every`` env steps
        tolerates_lag: it can learn from what policies of earlier updates did
        update_every: env steps between two updates, set by the constructor
        state_size: numbers of the recurrent state, which `next_state` gives; 0: there is none
        learning_rate_factor: in `learning_rate_at`; the plateau rule lowers it
        kernel: computes in place of PyTorch; None: PyTorch does
        data_parallel: several learners can compute its updates (`rltune.agents.parallel`): what it
            learns from is divided by the ``shares`` of its learner
        NETWORKS: the parts of ``state_dict`` that are networks' weights, those that there are; the
            first of them acts
    """

    Config: ClassVar[type[AgentConfig]]
    on_policy: ClassVar[bool] = True
    offline: ClassVar[bool] = False
    tolerates_lag: ClassVar[bool] = False
    data_parallel: ClassVar[bool] = False
    update_every: int
    state_size: int = 0
    learning_rate_factor: float = 1.0
    kernel: Any = None
    NETWORKS: ClassVar[tuple[str, ...]] = ("nets", "target", "average")

    def __init__(self, config: C, spaces: Spaces, *, seed: int, device: str = "cpu") -> None:
        self.config = config
        self.spaces = spaces
        self.device = torch.device(device)
        self.generator = torch.Generator(device=self.device).manual_seed(seed)

    def make_kernel(self) -> Any:
        """Return what computes acting and updates in NumPy, as PyTorch would.

        It is asked of the class that has it: one below it may compute something else.

        Raises:
            NotStandardError: nothing does for this algorithm, network or device.
        """
        raise NotStandardError(type(self).__name__)

    def use_engine(self, engine: str) -> None:
        """Choose what computes, once and before anything is computed.

        Args:
            engine: "torch"; "numpy": a kernel; "auto": a kernel where there is one

        Raises:
            UserError: there is no such engine, or no kernel although one is asked for.
        """
        check_engine(engine)
        if engine == TORCH:
            return
        try:
            if "make_kernel" not in vars(type(self)):
                raise NotStandardError(type(self).__name__)
            self.kernel = self.make_kernel()
        except NotStandardError as error:
            if engine == NUMPY:
                raise UserError(
                    f"engine numpy has nothing for {error}; use auto or torch"
                ) from error

    @property
    def engine(self) -> str:
        """The engine that computes: "torch" or "numpy"."""
        return TORCH if self.kernel is None else NUMPY

    @abstractmethod
    def make_memory(self) -> Memory:
        """Return an empty memory of the kind that ``update`` reads."""

    @abstractmethod
    def act(self, obs: NDArray[Any], *, explore: bool) -> NDArray[Any]:
        """Return the raw (unclipped) actions for ``obs`` of shape (n, ...); greedy unless explore.

        Where the environment offers action masks, they stand in ``obs`` (`rltune.agents.spaces`).
        Without ``explore`` neither generators nor any other state may change.
        """

    def greedy(self, inputs: Tensor) -> Tensor:
        """Return the actions that `act` gives without ``explore``: (n, ...).

        An exported policy computes them (`rltune.agents.loop.policy_graph`): by tensor operations
        alone, without a branch on a value, and with the weights of ``nets`` alone.

        Args:
            inputs: as `act` gets them, in float32

        Raises:
            UserError: the algorithm has no policy that could be exported.
        """
        raise UserError(
            f"{type(self).__name__} has no policy that can be exported: its class has no method "
            "greedy(inputs)"
        )

    def greedy_state(self, inputs: Tensor) -> Tensor:
        """Return the recurrent states of the policy alone after ``inputs``: (n, size).

        They are the first numbers of what `next_state` gives; an exported policy hands them on.
        """
        raise UserError(
            f"{type(self).__name__} has a recurrent state that can't be exported: its class has "
            "no method greedy_state(inputs)"
        )

    def next_state(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Return the recurrent states after ``obs``: (n, state_size).

        They are appended to the next observations, behind one number that is 1 where an episode
        begins; there, they are 0 (`rltune.agents.spaces`).
        """
        raise NotImplementedError(f"{type(self).__name__} has no recurrent state")

    def restart_exploration(self) -> None:
        """Forget what exploration keeps for each environment from one step to the next."""

    def episodes_ended(self, ended: NDArray[np.bool_]) -> None:
        """Take note that the episodes of some environments have ended: bool (n_envs,).

        The loop calls it behind the step, and for all environments where episodes are broken off.
        """

    def learning_rate_at(self, progress: float, own: float | str = 0.0) -> float:
        """Return the step size for an optimizer when the fraction ``progress`` is done.

        Args:
            progress: as `update` gets it
            own: the learning rate of this network alone; 0: ``learning_rate`` of the configuration
        """
        return value_at(own or self.config.learning_rate, progress) * self.learning_rate_factor

    @abstractmethod
    def update(self, memory: Any, progress: float) -> dict[str, float]:
        """Learn from the memory; the only place that steps an optimizer.

        Args:
            memory: what ``make_memory`` gave, filled by the loop
            progress: the fraction of the training's env steps that are done, in [0, 1]

        Returns:
            what is worth recording, such as the losses; nothing where nothing was learned
        """

    def imitation(self, inputs: Tensor, action: Tensor) -> Tensor:
        """Return the loss of a policy that imitates actions, 0-d, with its gradient.

        Args:
            inputs: as `act` gets them (batch, ...); with an LSTM, sequences (batch, length, ...)
            action: one a row, as the environments take them, flat: (rows, size)

        Raises:
            UserError: the algorithm has no policy that could.
        """
        raise UserError(
            f"{type(self).__name__} has no policy that could imitate demonstrations; "
            "use another agent, such as ppo, sac or td3"
        )

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return everything that learning changes: networks, optimizers, generators.

        Tensors and plain Python only, so that ``torch.load(weights_only=True)`` reads it.
        """

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Take over only the networks of what ``state_dict`` gave; all else stays as it is.

        Raises:
            UserError: it has no networks, or they have other layers or shapes.
        """
        own = self.state_dict()
        parts = [name for name in self.NETWORKS if name in own]
        if not parts:
            raise UserError(f"{type(self).__name__} has no networks called {self.NETWORKS[0]!r}")
        for part in parts:
            check_shapes(state.get(part), own[part], part)
        self.load_state_dict({**own, **{part: state[part] for part in parts}})


def check_shapes(given: object, own: Mapping[str, torch.Tensor], part: str) -> None:
    """Raise `UserError` where weights have other names or shapes than those of a network.

    Args:
        given: the weights by name
        own: those of the network
        part: what the network is called
    """
    if not isinstance(given, Mapping):
        raise UserError(f"there are no weights of {part!r}")
    for name in {**own, **given}:
        shapes = [
            tuple(weights[name].shape) if name in weights else None for weights in (given, own)
        ]
        if shapes[0] != shapes[1]:
            there, here = (str(shape) if shape else "missing" for shape in shapes)
            raise UserError(f"{part}.{name} is {there} there and {here} here")


def means(
    history: list[dict[str, Tensor]], weights: Sequence[float] | None = None
) -> dict[str, float]:
    """Return the mean of each metric over the minibatches, with one transfer from the device.

    Args:
        history: the metrics of each minibatch
        weights: of the minibatches; None: all the same
    """
    names = list(history[0])
    table = torch.stack([torch.stack([metrics[name] for name in names]) for metrics in history])
    if weights is not None:
        part = torch.tensor(weights, device=table.device).unsqueeze(1)
        table = table * (part * len(weights) / part.sum())
    return dict(zip(names, table.mean(0).tolist(), strict=True))
