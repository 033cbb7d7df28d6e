"""Collection beside learning: actors run ahead of the learner, through a replay server."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.algorithm import Algorithm
from rltune.agents.distributed.fleet import Fleet
from rltune.agents.distributed.fragments import Fragment, side_by_side
from rltune.agents.distributed.metrics import ActorMetrics
from rltune.agents.distributed.policies import learn_from, policy_of
from rltune.agents.distributed.rounds import IN_ACTORS, RoundsCollector
from rltune.agents.distributed.server import LOG, ROLLOUTS, Summary
from rltune.agents.envs import waiting
from rltune.agents.envs.vector import Finished, Transition
from rltune.agents.loop.normalization import Normalizers
from rltune.agents.memory.batch import Batch
from torch import Tensor

if TYPE_CHECKING:
    from rltune.agents.loop.training import TrainingLoop

Array = NDArray[Any]
AHEAD = 2  # calls for minibatches that are under way
MINIBATCHES = 8  # of each such call, at most


class RemoteReplay:
    """The replay memory of a learner, which a replay server holds.

    Minibatches are asked for ahead, so that the learner waits for none. Draws are the server's own.

    Args:
        fleet: that has the server
        device: of the minibatches

    Attributes:
        steps: rows of the longest memory that are known to be there
    """

    signals = None

    def __init__(self, fleet: Fleet, device: torch.device) -> None:
        self.fleet, self.device = fleet, device
        self.steps = 0
        self._asked: tuple[Any, ...] = ()
        self._under_way: deque[Any] = deque()
        self._ready: deque[Batch] = deque()

    def sample(
        self, batch_size: int, generator: torch.Generator, beta: float | None = None
    ) -> Batch:
        """Return transitions; see `ReplayMemory.sample` and `PrioritisedMemory.sample`."""
        return self._next("sample", (batch_size,), () if beta is None else (beta,))

    def sample_sequences(
        self, n: int, length: int, burn_in: int, generator: torch.Generator
    ) -> Batch:
        """Return sequences; see `ReplayMemory.sample_sequences`."""
        return self._next("sample_sequences", (n, length, burn_in), ())

    def _next(self, method: str, size: tuple[int, ...], drifting: tuple[float, ...]) -> Batch:
        """Return the next minibatch; what drifts from call to call may be that of earlier ones."""
        if self._asked != (method, size):
            self._asked, self._under_way, self._ready = (method, size), deque(), deque()
        while len(self._under_way) < AHEAD:
            call = (method, MINIBATCHES, *size, *drifting)
            self._under_way.append(self.fleet.begin("sample", *call))
        if not self._ready:
            self._ready.extend(self.fleet.finish(self._under_way.popleft()))
        return self._on_device(self._ready.popleft())

    def _on_device(self, batch: Batch) -> Batch:
        # What came through shared memory can't be written to, and PyTorch would warn.
        arrays: Any = batch
        tensors = [None if part is None else torch.from_numpy(np.array(part)) for part in arrays]
        moved = [None if part is None else part.to(self.device) for part in tensors[:-1]]
        return Batch._make([*moved, tensors[-1]])

    def set_errors(self, slot: Tensor, errors: Tensor) -> None:
        """Hand on errors; see `PrioritisedMemory.set_errors`."""
        self.fleet.begin("set_errors", slot.numpy(), errors.detach().cpu().numpy())

    @property
    def nbytes(self) -> int:
        """The bytes of the server's memories, filled or not."""
        return int(self.fleet.ask("nbytes"))

    def interrupt(self) -> None:
        """Do nothing: the server hears from the actors that they began new episodes."""

    def state_dict(self) -> dict[str, Any]:
        """Return the content of the server's memories."""
        return {**self.fleet.ask("state_dict"), "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        self.steps = state["steps"]
        self.fleet.ask("load_state_dict", state)


class _Row(NamedTuple):
    """One step of an actor's environments, as far as the loop asks for it."""

    valid: Array
    episodes: list[Finished]


class StreamCollector:
    """Counts what actors insert into a replay server, row by row, and sends them new policies.

    Args:
        fleet: of the actors, which run already
        algorithm: the policy that learns
        memory: what stands for the server's memory
        normalizers: of observations and rewards
        n_actors: how many there are
        publish_every: updates between two policies

    Attributes:
        loop: of the training
        metrics: of the actors
    """

    loop: TrainingLoop
    replays = False  # actors begin new episodes where a training is resumed

    def __init__(
        self,
        fleet: Fleet,
        algorithm: Algorithm[Any],
        memory: RemoteReplay,
        normalizers: Normalizers,
        n_actors: int,
        publish_every: int,
    ) -> None:
        self.metrics = ActorMetrics(n_actors)
        self.fleet, self.algorithm, self.memory = fleet, algorithm, memory
        self.normalizers, self.publish_every = normalizers, publish_every
        self._published = -1
        self._rows: deque[_Row] = deque()
        self._learned = 0  # env steps since the server was told
        self._rows_of: dict[int, int] = {}  # by actor

    def begin(self) -> None:
        """Do nothing: the actors run."""

    def step(self) -> _Row:
        """Return the next row that an actor inserted; wait for it.

        Raises:
            Exception: whatever an environment raises
        """
        updates = self.loop.progress.updates
        if self._published < 0 or updates - self._published >= self.publish_every:
            policy = policy_of(
                self.algorithm, self.normalizers, updates, self.loop.progress.env_steps, whole=False
            )
            self.fleet.ask("publish", policy)
            self._published = updates
        while not self._rows:
            learned, self._learned = self._learned, 0
            with waiting.calling(IN_ACTORS):
                summaries = self.fleet.ask("take", LOG, 1, 1_000, learned)
            for summary in summaries:
                self._note(summary)
        row = self._rows.popleft()
        self._learned += max(1, int(np.count_nonzero(row.valid)))
        return row

    def _note(self, summary: Summary) -> None:
        learn_from(self.normalizers, summary.statistics)
        lag = self.loop.progress.updates - summary.version
        env_steps = int(np.count_nonzero(summary.valid))
        self.metrics.note(summary.actor, env_steps, summary.usage, lag)
        self._rows.extend(map(_Row, summary.valid, summary.episodes))
        rows = self._rows_of.get(summary.actor, 0) + len(summary.valid)
        self._rows_of[summary.actor] = rows
        self.memory.steps = max(self.memory.steps, rows)

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: where the actors stand is not known here."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Do nothing: the actors begin new episodes."""


class QueueCollector(RoundsCollector):
    """Fills rollouts from a queue of fragments that actors collect by policies of earlier updates.

    The memory gets the log-probabilities of the actions under these policies.
    """

    def step(self) -> Transition:
        """Put the next step of all environments into the memory, and return it."""
        position = self.memory.position
        step = super().step()
        assert self._left is not None
        assert self._left.log_prob is not None
        self.memory.log_prob[position] = self._left.log_prob[self._row - 1]
        return step

    def _is_stale(self, left: Fragment) -> bool:
        return False

    def _collect(self) -> Fragment:
        progress, n = self.loop.progress, self.n_actors
        if progress.updates != self._version:
            policy = policy_of(
                self.algorithm, self.normalizers, progress.updates, progress.env_steps, whole=False
            )
            self.fleet.ask("publish", policy)
            self._version = progress.updates
        learned = 0 if self._left is None else max(1, self._left.env_steps)
        with waiting.calling(IN_ACTORS):
            fragments = self.fleet.ask("take", ROLLOUTS, n, n, learned)
        for fragment in fragments:
            self._note(fragment)
            learn_from(self.normalizers, fragment.statistics)
        return self._dispense(side_by_side(fragments))

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: where the actors stand is not known here."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Drop the rollout that was begun: the actors begin new episodes."""
        self.break_off()
