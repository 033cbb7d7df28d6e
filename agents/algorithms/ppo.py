"""Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.algorithm import Algorithm, means
from rltune.agents.algorithms.on_policy import (
    RecurrentConfig,
    Rollout,
    RolloutPolicy,
    whole_sequences,
)
from rltune.agents.config import hp
from rltune.agents.kernels.ppo import Limits, PPOKernel
from rltune.agents.learner import Learner
from rltune.agents.memory.rollout import RolloutMemory
from rltune.agents.schedules import value_at
from rltune.agents.spaces import Spaces, with_states
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class PPOConfig(RecurrentConfig):
    """The hyperparameters of PPO."""

    batch_size: int = hp(128, low=32, high=1024, scale="pow2", minimum=1, help="minibatch size")
    n_minibatches: int = hp(
        0, low=1, high=64, scale="pow2", help="minibatches a rollout; 0: as batch_size says"
    )
    n_epochs: int = hp(10, low=1, high=20, minimum=1, help="passes over each rollout")
    clip_range: float | str = hp(
        0.2, low=0.05, high=0.4, schedule=True, help="how far the policy may move in an update"
    )
    clip_range_vf: float | str = hp(
        0.0, low=0.05, high=10.0, schedule=True, help="the same for the value function; 0: no limit"
    )
    normalize_advantage: bool = hp(True, help="normalise the advantages of each minibatch")
    advantage_eps: float = hp(
        1e-8, low=1e-8, high=1e-3, scale="log", help="added to the deviation that divides them"
    )
    target_kl: float = hp(
        0.0, low=0.003, high=0.1, scale="log", help="end an update beyond 1.5 times this; 0: never"
    )


class Scalars(NamedTuple):
    """The hyperparameters in the loss, as 0-d tensors."""

    clip_range: Tensor
    clip_range_vf: Tensor | None  # None: the value function is not limited
    ent_coef: Tensor
    vf_coef: Tensor

    @classmethod
    def of(cls, limits: Limits, device: torch.device) -> Scalars:
        """Return the tensors of the numbers."""
        scalars = (None if n is None else torch.tensor(n, device=device) for n in limits)
        return cls(*scalars)  # type: ignore[arg-type]


def ppo_loss(nets: nn.Module, batch: Rollout, hp: Scalars) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the clipped surrogate loss with value loss and entropy bonus (equation 9)."""
    params, value = nets(batch.obs)
    log_prob, entropies = nets.distribution.evaluate(params, batch.action)  # type: ignore[operator, union-attr]

    log_ratio = log_prob - batch.log_prob
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - hp.clip_range, 1 + hp.clip_range)
    policy_loss = -torch.min(batch.advantage * ratio, batch.advantage * clipped).mean()

    if hp.clip_range_vf is not None:
        value = batch.value + (value - batch.value).clamp(-hp.clip_range_vf, hp.clip_range_vf)
    value_loss = (batch.target - value).square().mean()

    entropy = entropies.mean()
    loss = policy_loss + hp.vf_coef * value_loss - hp.ent_coef * entropy
    with torch.no_grad():
        metrics = {
            "loss": loss,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "approx_kl": (ratio - 1 - log_ratio).mean(),
            "clip_fraction": (ratio != clipped).float().mean(),
        }
    return loss, metrics


