"""Soft actor-critic (Haarnoja et al. 2018, arXiv:1801.01290 and arXiv:1812.05905).

For Box actions, and for choices (Christodoulou 2019, arXiv:1910.07207), where expectations over the
actions are sums. Of several choices at once (MultiDiscrete, MultiBinary) each has a distribution
and a part of the value of its own: Q(s, a) = sum_i Q_i(s, a_i). For such a value the best policy
has independent choices too, so nothing else is lost. Each choice has a temperature of its own; a
learned one stays at most at 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.algorithm import Algorithm
from rltune.agents.algorithms.off_policy import TD_LOSSES, averages
from rltune.agents.algorithms.sac_batches import Minibatches, SACBatch
from rltune.agents.algorithms.sac_config import SACConfig
from rltune.agents.algorithms.sac_temperature import TargetEntropy, Temperature
from rltune.agents.errors import NotStandardError
from rltune.agents.generators import restore_generator, weight_generator
from rltune.agents.kernels.off_policy import ActorKernel, CriticsKernel
from rltune.agents.kernels.sac import SACKernel
from rltune.agents.kernels.standard import check_off_policy
from rltune.agents.learner import Learner, Target
from rltune.agents.memory.hindsight import replay_memory
from rltune.agents.memory.replay import ReplayMemory
from rltune.agents.memory.sequences import check_replayed
from rltune.agents.networks.actions import BoxScale, Choices
from rltune.agents.networks.actors import FactoredCategorical, SquashedGaussian
from rltune.agents.networks.critics import Critics
from rltune.agents.spaces import InputParts, Spaces, with_states
from torch import Tensor, nn


class Scalars(NamedTuple):
    """The hyperparameters in the losses, as 0-d tensors; the first two may be (choices,)."""

    ent_coef: Tensor
    target_entropy: Tensor
    reward_scale: Tensor


class SACNets(nn.Module):
    """Actor and critics, and the target that follows the critics."""

    def __init__(
        self,
        actor: SquashedGaussian | FactoredCategorical,
        critics: Critics,
        target: Critics,
        td_loss: Callable[[Tensor], Tensor] = torch.square,
    ) -> None:
        super().__init__()
        self.td_loss = td_loss
        self.actor, self.critics, self.target_critics = actor, critics, target


def critic_loss(nets: SACNets, batch: SACBatch, hp: Scalars) -> tuple[Tensor, dict[str, Tensor]]:
    """Return half of the TD errors' loss, summed over the critics."""
    with torch.no_grad():
        next_q, log_prob = nets.actor.expect(nets.target_critics, batch.next_obs, batch.next_noise)
        soft_value = next_q - (hp.ent_coef * log_prob).sum(1)
        target = hp.reward_scale * batch.reward + batch.discount * soft_value
    q = nets.actor.values(nets.critics, batch.obs, batch.action)
    loss = 0.5 * nets.td_loss(q - target).flatten(1).mean(1).sum()
    return loss, {"critic_loss": loss.detach(), "q_value": q.detach().mean()}


