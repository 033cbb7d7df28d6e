"""Advantage actor-critic (Mnih et al. 2016, arXiv:1602.01783), synchronous: A2C."""

from __future__ import annotations

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
from rltune.agents.kernels.a2c import A2CKernel
from rltune.agents.learner import Learner
from rltune.agents.memory.rollout import RolloutMemory
from rltune.agents.spaces import Spaces, with_states
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class A2CConfig(RecurrentConfig):
    """The hyperparameters of A2C."""

    learning_rate: float | str = hp(
        7e-4, low=1e-5, high=1e-2, scale="log", schedule=True, help="step size of the optimizer"
    )
    optimizer: str = hp("rmsprop", choices=("adam", "rmsprop"), mutable=False, help="optimizer")
    n_steps: int = hp(
        5, low=4, high=128, scale="log", minimum=1, help="steps of each environment a rollout"
    )
    gae_lambda: float = hp(
        1.0,
        low=0.8,
        high=0.999,
        scale="one_minus_log",
        maximum=1,
        help="lambda of the generalised advantage estimate; 1: the paper's n-step returns",
    )
    normalize_advantage: bool = hp(False, help="normalise the advantages of each rollout")
    advantage_eps: float = hp(
        1e-8, low=1e-8, high=1e-3, scale="log", help="added to the deviation that divides them"
    )


class Scalars(NamedTuple):
    """The hyperparameters in the loss, as 0-d tensors."""

    ent_coef: Tensor
    vf_coef: Tensor


def a2c_loss(nets: nn.Module, batch: Rollout, hp: Scalars) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the policy-gradient loss with value loss and entropy bonus (section 4)."""
    params, value = nets(batch.obs)
    log_prob, entropies = nets.distribution.evaluate(params, batch.action)  # type: ignore[operator, union-attr]

    policy_loss = -(batch.advantage * log_prob).mean()
    value_loss = (batch.target - value).square().mean()
    entropy = entropies.mean()
    loss = policy_loss + hp.vf_coef * value_loss - hp.ent_coef * entropy
    metrics = {
        "loss": loss,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
    }
    return loss, {name: metric.detach() for name, metric in metrics.items()}


class A2C(Algorithm[A2CConfig]):
    """A2C with Stable-Baselines3's semantics, so that rl-zoo3's settings mean the same here."""

    Config = A2CConfig
    tolerates_lag = True
    data_parallel = True

    def __init__(
        self, config: A2CConfig, spaces: Spaces, *, seed: int, device: str = "cpu"
    ) -> None:
        spaces = with_states(spaces, config.lstm_size)
        super().__init__(config, spaces, seed=seed, device=device)
        self.state_size = 2 * config.lstm_size
        self.sequence_length = whole_sequences(config)
        self.update_every = config.n_steps * spaces.n_envs
        self.policy = RolloutPolicy(config, spaces, seed, self.generator)
        self.policy.weighs_advantages = True
        self.nets = self.policy.nets
        self.learner = Learner(self.nets, config)
        self.scalars = Scalars(
            ent_coef=torch.tensor(config.ent_coef, device=self.device),
            vf_coef=torch.tensor(config.vf_coef, device=self.device),
        )

    def make_kernel(self) -> A2CKernel:
        """Return what computes in NumPy, for standard networks."""
        self.policy.kernel = self.policy.make_kernel(self.learner)
        return A2CKernel(self.policy.kernel, self.config)

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
        """Take one gradient step on a full rollout and clear it."""
        rollout = self.policy.take_rollout(memory)
        if rollout is None:
            return {}
        learning_rate = self.learning_rate_at(progress)
        if self.kernel is not None:
            found = self.kernel.learn(rollout, learning_rate)
        else:
            found = self._learn(rollout, learning_rate)
        return {
            **found,
            "explained_variance": rollout.explained_variance(),
            "learning_rate": learning_rate,
        }

    def _learn(self, rollout: Rollout, learning_rate: float) -> dict[str, float]:
        eps = self.config.advantage_eps
        batch = rollout.normalised(eps) if self.config.normalize_advantage else rollout
        if self.state_size:
            batch = batch.sequences(self.spaces.n_envs, self.sequence_length).flat()
        loss, metrics = a2c_loss(self.nets, self.learner.shares.rows(batch), self.scalars)
        norm = self.learner.step(loss, learning_rate)
        return means([{**metrics, "grad_norm": norm}])

    def state_dict(self) -> dict[str, Any]:
        """Return policy and optimizer."""
        return {**self.policy.state_dict(), "learner": self.learner.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        self.policy.load_state_dict(state)
        self.learner.load_state_dict(state["learner"])
