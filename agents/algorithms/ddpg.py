"""Deep deterministic policy gradient (Lillicrap et al. 2016, arXiv:1509.02971)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.algorithm import Algorithm
from rltune.agents.algorithms.noise import ActionNoise, make_noise
from rltune.agents.algorithms.off_policy import TD_LOSSES, ActorCriticConfig, averages
from rltune.agents.config import hp
from rltune.agents.generators import restore_generator, weight_generator
from rltune.agents.kernels.ddpg import DDPGKernel
from rltune.agents.kernels.off_policy import ActorKernel, CriticsKernel
from rltune.agents.kernels.standard import check_off_policy
from rltune.agents.learner import Learner, Target
from rltune.agents.memory.batch import Batch
from rltune.agents.memory.hindsight import replay_memory
from rltune.agents.memory.replay import ReplayMemory
from rltune.agents.networks.actions import BoxScale
from rltune.agents.networks.actors import DeterministicActor
from rltune.agents.networks.critics import Critics
from rltune.agents.spaces import Spaces
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class DDPGConfig(ActorCriticConfig):
    """The hyperparameters of DDPG."""

    learning_rate: float | str = hp(
        1e-3, low=1e-5, high=1e-2, scale="log", schedule=True, help="step size of the optimizers"
    )
    net_arch: tuple[int, ...] = hp(
        (400, 300), minimum=1, mutable=False, help="hidden layers of each network, as 400,300"
    )
    learning_starts: int = hp(
        100,
        low=0,
        high=10_000,
        mutable=False,
        help="env steps of random actions before the first update",
    )
    n_step: int = hp(1, low=1, high=10, minimum=1, help="rewards summed before a value is asked")
    noise_type: str = hp(
        "normal",
        choices=("normal", "ornstein-uhlenbeck"),
        mutable=False,
        help="noise on the actions, each environment its own",
    )
    noise_std: float = hp(
        0.1, low=0.0, high=0.5, help="standard deviation of the noise; actions span [-1, 1]"
    )
    actor_model: str = hp(
        "", outputs=("tanh",), mutable=False, help="file that describes the actor's network"
    )
    critic_model: str = hp("", outputs=("",), mutable=False, help="the same for the critic")


class DDPGBatch(NamedTuple):
    """Sampled transitions with actions in [-1, 1]; the first axis of every tensor is the batch."""

    obs: Tensor
    action: Tensor
    reward: Tensor
    next_obs: Tensor
    discount: Tensor
    noise: Tensor | None  # standard normal, to smooth the target's actions (TD3)


class Scalars(NamedTuple):
    """The hyperparameters in the losses, as 0-d tensors; the last two are TD3's."""

    reward_scale: Tensor
    target_policy_noise: Tensor | None = None
    target_noise_clip: Tensor | None = None


class DDPGNets(nn.Module):
    """Actor and critics, and the targets that follow them."""

    def __init__(
        self,
        actor: DeterministicActor,
        critics: Critics,
        targets: tuple[nn.Module, nn.Module],
        td_loss: Callable[[Tensor], Tensor] = torch.square,
    ) -> None:
        super().__init__()
        self.td_loss = td_loss
        self.actor, self.critics = actor, critics
        self.target_actor, self.target_critics = targets

    def next_action(self, batch: DDPGBatch, hp: Scalars) -> Tensor:
        """Return the target actor's next actions, with clipped noise where there is one."""
        action: Tensor = self.target_actor(batch.next_obs)
        if batch.noise is None or hp.target_policy_noise is None or hp.target_noise_clip is None:
            return action
        noise = batch.noise * hp.target_policy_noise
        noise = noise.clamp(-hp.target_noise_clip, hp.target_noise_clip)
        return (action + noise).clamp(-1, 1)


def critic_loss(nets: DDPGNets, batch: DDPGBatch, hp: Scalars) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of the TD errors, summed over the critics; the smallest target counts."""
    with torch.no_grad():
        next_q = nets.target_critics(batch.next_obs, nets.next_action(batch, hp)).amin(0)
        reward = hp.reward_scale * batch.reward.unsqueeze(1)
        target = reward + batch.discount.unsqueeze(1) * next_q
    q = nets.critics(batch.obs, batch.action)
    loss = nets.td_loss(q - target).mean((1, 2)).sum()
    return loss, {"critic_loss": loss.detach(), "q_value": q.detach().mean()}


def actor_loss(nets: DDPGNets, batch: DDPGBatch, _hp: Scalars) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the negative value of the actor's actions, by the first critic."""
    loss = -nets.critics.first(batch.obs, nets.actor(batch.obs)).mean()
    return loss, {"actor_loss": loss.detach()}


