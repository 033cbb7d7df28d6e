"""Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.algorithm import Algorithm, Spaces
from rltune.agents.config import OnPolicyConfig, hp
from rltune.agents.distributions import make_distribution
from rltune.agents.learner import Learner
from rltune.agents.memory import RolloutMemory
from rltune.agents.networks import ActorCritic
from rltune.agents.returns import generalised_advantages
from rltune.agents.schedules import value_at
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class PPOConfig(OnPolicyConfig):
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
    target_kl: float = hp(
        0.0, low=0.003, high=0.1, scale="log", help="end an update beyond 1.5 times this; 0: never"
    )


class Batch(NamedTuple):
    """Rows of a rollout, the first axis of every tensor."""

    obs: Tensor
    action: Tensor  # (batch, size)
    log_prob: Tensor  # of the policy that acted
    value: Tensor  # before the update
    advantage: Tensor
    target: Tensor  # what the value should have been

    def rows(self, index: Tensor) -> Batch:
        """Return some of the rows."""
        return Batch(*(tensor.index_select(0, index) for tensor in self))


class Scalars(NamedTuple):
    """The hyperparameters in the loss, as 0-d tensors."""

    clip_range: Tensor
    clip_range_vf: Tensor | None  # None: the value function is not limited
    ent_coef: Tensor
    vf_coef: Tensor


def ppo_loss(nets: nn.Module, batch: Batch, hp: Scalars) -> tuple[Tensor, dict[str, Tensor]]:
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

    def __init__(
        self, config: PPOConfig, spaces: Spaces, *, seed: int, device: str = "cpu"
    ) -> None:
        super().__init__(config, spaces, seed=seed, device=device)
        self.update_every = config.n_steps * spaces.n_envs
        self.distribution = make_distribution(spaces.action)
        # Drawn on the CPU, so that a seed means the same weights on every device.
        cpu_generator = torch.Generator().manual_seed(seed)
        self.nets = ActorCritic(spaces, self.distribution, config, cpu_generator).to(self.device)
        self.learner = Learner(self.nets, config)
        self.exploration: Tensor | None = None  # gSDE's noise functions, one an environment
        self.steps_explored = 0

    def make_memory(self) -> RolloutMemory:
        """Return an empty rollout memory."""
        assert self.spaces.action.shape is not None
        return RolloutMemory(
            self.config.n_steps, self.spaces, self.spaces.action.shape, self.distribution.dtype
        )

    # ------------------------------------------------------------------------------------- acting

    @torch.no_grad()
    def act(
        self, obs: NDArray[Any], *, explore: bool, mask: NDArray[np.bool_] | None = None
    ) -> NDArray[Any]:
        """Return the raw (unclipped) actions for ``obs`` (n, ...); greedy unless ``explore``."""
        if mask is not None:
            raise NotImplementedError("PPO knows no action masks yet")
        latent = self.nets.actor.torso(self.nets.encoder(self._tensor(obs)))
        params = self.nets.actor.params(latent)
        if not explore:
            action = self.distribution.mode(params)
        elif self.config.use_sde and self.nets.actor.std == "sde":
            noise = torch.bmm(latent.unsqueeze(1), self._exploration(len(obs))).squeeze(1)
            action = self.distribution.mode(params) + noise
        else:
            noise = self.distribution.noise(len(obs), self.generator)
            action = self.distribution.sample(params, noise)
        shape = (len(obs), *self.spaces.action.shape)  # type: ignore[misc]
        return action.cpu().numpy().astype(self.distribution.dtype, copy=False).reshape(shape)

    def _exploration(self, n_envs: int) -> Tensor:
        """Return gSDE's noise functions, new ones when it is time for them."""
        every = self.config.sde_sample_freq
        if self.exploration is None or (every > 0 and self.steps_explored % every == 0):
            self.exploration = self.nets.actor.exploration_matrices(n_envs, self.generator)
        self.steps_explored += 1
        return self.exploration

    # ------------------------------------------------------------------------------------ learning

    def update(self, memory: RolloutMemory, progress: float) -> dict[str, float]:
        """Learn from a full rollout and clear it."""
        rollout = self._evaluate(memory)
        memory.clear()
        self.exploration, self.steps_explored = None, 0
        learning_rate = value_at(self.config.learning_rate, progress) * self.learning_rate_factor
        scalars = self._scalars(progress)

        history: list[dict[str, Tensor]] = []
        norms: list[Tensor] = []
        for batch in self._minibatches(rollout):
            loss, metrics = ppo_loss(self.nets, batch, scalars)
            history.append(metrics)
            if 0 < self.config.target_kl < float(metrics["approx_kl"]) / 1.5:
                break
            norms.append(self.learner.step(loss, learning_rate))
        return {
            **_means(history),
            "grad_norm": float(torch.stack(norms).mean()) if norms else 0.0,
            "explained_variance": _explained_variance(rollout),
            "learning_rate": learning_rate,
            "clip_range": float(scalars.clip_range),
            "updates": float(len(history)),
        }

    @torch.no_grad()
    def _evaluate(self, memory: RolloutMemory) -> Batch:
        """Return the rollout with log-probabilities, values and advantages, from one forward."""
        n = memory.reward.size
        obs = memory.obs.reshape(n, *memory.obs.shape[2:])
        action = self._tensor(memory.action.reshape(n, -1))
        params, values = self.nets(self._tensor(np.concatenate([obs, memory.final_obs])))
        log_prob, _ = self.distribution.evaluate(params[:n], action)

        value, final_value = np.split(values.cpu().numpy(), [n])
        value = value.reshape(memory.reward.shape)
        next_value = np.empty_like(value)
        next_value[:-1] = value[1:]
        next_value[tuple(np.transpose(memory.final_index))] = final_value
        advantage = generalised_advantages(
            memory.reward,
            value,
            next_value,
            memory.terminated,
            memory.truncated,
            self.config.gamma,
            self.config.gae_lambda,
        )
        rollout = Batch(
            obs=self._tensor(obs),
            action=action,
            log_prob=log_prob,
            value=values[:n],
            advantage=self._tensor(advantage.reshape(-1)),
            target=self._tensor((advantage + value).reshape(-1)),
        )
        # The memory's arrays are used again; index_select copies, the whole rollout would not be.
        valid = self._tensor(np.flatnonzero(memory.valid))
        return rollout.rows(valid)

    def _minibatches(self, rollout: Batch) -> Any:
        """Yield the minibatches of all epochs, shuffled anew for each."""
        n = len(rollout.advantage)
        batch_size = self.config.batch_size
        if self.config.n_minibatches > 0:
            batch_size = max(1, n // self.config.n_minibatches)
        if batch_size >= n:  # one minibatch is the same in any order
            whole = self._normalised(rollout)
            for _ in range(self.config.n_epochs):
                yield whole
            return
        for _ in range(self.config.n_epochs):
            order = torch.randperm(n, generator=self.generator, device=self.device)
            for index in torch.split(order, batch_size):
                yield self._normalised(rollout.rows(index))

    def _normalised(self, batch: Batch) -> Batch:
        advantage = batch.advantage
        if not self.config.normalize_advantage or len(advantage) < 2:
            return batch
        return batch._replace(advantage=(advantage - advantage.mean()) / (advantage.std() + 1e-8))

    def _scalars(self, progress: float) -> Scalars:
        def scalar(value: float | str) -> Tensor:
            return torch.tensor(value_at(value, progress), device=self.device)

        limited = self.config.clip_range_vf != 0
        return Scalars(
            clip_range=scalar(self.config.clip_range),
            clip_range_vf=scalar(self.config.clip_range_vf) if limited else None,
            ent_coef=scalar(self.config.ent_coef),
            vf_coef=scalar(self.config.vf_coef),
        )

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        return torch.from_numpy(array).to(self.device)

    # -------------------------------------------------------------------------------------- saving

    def state_dict(self) -> dict[str, Any]:
        """Return networks, optimizer, generator and exploration noise."""
        return {
            "nets": self.nets.state_dict(),
            "learner": self.learner.state_dict(),
            "generator": self.generator.get_state(),
            "exploration": self.exploration,
            "steps_explored": self.steps_explored,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        self.nets.load_state_dict(state["nets"])
        self.learner.load_state_dict(state["learner"])
        if self.device.type == "cpu" or len(state["generator"]) == len(self.generator.get_state()):
            self.generator.set_state(state["generator"].cpu())
        exploration = state["exploration"]
        self.exploration = None if exploration is None else exploration.to(self.device)
        self.steps_explored = state["steps_explored"]


def _means(history: list[dict[str, Tensor]]) -> dict[str, float]:
    """Return the mean of each metric over the minibatches, with one transfer from the device."""
    names = list(history[0])
    table = torch.stack([torch.stack([metrics[name] for name in names]) for metrics in history])
    return dict(zip(names, table.mean(0).tolist(), strict=True))


def _explained_variance(rollout: Batch) -> float:
    """Return the fraction of the targets' variance that the values explained: at most 1."""
    variance = rollout.target.var()
    residual = (rollout.target - rollout.value).var()
    return float(torch.where(variance > 0, 1 - residual / variance, 0.0))