def actor_loss(nets: SACNets, batch: SACBatch, hp: Scalars) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the actor's loss: its divergence from the best policy of the soft values.

    Beside 0-d metrics there are the ``entropies`` of the choices, by which the temperatures learn.
    """
    q, log_prob = nets.actor.expect(nets.critics, batch.obs, batch.noise)
    loss = ((hp.ent_coef * log_prob).sum(1) - q).mean()
    entropies = -log_prob.detach().mean(0)
    metrics = {"actor_loss": loss.detach(), "entropy": entropies.sum(), "entropies": entropies}
    return loss, metrics


def temperature_loss(temperature: Temperature, entropies: Tensor, hp: Scalars) -> Tensor:
    """Return a loss that higher temperatures lower where entropies are below their targets."""
    return (temperature.log * (entropies - hp.target_entropy)).sum()


class SAC(Algorithm[SACConfig]):
    """SAC with Stable-Baselines3's semantics, so that rl-zoo3's settings mean the same here."""

    Config = SACConfig
    data_parallel = True
    on_policy = False
    tolerates_lag = True

    def __init__(
        self, config: SACConfig, spaces: Spaces, *, seed: int, device: str = "cpu"
    ) -> None:
        spaces = with_states(spaces, config.lstm_size, config.lstm_size)
        super().__init__(config, spaces, seed=seed, device=device)
        self.state_size = 4 * config.lstm_size  # the actor's, then the critics'
        if config.lstm_size:
            check_replayed(config, spaces)
        self.update_every = config.train_freq
        init = weight_generator(seed)
        actor: SquashedGaussian | FactoredCategorical
        if isinstance(spaces.action, gymnasium.spaces.Box):
            self.scale: BoxScale | Choices = BoxScale(spaces.action, "SAC", self.device)
            log_std = config.log_std_init if config.use_sde else None
            actor = SquashedGaussian(spaces, self.scale.size, config, log_std, init)
            critics = Critics(spaces, 2, self.scale.size, 1, config, init)
        else:
            self.scale = Choices(spaces.action, "SAC")
            actor = FactoredCategorical(spaces, self.scale, config, init)
            critics = Critics(spaces, 2, 0, sum(self.scale.counts), config, init)
        actor, critics = actor.to(self.device), critics.to(self.device)
        n_temperatures = len(actor.target_entropies())
        self.temperature = Temperature(config.ent_coef, n_temperatures).to(self.device)
        self.target_entropy = TargetEntropy(config.target_entropy, actor, self.device)
        self.actor_learner, self.critic_learner = Learner(actor, config), Learner(critics, config)
        self.temperature_learner = Learner(self.temperature, config)
        self.target = Target(critics)
        td_loss = TD_LOSSES[config.td_loss]
        self.nets = SACNets(actor, critics, self.target.module, td_loss)
        self.reward_scale = torch.tensor(config.reward_scale, device=self.device)
        self.minibatches = Minibatches(
            actor, critics, self.target.module, self.scale, config, self.generator
        )
        self.parts = InputParts(spaces.observation)
        self.exploration: Tensor | None = None  # gSDE's noise functions, one an environment
        self.steps_explored = 0  # with gSDE's noise functions, since the last update
        self.acted = 0  # env steps of exploration
        self.updated = 0  # env steps that updates were called for
        self.n_updates = 0

    def make_kernel(self) -> SACKernel:
        """Return what computes in NumPy, for Box actions and standard networks."""
        actor, critics, config = self.nets.actor, self.nets.critics, self.config
        if not isinstance(actor, SquashedGaussian):
            raise NotStandardError("actions that are choices")
        if actor.use_sde:
            raise NotStandardError("use_sde")
        check_off_policy(actor.torso, critics, config)
        return SACKernel(
            ActorKernel(actor, self.actor_learner.flat, config.activation),
            CriticsKernel(critics, self.critic_learner.flat, self.target.flat, config),
            config,
        )

    def make_memory(self) -> ReplayMemory:
        """Return an empty replay memory; it holds actions as the environments got them."""
        config, scale = self.config, self.scale
        return replay_memory(config, self.spaces, scale.shape, scale.dtype, n_step=config.n_step)

    @torch.no_grad()
    def act(self, obs: NDArray[Any], *, explore: bool) -> NDArray[Any]:
        """Return actions within their bounds for ``obs`` (n, ...); greedy unless ``explore``."""
        n, actor = len(obs), self.nets.actor
        inputs = torch.from_numpy(obs).to(self.device)
        if not explore:
            greedy = actor(inputs) if self.kernel is None else self.kernel.act(inputs, None)
            return self.scale.to_space(greedy)
        self.acted += n
        if self.acted - n < self.config.learning_starts:
            mask = self.parts.mask(inputs) if self.parts.n_mask else None
            return self.scale.to_space(self.scale.random(n, self.generator, mask))
        if self.kernel is not None:
            drawn = self.kernel.act(inputs, actor.noise(n, self.generator))
            return self.scale.to_space(drawn)
        if not isinstance(actor, SquashedGaussian) or not actor.use_sde:
            return self.scale.to_space(actor.explore(inputs, self.generator))
        every = self.config.sde_sample_freq
        if self.exploration is None or (every > 0 and self.steps_explored % every == 0):
            self.exploration = actor.functions(n, self.generator)
        self.steps_explored += 1
        return self.scale.to_space(actor.explore_sde(inputs, self.exploration))

    @torch.no_grad()
    def next_state(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Return the states of both LSTMs after ``obs``: (n, state_size)."""
        inputs = torch.from_numpy(obs).to(self.device)
        states = [net.next_state(inputs) for net in (self.nets.actor.torso, self.nets.critics)]
        joined: NDArray[np.float32] = torch.cat(states, 1).cpu().numpy()
        return joined

    def restart_exploration(self) -> None:
        """Draw new noise functions with the next exploring step."""
        self.exploration, self.steps_explored = None, 0

    def greedy(self, inputs: Tensor) -> Tensor:
        """Return the greedy actions, see `Algorithm.greedy`."""
        return self.scale.as_actions(self.nets.actor(inputs))

    def greedy_state(self, inputs: Tensor) -> Tensor:
        """Return the states of the actor's LSTM after ``inputs``; the critics' play no part."""
        return self.nets.actor.torso.next_state(inputs)

    def imitation(self, inputs: Tensor, action: Tensor) -> Tensor:
        """Return the loss of a policy that imitates actions."""
        return self.nets.actor.imitation(inputs, self.scale.to_nets(action))

    def update(self, memory: ReplayMemory, progress: float) -> dict[str, float]:
        """Learn from ``gradient_steps`` minibatches, once there were ``learning_starts`` steps."""
        self.exploration, self.steps_explored = None, 0
        self.updated += self.config.train_freq
        if self.updated <= self.config.learning_starts:
            return {}
        if self.state_size and memory.steps < self.config.burn_in + self.config.sequence_length:
            return {}  # there is no sequence yet
        config = self.config
        learning_rate = self.learning_rate_at(progress)
        actor_rate = self.learning_rate_at(progress, config.actor_learning_rate)
        critic_rate = self.learning_rate_at(progress, config.critic_learning_rate)
        temperature_rate = self.learning_rate_at(progress, config.temperature_learning_rate)
        history: list[dict[str, Any]] = []
        for _ in range(self.config.gradient_steps):
            self.n_updates += 1
            batch = self.critic_learner.shares.rows(self.minibatches.draw(memory))
            target_entropy = self.target_entropy.of(batch.obs)
            scalars = Scalars(self.temperature.value(), target_entropy, self.reward_scale)
            critic_metrics = self._learn_critics(batch, scalars, critic_rate)
            actor_metrics = self._learn_actor(batch, scalars, actor_rate)
            entropies = actor_metrics.pop("entropies", actor_metrics["entropy"])
            if self.temperature.learned:
                self._learn_temperature(entropies, scalars, temperature_rate)
            if self.n_updates % self.config.target_update_interval == 0:
                self.target.follow(self.critic_learner, self.config.tau)
            mean = scalars.ent_coef.mean()
            history.append({**critic_metrics, **actor_metrics, "ent_coef": mean})
        return {**averages(history), "learning_rate": learning_rate}

    def _learn_critics(self, batch: SACBatch, hp: Scalars, rate: float) -> dict[str, Any]:
        if self.kernel is not None:
            gradient, found = self.kernel.critics_gradient(batch, float(hp.ent_coef))
            self.critic_learner.descend(gradient, rate)
            return dict(found)
        loss, metrics = critic_loss(self.nets, batch, hp)
        self.critic_learner.step(loss, rate)
        return metrics

    def _learn_actor(self, batch: SACBatch, hp: Scalars, rate: float) -> dict[str, Any]:
        if self.kernel is not None:
            gradient, found = self.kernel.actor_gradient(batch, float(hp.ent_coef))
            self.actor_learner.descend(gradient, rate)
            return dict(found)
        loss, metrics = actor_loss(self.nets, batch, hp)
        self.actor_learner.step(loss, rate)
        return metrics

    def _learn_temperature(self, entropies: Any, hp: Scalars, rate: float) -> None:
        if self.kernel is not None:  # for a Box, which has one entropy
            gradient = np.array([entropies - float(hp.target_entropy)], np.float32)
            self.temperature_learner.descend(gradient, rate)
            return
        self.temperature_learner.step(temperature_loss(self.temperature, entropies, hp), rate)
        self.temperature.clip(self.nets.actor.largest_temperature)

    def state_dict(self) -> dict[str, Any]:
        """Return networks, optimizers, temperature, counters, gSDE's noise and generator."""
        return {
            "nets": self.nets.state_dict(),
            "temperature": self.temperature.state_dict(),
            "actor_learner": self.actor_learner.state_dict(),
            "critic_learner": self.critic_learner.state_dict(),
            "temperature_learner": self.temperature_learner.state_dict(),
            "exploration": self.exploration,
            "counters": [self.acted, self.updated, self.n_updates, self.steps_explored],
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        for name in ("nets", "actor_learner", "critic_learner"):
            getattr(self, name).load_state_dict(state[name])
        if self.temperature.learned:  # else the configuration says it
            self.temperature.restore(state["temperature"]["log"])
        self.temperature_learner.load_state_dict(state["temperature_learner"])
        exploration = state["exploration"]
        self.exploration = None if exploration is None else exploration.to(self.device)
        self.acted, self.updated, self.n_updates, self.steps_explored = state["counters"]
        restore_generator(self.generator, state["generator"])