class DDPG(Algorithm[DDPGConfig]):
    """DDPG with Stable-Baselines3's semantics, but with noise on the actions by default."""

    Config = DDPGConfig
    data_parallel = True
    on_policy = False
    tolerates_lag = True
    n_critics: ClassVar[int] = 1

    def __init__(
        self, config: DDPGConfig, spaces: Spaces, *, seed: int, device: str = "cpu"
    ) -> None:
        super().__init__(config, spaces, seed=seed, device=device)
        self.update_every = config.train_freq
        self.scale = BoxScale(spaces.action, type(self).__name__, self.device)
        size, init = self.scale.size, weight_generator(seed)
        actor = DeterministicActor(spaces, size, config, init).to(self.device)
        critics = Critics(spaces, self.n_critics, size, 1, config, init).to(self.device)
        self.actor_learner, self.critic_learner = Learner(actor, config), Learner(critics, config)
        self.target_actor, self.target_critics = Target(actor), Target(critics)
        targets = (self.target_actor.module, self.target_critics.module)
        self.nets = DDPGNets(actor, critics, targets, TD_LOSSES[config.td_loss])
        self.noise: ActionNoise = make_noise(config.noise_type, size, config.noise_std)
        self.scalars = Scalars(torch.tensor(config.reward_scale, device=self.device))
        self.policy_delay = 1
        self.acted = 0  # env steps of exploration
        self.updated = 0  # env steps that updates were called for
        self.n_updates = 0

    def make_kernel(self) -> DDPGKernel:
        """Return what computes in NumPy, for standard networks."""
        config, actor = self.config, self.nets.actor
        check_off_policy(actor.torso, self.nets.critics, config)
        return DDPGKernel(
            ActorKernel(actor, self.actor_learner.flat, config.activation),
            ActorKernel(self.target_actor.module, self.target_actor.flat, config.activation),
            CriticsKernel(
                self.nets.critics, self.critic_learner.flat, self.target_critics.flat, config
            ),
            config,
        )

    def make_memory(self) -> ReplayMemory:
        """Return an empty replay memory; it holds actions as the environments got them."""
        config = self.config
        return replay_memory(
            config, self.spaces, self.scale.shape, np.float32, n_step=config.n_step
        )

    @torch.no_grad()
    def act(self, obs: NDArray[Any], *, explore: bool) -> NDArray[Any]:
        """Return actions within their bounds for ``obs`` (n, ...); greedy unless ``explore``."""
        n = len(obs)
        if explore and self.acted < self.config.learning_starts:
            action = self.scale.random(n, self.generator)
        else:
            inputs = torch.from_numpy(obs).to(self.device)
            action = self.nets.actor(inputs) if self.kernel is None else self.kernel.act(inputs)
        if explore:
            self.acted += n
            # Random actions have noise, too: some then lie on the bounds, where policies go.
            action = (action + self.noise.draw(n, self.generator)).clamp(-1, 1)
        return self.scale.to_space(action)

    def restart_exploration(self) -> None:
        """Let the noise begin anew with the next exploring step."""
        self.noise.restart()

    def episodes_ended(self, ended: NDArray[np.bool_]) -> None:
        """Let the noise begin anew in these environments: bool (n_envs,)."""
        self.noise.reset(torch.from_numpy(ended))

    def greedy(self, inputs: Tensor) -> Tensor:
        """Return the actor's actions, see `Algorithm.greedy`."""
        return self.scale.as_actions(self.nets.actor(inputs))

    def imitation(self, inputs: Tensor, action: Tensor) -> Tensor:
        """Return the loss of a policy that imitates actions."""
        return self.nets.actor.imitation(inputs, self.scale.to_nets(action))

    def update(self, memory: ReplayMemory, progress: float) -> dict[str, float]:
        """Learn from ``gradient_steps`` minibatches, once there were ``learning_starts`` steps."""
        self.updated += self.config.train_freq
        if self.updated <= self.config.learning_starts:
            return {}
        learning_rate = self.learning_rate_at(progress)
        actor_rate = self.learning_rate_at(progress, self.config.actor_learning_rate)
        critic_rate = self.learning_rate_at(progress, self.config.critic_learning_rate)
        critic_history: list[dict[str, Any]] = []
        actor_history: list[dict[str, Any]] = []
        for _ in range(self.config.gradient_steps):
            self.n_updates += 1
            drawn = memory.sample(self.config.batch_size, self.generator)
            batch = self.critic_learner.shares.rows(self._transitions(drawn))
            critic_history.append(self._learn_critics(batch, critic_rate))
            if self.n_updates % self.policy_delay == 0:
                actor_history.append(self._learn_actor(batch, actor_rate))
                self.target_critics.follow(self.critic_learner, self.config.tau)
                self.target_actor.follow(self.actor_learner, self.config.tau)
        return {
            **averages(critic_history),
            **(averages(actor_history) if actor_history else {}),
            "learning_rate": learning_rate,
        }

    def _learn_critics(self, batch: DDPGBatch, rate: float) -> dict[str, Any]:
        if self.kernel is not None:
            gradient, found = self.kernel.critics_gradient(batch)
            self.critic_learner.descend(gradient, rate)
            return dict(found)
        loss, metrics = critic_loss(self.nets, batch, self.scalars)
        self.critic_learner.step(loss, rate)
        return metrics

    def _learn_actor(self, batch: DDPGBatch, rate: float) -> dict[str, Any]:
        if self.kernel is not None:
            gradient, found = self.kernel.actor_gradient(batch)
            self.actor_learner.descend(gradient, rate)
            return dict(found)
        loss, metrics = actor_loss(self.nets, batch, self.scalars)
        self.actor_learner.step(loss, rate)
        return metrics

    def _transitions(self, batch: Batch) -> DDPGBatch:
        action = self.scale.to_nets(batch.action)
        noise = self._smoothing(action)
        return DDPGBatch(batch.obs, action, batch.reward, batch.next_obs, batch.discount, noise)

    def _smoothing(self, action: Tensor) -> Tensor | None:
        """Return standard normal noise for the target's actions; DDPG wants none."""
        return None

    def state_dict(self) -> dict[str, Any]:
        """Return networks, optimizers, counters, noise and generator."""
        return {
            "nets": self.nets.state_dict(),
            "actor_learner": self.actor_learner.state_dict(),
            "critic_learner": self.critic_learner.state_dict(),
            "noise": self.noise.state_dict(),
            "counters": [self.acted, self.updated, self.n_updates],
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        self.nets.load_state_dict(state["nets"])
        self.actor_learner.load_state_dict(state["actor_learner"])
        self.critic_learner.load_state_dict(state["critic_learner"])
        self.noise.load_state_dict(state["noise"])
        self.acted, self.updated, self.n_updates = state["counters"]
        restore_generator(self.generator, state["generator"])
