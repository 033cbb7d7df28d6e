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
from rltune.agents.replay import Batch, ReplayMemory
from rltune.agents.schedules import value_at
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
        super().__init__(config, spaces, seed=seed, device=device)
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
        self.is_image = len(spaces.observation.shape or ()) == 3
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
    def act(
        self, obs: NDArray[Any], *, explore: bool, mask: NDArray[np.bool_] | None = None
    ) -> NDArray[Any]:
        """Return the actions for ``obs`` (n, ...); with ``explore``, each row is random or not."""
        if mask is not None:
            raise NotImplementedError("dqn knows no action masks yet")
        n = len(obs)
        if not explore:
            return self._greedy(obs, None)
        warming_up = self.acted < self.config.learning_starts
        self.acted += n
        epsilon = 1.0 if warming_up else 0.0 if self.config.noisy else self.epsilon
        drawn = torch.rand(2, n, generator=self.generator, device=self.device).cpu().numpy()
        is_random = drawn[0] < epsilon
        action: NDArray[Any] = (drawn[1] * self.nets.n_actions).astype(np.int64)
        if is_random.all():
            return action
        greedy = self._greedy(obs, self.nets.draw_noise(self.generator, n))
        return np.where(is_random, action, greedy)

    def _greedy(self, obs: NDArray[Any], noise: Tensor | None) -> NDArray[Any]:
        outputs = self.nets(torch.as_tensor(obs, device=self.device), noise)
        action: NDArray[Any] = self.nets.returns.values(outputs).argmax(-1).cpu().numpy()
        return action

    def update(self, memory: ReplayMemory, progress: float) -> dict[str, float]:
        """Learn from ``gradient_steps`` minibatches, once ``learning_starts`` is over."""
        config = self.config
        self._count_steps(config.train_freq)
        self.epsilon = self._epsilon_at(progress)
        gradient_steps = config.gradient_steps if config.gradient_steps >= 0 else config.train_freq
        if self.env_steps <= config.learning_starts or not gradient_steps:
            return {}
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
        # Independent noise for learning, valuing and choosing, as the paper has it.
        noise = self.nets.draw_noise(self.generator, 3)
        learning, valuing, choosing = (None, None, None) if noise is None else noise
        outputs = self.target.module(batch.next_obs, valuing)
        chooser = self.nets(batch.next_obs, choosing) if self.config.double else outputs
        best = self.nets.returns.values(chooser).argmax(-1)
        target = self.nets.returns.target(batch.reward, batch.discount, pick(outputs, best))
        return Lesson(batch.obs, batch.action, target, batch.weight, batch.slot, learning)

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
