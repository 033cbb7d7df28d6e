"""Deep Q-networks (Mnih et al. 2015, doi:10.1038/nature14236), with Rainbow's parts as switches.

Rainbow (Hessel et al. 2018, arXiv:1710.02298) is DQN with ``double``, ``dueling``, ``prioritised``,
``noisy``, ``distributional: c51`` and ``n_step: 3``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces as gym_spaces
from numpy.typing import NDArray
from rltune.agents.algorithm import Algorithm, means
from rltune.agents.algorithms.dqn_config import DQNConfig
from rltune.agents.algorithms.dqn_targets import TDBatch, TDTargets, pick
from rltune.agents.errors import UserError
from rltune.agents.generators import restore_generator, weight_generator
from rltune.agents.kernels.dqn import DQNKernel
from rltune.agents.kernels.q_network import QKernel
from rltune.agents.learner import Learner, Target
from rltune.agents.memory.hindsight import replay_memory
from rltune.agents.memory.replay import ReplayMemory
from rltune.agents.memory.sequences import check_replayed
from rltune.agents.networks.q_networks import CategoricalReturns, QNetwork, QuantileReturns, Returns
from rltune.agents.spaces import Spaces, choose, with_states
from torch import Tensor, nn


class Scalars(NamedTuple):
    """The hyperparameters in the loss, as 0-d tensors."""

    huber_delta: Tensor


def dqn_loss(nets: nn.Module, batch: TDBatch, hp: Scalars) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the mean loss of the predictions for the actions that were taken.

    Beside 0-d metrics there are the rows' ``errors``, by which a prioritised memory draws them.
    """
    returns: Returns = nets.returns  # type: ignore[assignment]
    outputs = pick(nets(batch.obs, batch.noise), batch.action)
    losses = returns.losses(outputs, batch.target, hp.huber_delta)
    loss = (losses if batch.weight is None else losses * batch.weight).mean()
    with torch.no_grad():
        # Beyond delta the loss of a mean is no measure of its error, so the error itself counts.
        errors = batch.target - outputs.squeeze(-1) if returns.n_outputs == 1 else losses
        metrics = {"loss": loss, "q_value": returns.values(outputs).mean(), "errors": errors}
    return loss, metrics


