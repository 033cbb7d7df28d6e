"""TD targets of DQN: minibatches of a memory, valued by the target network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from rltune.agents.algorithms.dqn_config import DQNConfig
from rltune.agents.memory.batch import Batch
from rltune.agents.memory.replay import ReplayMemory
from rltune.agents.memory.sequences import sample_sequences
from rltune.agents.networks.q_networks import QNetwork
from rltune.agents.shares import Shares
from torch import Tensor

LARGE = 8192  # transitions that are drawn at once


class TDBatch(NamedTuple):
    """A minibatch with its TD targets; the first axis of every tensor is the batch."""

    obs: Tensor
    action: Tensor
    target: Tensor  # as `Returns.target` gives it
    weight: Tensor | None = None  # None: all the same
    slot: Tensor | None = None  # where a prioritised memory keeps them
    noise: Tensor | None = None  # of the noisy layers: (n_noise,), or one a row

    def rows(self, rows: slice) -> TDBatch:
        """Return some of the rows; weight, slot and noise are none."""
        return TDBatch(self.obs[rows], self.action[rows], self.target[rows])


def pick(outputs: Tensor, action: Tensor) -> Tensor:
    """Return the ``outputs`` (batch, n_actions, n_outputs) of one action of each row."""
    index = action[:, None, None].expand(-1, 1, outputs.shape[-1])
    return outputs.gather(1, index).squeeze(1)


class TDTargets:
    """Draws minibatches and computes their TD targets.

    Args:
        nets: what learns
        target: the network that values what follows
        config: of the agent
        generator: of the draws and of the noisy layers

    Attributes:
        shares: divides minibatches among several learners
    """

    shares = Shares()

    def __init__(
        self, nets: QNetwork, target: QNetwork, config: DQNConfig, generator: torch.Generator
    ) -> None:
        self.nets, self.target, self.config, self.generator = nets, target, config, generator
        self.burn_in = config.burn_in if config.lstm_size else 0
        self.is_image = nets.parts.has_images

    def draw(self, memory: ReplayMemory, n: int, beta: float) -> Iterator[TDBatch]:
        """Yield ``n`` minibatches.

        Args:
            memory: the transitions
            n: how many minibatches
            beta: how far weights make up for a prioritised draw
        """
        size = self.config.batch_size
        alike = not (self.config.double or self.config.noisy or self.nets.n_outputs > 1)
        for drawn in self.samples(memory, n, beta):
            rows = len(drawn.reward)
            if self.config.lstm_size or rows <= size:
                yield self.of(drawn)
                continue
            shared = self.of(drawn) if alike else None
            for i in range(0, rows, size):
                part = slice(i, i + size)
                yield shared.rows(part) if shared else self.of(drawn.rows(part))

    def samples(self, memory: ReplayMemory, n: int, beta: float) -> Iterable[Batch]:
        """Return the transitions of ``n`` minibatches to learn from; arguments as in `draw`."""
        return self.shares.minibatches(self._drawn(memory, n, beta), self.config.batch_size)

    def _drawn(self, memory: Any, n: int, beta: float) -> Iterator[Batch]:
        """Yield the transitions of minibatches, those of several at once where that may be."""
        size = self.config.batch_size
        if self.config.prioritised:  # each depends on what was learned before
            for _ in range(n):
                yield memory.sample(size, self.generator, beta)
        elif self.config.lstm_size:
            for _ in range(n):
                yield sample_sequences(memory, self.config, self.generator)
        else:
            # A few large draws cost less than many small ones, and so do values of a fixed target.
            at_once = 1 if self.is_image else max(1, LARGE // size)
            for first in range(0, n, at_once):
                yield memory.sample(size * min(at_once, n - first), self.generator)

    @torch.no_grad()
    def of(self, batch: Batch) -> TDBatch:
        """Return some transitions with their TD targets."""
        burn_in, target, nets = self.burn_in, self.target, self.nets
        # Independent noise for learning, valuing and choosing, as the paper has it.
        noise = nets.draw_noise(self.generator, 3)
        learning, valuing, choosing = (None, None, None) if noise is None else noise
        next_obs = target.warm_up(batch.next_obs, burn_in)
        outputs = chooser = target(next_obs, valuing)
        if self.config.double:
            chooser = nets(nets.warm_up(batch.next_obs, burn_in), choosing)
        best = nets.best(chooser, next_obs)
        reward = self.config.reward_scale * batch.reward
        wanted = nets.returns.target(reward, batch.discount, pick(outputs, best))
        obs = nets.warm_up(batch.obs, burn_in)
        return TDBatch(obs, batch.action, wanted, batch.weight, batch.slot, learning)