class PPO(Algorithm[PPOConfig]):
    """PPO with Stable-Baselines3's semantics, so that rl-zoo3's settings mean the same here."""

    Config = PPOConfig
    tolerates_lag = True
    data_parallel = True

    def __init__(
        self, config: PPOConfig, spaces: Spaces, *, seed: int, device: str = "cpu"
    ) -> None:
        spaces = with_states(spaces, config.lstm_size)
        super().__init__(config, spaces, seed=seed, device=device)
        self.state_size = 2 * config.lstm_size
        self.sequence_length = whole_sequences(config)
        self.update_every = config.n_steps * spaces.n_envs
        self.policy = RolloutPolicy(config, spaces, seed, self.generator)
        self.nets = self.policy.nets
        self.learner = Learner(self.nets, config)

    def make_kernel(self) -> PPOKernel:
        """Return what computes in NumPy, for standard networks."""
        self.policy.kernel = self.policy.make_kernel(self.learner)
        return PPOKernel(self.policy.kernel, self.config, self.generator)

    def make_memory(self) -> RolloutMemory:
        """Return an empty rollout memory."""
        return self.policy.make_memory()

    def act(self, obs: NDArray[Any], *, explore: bool) -> NDArray[Any]:
        """Return the raw (unclipped) actions for ``obs`` (n, ...); greedy unless ``explore``."""
        return self.policy.act(obs, explore=explore)

    def next_state(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Return the LSTM's states after ``obs``: (n, state_size)."""
        return self.policy.next_state(obs)

    def restart_exploration(self) -> None:
        """Draw new noise functions with the next exploring step."""
        self.policy.begin_rollout()

    def greedy(self, inputs: Tensor) -> Tensor:
        """Return the greedy actions, see `Algorithm.greedy`."""
        return self.policy.greedy(inputs)

    def greedy_state(self, inputs: Tensor) -> Tensor:
        """Return the LSTM's states after ``inputs``: (n, state_size)."""
        return self.nets.next_state(inputs)

    def imitation(self, inputs: Tensor, action: Tensor) -> Tensor:
        """Return the loss of a policy that imitates actions."""
        return self.policy.imitation(inputs, action)

    def update(self, memory: RolloutMemory, progress: float) -> dict[str, float]:
        """Learn from a full rollout and clear it."""
        rollout = self.policy.take_rollout(memory)
        if rollout is None:
            return {}
        learning_rate = self.learning_rate_at(progress)
        limits = self._limits(progress)
        if self.kernel is not None:
            found = self.kernel.learn(rollout, limits, learning_rate)
        else:
            found = self._learn(rollout, limits, learning_rate)
        return {
            **found,
            "explained_variance": rollout.explained_variance(),
            "learning_rate": learning_rate,
            "clip_range": limits.clip_range,
        }

    def _learn(self, rollout: Rollout, limits: Limits, learning_rate: float) -> dict[str, float]:
        """Take the gradient steps on a rollout."""
        scalars, shares = Scalars.of(limits, self.device), self.learner.shares
        history: list[dict[str, Tensor]] = []
        norms: list[Tensor] = []
        for batch in self._minibatches(rollout):
            loss, metrics = ppo_loss(self.nets, shares.rows(batch), scalars)
            history.append(metrics)
            if 0 < self.config.target_kl < shares.mean(float(metrics["approx_kl"])) / 1.5:
                break
            norms.append(self.learner.step(loss, learning_rate))
        return {
            **means(history, shares.weights),
            "grad_norm": float(torch.stack(norms).mean()) if norms else 0.0,
            "updates": float(len(history)),
        }

    def _minibatches(self, rollout: Rollout) -> Iterator[Rollout]:
        """Yield the minibatches of all epochs, shuffled anew for each."""
        batch_size = self.config.batch_size
        if self.state_size:  # rows are sequences
            rollout = rollout.sequences(self.spaces.n_envs, self.sequence_length)
            batch_size = max(1, batch_size // self.sequence_length)
        n = len(rollout.advantage)
        if self.config.n_minibatches > 0:
            batch_size = max(1, n // self.config.n_minibatches)
        if batch_size >= n:  # one minibatch is the same in any order
            yield from [self._prepared(rollout)] * self.config.n_epochs
            return
        for _ in range(self.config.n_epochs):
            order = torch.randperm(n, generator=self.generator, device=self.device)
            for index in torch.split(order, batch_size):
                yield self._prepared(rollout.rows(index))

    def _prepared(self, batch: Rollout) -> Rollout:
        """Return a minibatch as the loss wants it."""
        batch = batch.flat() if self.state_size else batch
        eps = self.config.advantage_eps
        return batch.normalised(eps) if self.config.normalize_advantage else batch

    def _limits(self, progress: float) -> Limits:
        config = self.config
        return Limits(
            clip_range=value_at(config.clip_range, progress),
            clip_range_vf=value_at(config.clip_range_vf, progress)
            if config.clip_range_vf
            else None,
            ent_coef=config.ent_coef,
            vf_coef=config.vf_coef,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return policy and optimizer."""
        return {**self.policy.state_dict(), "learner": self.learner.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        self.policy.load_state_dict(state)
        self.learner.load_state_dict(state["learner"])