class DQN(Algorithm[DQNConfig]):
    """DQN with Stable-Baselines3's semantics, so that rl-zoo3's settings mean the same here.

    Raises:
        UserError: the actions are not discrete, or the memory is too large for the machine.
    """

    Config = DQNConfig
    data_parallel = True
    on_policy = False
    tolerates_lag = True

    def __init__(
        self, config: DQNConfig, spaces: Spaces, *, seed: int, device: str = "cpu"
    ) -> None:
        spaces = with_states(spaces, config.lstm_size)
        super().__init__(config, spaces, seed=seed, device=device)
        self.state_size = 2 * config.lstm_size
        if config.lstm_size:
            check_replayed(config, spaces)
            if config.prioritised:
                raise UserError("an LSTM can't learn from a prioritised memory; leave one out")
        if not isinstance(spaces.action, gym_spaces.Discrete):
            raise UserError(
                f"dqn chooses among discrete actions, but those of this environment are "
                f"{spaces.action}; use ppo, or sac or td3 for a Box"
            )
        if config.v_min >= config.v_max:
            raise UserError(f"v_min is {config.v_min:g}, but must be below v_max {config.v_max:g}")
        if config.td_loss == "squared" and config.distributional != "none":
            raise UserError(
                f"td_loss squared is for the mean of a return alone, not for distributional "
                f"{config.distributional}; leave one out"
            )
        self.update_every = config.train_freq
        returns = Returns()
        if config.distributional == "c51":
            returns = CategoricalReturns(config.n_atoms, config.v_min, config.v_max)
        elif config.distributional == "qr":
            returns = QuantileReturns(config.n_quantiles)
        init = weight_generator(seed)
        self.nets = QNetwork(spaces, config, returns, init).to(self.device)
        self.learner = Learner(self.nets, config)
        self.target = Target(self.nets)
        self.td_targets = TDTargets(self.nets, self.target.module, config, self.generator)
        delta = config.huber_delta if config.td_loss == "huber" else math.inf
        self.scalars = Scalars(torch.tensor(delta, device=self.device))
        self.env_steps = 0  # up to the last update
        self.acted = 0  # actions to explore with
        self.epsilon = config.exploration_initial_eps

    def make_kernel(self) -> DQNKernel:
        """Return what computes in NumPy, for standard networks."""
        nets = QKernel(self.nets, self.learner.flat, self.config)
        return DQNKernel(nets, self.learner, self.target, self.config)

    def make_memory(self) -> ReplayMemory:
        """Return an empty replay memory."""
        config = self.config
        return replay_memory(
            config,
            self.spaces,
            (),
            np.int64,
            n_step=config.n_step,
            n_frames=config.frame_stack if config.frame_stack > 1 else None,
            alpha=config.priority_alpha if config.prioritised else None,
        )

    def act(self, obs: NDArray[Any], *, explore: bool) -> NDArray[Any]:
        """Return the actions for ``obs`` (n, ...); with ``explore``, each row is random or not."""
        n = len(obs)
        if not explore:
            return self._greedy(obs, None)
        warming_up = self.acted < self.config.learning_starts
        self.acted += n
        epsilon = 1.0 if warming_up else 0.0 if self.config.noisy else self.epsilon
        uniform = torch.rand(2, n, generator=self.generator, device=self.device)
        drawn = uniform.cpu().numpy()
        is_random = drawn[0] < epsilon
        action: NDArray[Any] = (drawn[1] * self.nets.n_actions).astype(np.int64)
        if self.nets.parts.n_mask:
            mask = self.nets.parts.mask(torch.as_tensor(obs, device=self.device))
            action = choose(uniform[1], mask).cpu().numpy()
        if is_random.all():
            return action
        greedy = self._greedy(obs, self.nets.draw_noise(self.generator, n))
        return np.where(is_random, action, greedy)

    def _greedy(self, obs: NDArray[Any], noise: Tensor | None) -> NDArray[Any]:
        """Return the best actions, as noisy layers with ``noise`` see them."""
        action: NDArray[Any]
        if self.kernel is not None:
            action = self.kernel.best(obs)
            return action
        inputs = torch.as_tensor(obs, device=self.device)
        with torch.no_grad():
            action = self.nets.best(self.nets(inputs, noise), inputs).cpu().numpy()
        return action

    def greedy(self, inputs: Tensor) -> Tensor:
        """Return the best actions, see `Algorithm.greedy`; noisy layers have their means."""
        return self.nets.best(self.nets(inputs), inputs)

    def greedy_state(self, inputs: Tensor) -> Tensor:
        """Return the LSTM's states after ``inputs``: (n, state_size)."""
        return self.nets.next_state(inputs)

    @torch.no_grad()
    def next_state(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Return the LSTM's states after ``obs``: (n, state_size)."""
        inputs = torch.as_tensor(obs, device=self.device)
        state: NDArray[np.float32] = self.nets.next_state(inputs).cpu().numpy()
        return state

    def update(self, memory: ReplayMemory, progress: float) -> dict[str, float]:
        """Learn from ``gradient_steps`` minibatches, once ``learning_starts`` is over."""
        config = self.config
        self._count_steps(config.train_freq)
        self.epsilon = self._epsilon_at(progress)
        gradient_steps = config.gradient_steps if config.gradient_steps >= 0 else config.train_freq
        if self.env_steps <= config.learning_starts or not gradient_steps:
            return {}
        if self.state_size and memory.steps < config.burn_in + config.sequence_length:
            return {}  # there is no sequence yet
        learning_rate = self.learning_rate_at(progress)
        beta = config.priority_beta + (1 - config.priority_beta) * progress

        if self.kernel is not None:
            samples = self.td_targets.samples(memory, gradient_steps, beta)
            found = self.kernel.learn(samples, memory, learning_rate)
        else:
            found = self._learn(memory, gradient_steps, beta, learning_rate)
        return {**found, "learning_rate": learning_rate, "epsilon": self.epsilon}

    def _learn(
        self, memory: Any, gradient_steps: int, beta: float, learning_rate: float
    ) -> dict[str, float]:
        """Take the gradient steps."""
        history: list[dict[str, Tensor]] = []
        for batch in self.td_targets.draw(memory, gradient_steps, beta):
            loss, metrics = dqn_loss(self.nets, batch, self.scalars)
            errors = metrics.pop("errors")
            if batch.slot is not None:
                memory.set_errors(batch.slot, errors)
            grad_norm = self.learner.step(loss, learning_rate)
            history.append({**metrics, "grad_norm": grad_norm})
        return means(history)

    def _count_steps(self, n: int) -> None:
        """Count ``n`` env steps, and let the target follow as often as it was due in them."""
        interval = self.config.target_update_interval
        due = (self.env_steps + n) // interval - self.env_steps // interval
        self.env_steps += n
        if due:
            self.target.follow(self.learner, 1 - (1 - self.config.tau) ** due)

    def _epsilon_at(self, progress: float) -> float:
        """Return the fraction of random actions, which falls by steps or by the training's part."""
        config = self.config
        first, last = config.exploration_initial_eps, config.exploration_final_eps
        part, steps = config.exploration_fraction, config.exploration_decay_steps
        if steps:
            progress, part = self.env_steps / steps, 1.0
        if config.exploration_schedule == "exponential" and part > 0:
            return last + (first - last) * math.exp(-progress / part)
        if progress >= part:
            return last
        return first + progress / part * (last - first)

    def state_dict(self) -> dict[str, Any]:
        """Return networks, optimizer, generator and counters."""
        return {
            "nets": self.nets.state_dict(),
            "target": self.target.module.state_dict(),
            "learner": self.learner.state_dict(),
            "generator": self.generator.get_state(),
            "env_steps": self.env_steps,
            "acted": self.acted,
            "epsilon": self.epsilon,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        self.nets.load_state_dict(state["nets"])
        self.target.module.load_state_dict(state["target"])
        self.learner.load_state_dict(state["learner"])
        restore_generator(self.generator, state["generator"])
        self.env_steps = state["env_steps"]
        self.acted = state["acted"]
        self.epsilon = state["epsilon"]
