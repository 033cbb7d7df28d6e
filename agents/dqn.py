"""Deep Q-networks (Mnih et al. 2015, doi:10.1038/nature14236), with Rainbow's parts as switches.

Rainbow (Hessel et al. 2018, arXiv:1710.02298) is DQN with ``double``, ``dueling``, ``prioritised``,
``noisy``, ``distributional: c51`` and ``n_step: 3``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces as gym_spaces
from numpy.typing import NDArray
from rltune.agents.algorithm import Algorithm, Spaces, weight_generator
from rltune.agents.config import OffPolicyConfig, hp
from rltune.agents.errors import UserError
from rltune.agents.learner import Learner, Target
from rltune.agents.on_policy import means, restore_generator
from rltune.agents.prioritised import PrioritisedMemory
from rltune.agents.q_networks import CategoricalReturns, QNetwork, QuantileReturns, Returns
from rltune.agents.recurrent import check_replayed, with_states
from rltune.agents.replay import Batch, ReplayMemory
from rltune.agents.schedules import value_at
from rltune.agents.seen import choose
from torch import Tensor, nn

LARGE = 8192  # transitions that are drawn at once


@dataclass(frozen=True, kw_only=True)
class DQNConfig(OffPolicyConfig):
    """The hyperparameters of DQN."""

    learning_rate: float | str = hp(
        1e-3, low=1e-5, high=1e-2, scale="log", schedule=True, help="step size of the optimizer"
    )
    max_grad_norm: float = hp(
        10.0, low=0.3, high=20.0, scale="log", help="largest global gradient norm; 0: no clipping"
    )
    batch_size: int = hp(64, low=32, high=512, scale="pow2", minimum=1, help="minibatch size")
    train_freq: int = hp(
        4, low=1, high=256, scale="pow2", minimum=1, help="env steps between updates"
    )
    gradient_steps: int = hp(
        -1, low=1, high=256, scale="pow2", minimum=-1, help="minibatches an update; -1: train_freq"
    )
    tau: float = hp(
        1.0, low=0.001, high=1.0, scale="log", maximum=1, help="how far the target moves; 1: all"
    )
    target_update_interval: int = hp(
        500, low=1, high=10_000, scale="log", minimum=1, help="env steps between its moves"
    )
    exploration_initial_eps: float = hp(
        1.0, low=0.1, high=1.0, maximum=1, help="fraction of random actions at first"
    )
    exploration_final_eps: float = hp(
        0.05, low=0.0, high=0.2, maximum=1, help="fraction of random actions in the end"
    )
    exploration_fraction: float = hp(
        0.1, low=0.05, high=0.5, maximum=1, help="part of the training after which that is reached"
    )
    huber_delta: float = hp(
        1.0, low=0.1, high=10.0, scale="log", minimum=1e-6, help="errors beyond count linearly"
    )
    double: bool = hp(False, help="the online network chooses the action that the target values")
    dueling: bool = hp(False, help="a stream for the state's value and one for the advantages")
    n_step: int = hp(1, low=1, high=10, minimum=1, help="rewards summed before a value is asked")
    prioritised: bool = hp(False, help="draw transitions by the size of their last error")
    priority_alpha: float = hp(0.6, low=0.0, high=1.0, help="how much; 0: draw uniformly")
    priority_beta: float = hp(
        0.4, low=0.0, high=1.0, maximum=1, help="how far weights make up for it at first; then 1"
    )
    noisy: bool = hp(False, help="noisy layers explore, instead of random actions")
    noisy_sigma: float = hp(0.5, low=0.1, high=1.0, help="their initial noise")
    distributional: str = hp(
        "none", choices=("none", "c51", "qr"), help="learn the return's distribution"
    )
    n_atoms: int = hp(51, low=11, high=101, minimum=2, help="returns that c51 knows")
    v_min: float = hp(-10.0, low=-500, high=0, minimum=-1e9, help="the smallest of them")
    v_max: float = hp(10.0, low=0, high=500, minimum=-1e9, help="the largest of them")
    n_quantiles: int = hp(50, low=10, high=200, minimum=1, help="quantiles that qr knows")
    lstm_size: int = hp(
        0, low=32, high=256, scale="pow2", help="an LSTM between encoder and net_arch; 0: none"
    )
    sequence_length: int = hp(
        16, low=8, high=64, scale="pow2", minimum=1, help="steps it learns in a row, of batch_size"
    )
    burn_in: int = hp(
        4, low=0, high=40, help="steps before them that only bring its stored state up to date"
    )
    model: str = hp(
        "",
        outputs=("",),
        help="file that describes the network; the output layer alone is doubled"
        " by dueling, or noisy",
    )


class Lesson(NamedTuple):
    """What is to be learned about some transitions; the first axis of every tensor is the batch."""

    obs: Tensor
    action: Tensor
    target: Tensor  # as `Returns.target` gives it
    weight: Tensor | None = None  # None: all the same
    slot: Tensor | None = None  # where a prioritised memory keeps them
    noise: Tensor | None = None  # of the noisy layers: (n_noise,), or one a row

    def rows(self, rows: slice) -> Lesson:
        """Return some of the rows; weight, slot and noise are none."""
        return Lesson(self.obs[rows], self.action[rows], self.target[rows])


class Scalars(NamedTuple):
    """The hyperparameters in the loss, as 0-d tensors."""

    huber_delta: Tensor


def pick(outputs: Tensor, action: Tensor) -> Tensor:
    """Return what ``outputs`` (batch, n_actions, n_outputs) say about one action of each row."""
    index = action[:, None, None].expand(-1, 1, outputs.shape[-1])
    return outputs.gather(1, index).squeeze(1)


def dqn_loss(nets: nn.Module, batch: Lesson, hp: Scalars) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the mean loss of what the networks say about the actions that were taken.

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
    on_policy = False

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
        self.scalars = Scalars(torch.tensor(config.huber_delta, device=self.device))
        self.burn_in = config.burn_in if config.lstm_size else 0
        self.is_image = len(self.nets.parts.shape) == 3
        self.env_steps = 0  # up to the last update
        self.acted = 0  # actions to explore with
        self.epsilon = config.exploration_initial_eps

    def make_memory(self) -> ReplayMemory:
        """Return an empty replay memory."""
        config = self.config
        arguments: dict[str, Any] = {
            "gamma": config.gamma,
            "n_step": config.n_step,
            "n_frames": config.frame_stack if config.frame_stack > 1 else None,
        }
        if config.prioritised:
            return PrioritisedMemory(
                config.buffer_size,
                self.spaces,
                (),
                np.int64,
                alpha=config.priority_alpha,
                **arguments,
            )
        return ReplayMemory(config.buffer_size, self.spaces, (), np.int64, **arguments)

    @torch.no_grad()
    def act(self, obs: NDArray[Any], *, explore: bool) -> NDArray[Any]:
        """Return the actions for ``obs`` (n, ...); with ``explore``, each row is random or not."""
        n = len(obs)
        seen = torch.as_tensor(obs, device=self.device)
        if not explore:
            return self._greedy(seen, None)
        warming_up = self.acted < self.config.learning_starts
        self.acted += n
        epsilon = 1.0 if warming_up else 0.0 if self.config.noisy else self.epsilon
        uniform = torch.rand(2, n, generator=self.generator, device=self.device)
        drawn = uniform.cpu().numpy()
        is_random = drawn[0] < epsilon
        action: NDArray[Any] = (drawn[1] * self.nets.n_actions).astype(np.int64)
        if self.nets.parts.n_mask:
            action = choose(uniform[1], self.nets.parts.mask(seen)).cpu().numpy()
        if is_random.all():
            return action
        greedy = self._greedy(seen, self.nets.draw_noise(self.generator, n))
        return np.where(is_random, action, greedy)

    def _greedy(self, obs: Tensor, noise: Tensor | None) -> NDArray[Any]:
        action: NDArray[Any] = self.nets.best(self.nets(obs, noise), obs).cpu().numpy()
        return action

    @torch.no_grad()
    def next_state(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Return the LSTM's states after ``obs``: (n, state_size)."""
        seen = torch.as_tensor(obs, device=self.device)
        state: NDArray[np.float32] = self.nets.next_state(seen).cpu().numpy()
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
        learning_rate = value_at(config.learning_rate, progress) * self.learning_rate_factor
        beta = config.priority_beta + (1 - config.priority_beta) * progress

        history: list[dict[str, Tensor]] = []
        for lesson in self._lessons(memory, gradient_steps, beta):
            loss, metrics = dqn_loss(self.nets, lesson, self.scalars)
            errors = metrics.pop("errors")
            if isinstance(memory, PrioritisedMemory) and lesson.slot is not None:
                memory.set_errors(lesson.slot, errors)
            grad_norm = self.learner.step(loss, learning_rate)
            history.append({**metrics, "grad_norm": grad_norm})
        return {**means(history), "learning_rate": learning_rate, "epsilon": self.epsilon}

    def _count_steps(self, n: int) -> None:
        """Count ``n`` env steps, and let the target follow as often as it was due in them."""
        interval = self.config.target_update_interval
        due = (self.env_steps + n) // interval - self.env_steps // interval
        self.env_steps += n
        if due:
            self.target.follow(self.learner, 1 - (1 - self.config.tau) ** due)

    def _epsilon_at(self, progress: float) -> float:
        config = self.config
        if progress >= config.exploration_fraction:
            return config.exploration_final_eps
        done = progress / config.exploration_fraction
        change = config.exploration_final_eps - config.exploration_initial_eps
        return config.exploration_initial_eps + done * change

    def _lessons(self, memory: ReplayMemory, n: int, beta: float) -> Iterator[Lesson]:
        """Yield ``n`` minibatches."""
        size = self.config.batch_size
        if isinstance(memory, PrioritisedMemory):  # each depends on what was learned before
            for _ in range(n):
                yield self._lesson(memory.sample(size, self.generator, beta))
            return
        if self.state_size:
            length, burn_in = self.config.sequence_length, self.config.burn_in
            for _ in range(n):
                yield self._lesson(
                    memory.sample_sequences(max(1, size // length), length, burn_in, self.generator)
                )
            return
        # A few large draws cost less than many small ones, and so do values of a fixed target.
        at_once = 1 if self.is_image else max(1, LARGE // size)
        alike = not (self.config.double or self.config.noisy or self.nets.n_outputs > 1)
        for first in range(0, n, at_once):
            rows = size * min(at_once, n - first)
            drawn = memory.sample(rows, self.generator)
            lesson = self._lesson(drawn) if alike else None
            for i in range(0, rows, size):
                part = slice(i, i + size)
                yield lesson.rows(part) if lesson else self._lesson(drawn.rows(part))

    @torch.no_grad()
    def _lesson(self, batch: Batch) -> Lesson:
        """Return what is to be learned from some transitions, as the target network sees it."""
        burn_in, target, nets = self.burn_in, self.target.module, self.nets
        # Independent noise for learning, valuing and choosing, as the paper has it.
        noise = self.nets.draw_noise(self.generator, 3)
        learning, valuing, choosing = (None, None, None) if noise is None else noise
        next_obs = target.warm_up(batch.next_obs, burn_in)
        outputs = chooser = target(next_obs, valuing)
        if self.config.double:
            chooser = nets(nets.warm_up(batch.next_obs, burn_in), choosing)
        best = nets.best(chooser, next_obs)
        wanted = nets.returns.target(batch.reward, batch.discount, pick(outputs, best))
        obs = nets.warm_up(batch.obs, burn_in)
        return Lesson(obs, batch.action, wanted, batch.weight, batch.slot, learning)

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
