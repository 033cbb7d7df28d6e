"""Actor-critic with experience replay, ACER (Wang et al. 2017, arXiv:1611.01224)."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from gymnasium import spaces as gym_spaces
from numpy.typing import NDArray
from rltune.agents.algorithm import Algorithm, means
from rltune.agents.algorithms.acer_config import ACERConfig
from rltune.agents.errors import UserError
from rltune.agents.generators import restore_generator, weight_generator
from rltune.agents.learner import Learner, Target
from rltune.agents.memory.segments import SegmentMemory, Segments
from rltune.agents.networks.actor_critic import ACERNet
from rltune.agents.networks.distributions import make_distribution
from rltune.agents.spaces import Spaces
from torch import Tensor, nn

EPS = 1e-6  # keeps the trust region's division finite


class ACERBatch(NamedTuple):
    """Segments, and what is known of them without the gradient; axes (n_envs, n_steps, ...)."""

    obs: Tensor  # (n_envs, n_steps + 1, ...)
    action: Tensor
    reward: Tensor
    mu: Tensor
    terminated: Tensor
    cut: Tensor
    valid: Tensor
    final_value: Tensor  # of the true successors of the steps that are cut, elsewhere 0
    average: Tensor | None  # the average policy's probabilities; None: no trust region


class Scalars(NamedTuple):
    """The hyperparameters in the loss, as 0-d tensors."""

    gamma: Tensor
    importance_c: Tensor
    trust_region_delta: Tensor
    ent_coef: Tensor
    q_coef: Tensor
    importance_eps: Tensor = torch.tensor(1e-6)


def retrace(batch: ACERBatch, rho: Tensor, q: Tensor, value: Tensor, gamma: Tensor) -> Tensor:
    """Return Retrace's targets (algorithm 2; Munos et al. 2016, arXiv:1606.02647).

    Args:
        batch: the segments
        rho: importance weights of the actions: (n_envs, n_steps)
        q: values of the actions: (n_envs, n_steps)
        value: of the observations: (n_envs, n_steps + 1)
        gamma: discount factor
    """
    next_value = torch.where(batch.cut, batch.final_value, value[:, 1:])
    surprise = batch.reward + gamma * next_value * ~batch.terminated - q
    # The trace ends with the episode: what stands behind it belongs to another one.
    trace = gamma * rho[:, 1:].clamp(max=1.0) * ~(batch.terminated | batch.cut)[:, :-1]
    surprises, traces = surprise.unbind(1), trace.unbind(1)
    sums = [surprises[-1]]
    for t in range(len(traces) - 1, -1, -1):
        sums.append(torch.addcmul(surprises[t], traces[t], sums[-1]))
    return q + torch.stack(sums[::-1], 1)


def within_trust_region(gradient: Tensor, k: Tensor, delta: Tensor) -> Tensor:
    """Return the vector closest to ``gradient`` that raises the divergence by ``delta`` at most.

    Equation 12; ``k`` is the gradient of the divergence. The last axis is the policy's statistics.
    """
    excess = (k * gradient).sum(-1, keepdim=True) - delta
    return gradient - (excess / (k.square().sum(-1, keepdim=True) + EPS)).clamp(min=0.0) * k


def acer_loss(nets: nn.Module, batch: ACERBatch, hp: Scalars) -> tuple[Tensor, dict[str, Tensor]]:
    """Return a loss whose gradient is ACER's: of the policy (equations 9 and 12) and of Q.

    The policy's statistics are its logits. (In the paper they are the probabilities; those move
    only along the simplex, and a projection that ignores it bounds good and bad news unequally.)
    """
    n_envs, n_rows = batch.obs.shape[:2]
    logits, values = (out.view(n_envs, n_rows, -1) for out in nets(batch.obs.flatten(0, 1)))
    action = batch.action.unsqueeze(-1)
    q_taken = values[:, :-1].gather(-1, action).squeeze(-1)
    weight = batch.valid.float()
    weight = weight / weight.sum().clamp(min=1.0)

    with torch.no_grad():
        log_pi = logits.log_softmax(-1)
        pi, q = log_pi.exp(), values
        value = (pi * q).sum(-1)
        log_pi, pi, q = log_pi[:, :-1], pi[:, :-1], q[:, :-1]
        rho = pi / (batch.mu + hp.importance_eps)
        rho_taken = rho.gather(-1, action)
        target = retrace(batch, rho_taken.squeeze(-1), q_taken, value, hp.gamma)
        advantage = (target - value[:, :-1]).unsqueeze(-1)
        # What the log-probabilities weigh: the action that was taken, by its truncated importance,
        # and all of them, by what truncation leaves out.
        truncated = torch.minimum(rho_taken, hp.importance_c) * advantage
        left_out = (1 - hp.importance_c / (rho + hp.importance_eps)).clamp(min=0.0) * pi
        taken = torch.arange(pi.shape[-1], device=pi.device) == action
        gain = taken * truncated + left_out * (q - value[:, :-1, None])
        entropy = -(pi * log_pi).sum(-1, keepdim=True)
        # With respect to the logits: of the weighted log-probabilities, and of the entropy.
        gradient = gain - pi * (gain.sum(-1, keepdim=True) + hp.ent_coef * (log_pi + entropy))
        bound = gradient
        if batch.average is not None:
            bound = within_trust_region(gradient, pi - batch.average, hp.trust_region_delta)
        metrics = {
            "policy_loss": -(weight * (gain * log_pi).sum(-1)).sum(),
            "entropy": (weight * entropy.squeeze(-1)).sum(),
            "importance_weight": (weight * rho_taken.squeeze(-1)).sum(),
            "trust_region_fraction": (weight * (bound != gradient).any(-1)).sum(),
        }

    q_loss = 0.5 * (weight * (target - q_taken).square()).sum()
    # The gradient of this with respect to the logits is what was found above.
    policy_loss = -(weight * (bound * logits[:, :-1]).sum(-1)).sum()
    return policy_loss + hp.q_coef * q_loss, {**metrics, "q_loss": q_loss.detach()}


class ACER(Algorithm[ACERConfig]):
    """ACER for Discrete actions, with the semantics of OpenAI's baselines."""

    Config = ACERConfig

    def __init__(
        self, config: ACERConfig, spaces: Spaces, *, seed: int, device: str = "cpu"
    ) -> None:
        super().__init__(config, spaces, seed=seed, device=device)
        if not isinstance(spaces.action, gym_spaces.Discrete):
            kind = type(spaces.action).__name__
            raise UserError(f"acer chooses among Discrete actions, not in a {kind} space; use ppo")
        self.update_every = config.n_steps * spaces.n_envs
        self.distribution = make_distribution(spaces.action)
        self.n_actions = self.distribution.n_params
        init = weight_generator(seed)
        self.nets = ACERNet(spaces, self.n_actions, config, init).to(self.device)
        self.learner = Learner(self.nets, config)
        self.average = Target(self.nets)
        values = (getattr(config, name) for name in Scalars._fields)
        self.scalars = Scalars(*(torch.tensor(value, device=self.device) for value in values))
        self.replay_ratio = torch.tensor(config.replay_ratio, device=self.device)

    def make_memory(self) -> SegmentMemory:
        """Return an empty memory of segments."""
        config = self.config
        return SegmentMemory(config.buffer_size, config.n_steps, self.spaces, self.n_actions)

    @torch.no_grad()
    def act(self, obs: NDArray[Any], *, explore: bool) -> NDArray[Any]:
        """Return the actions for ``obs`` (n, ...); the most likely ones unless ``explore``."""
        logits = self.nets.logits(torch.from_numpy(obs).to(self.device))
        if explore:
            noise = self.distribution.noise(len(obs), self.generator)
            action = self.distribution.sample(logits, noise)
        else:
            action = self.distribution.mode(logits)
        return action.squeeze(-1).cpu().numpy()

    def greedy(self, inputs: Tensor) -> Tensor:
        """Return the most likely actions, see `Algorithm.greedy`."""
        return self.distribution.mode(self.nets.logits(inputs)).squeeze(-1)

    def imitation(self, inputs: Tensor, action: Tensor) -> Tensor:
        """Return the loss of a policy that imitates actions."""
        return self.distribution.imitation(self.nets.logits(inputs), action)

    def update(self, memory: SegmentMemory, progress: float) -> dict[str, float]:
        """Learn from a full rollout, keep it, and learn from a Poisson number of older ones."""
        fresh = torch.from_numpy(memory.fresh_obs).to(self.device)
        # The networks are still those that acted.
        memory.keep(self.nets.probabilities(fresh).cpu().numpy())
        replays = 0
        if memory.full or len(memory) >= self.config.replay_start:
            replays = int(torch.poisson(self.replay_ratio, generator=self.generator))
        learning_rate = self.learning_rate_at(progress)

        history = [self._learn(memory.newest(self.device), learning_rate)]
        for _ in range(replays):
            history.append(self._learn(memory.sample(self.generator), learning_rate))
        return {
            **means(history),
            "learning_rate": learning_rate,
            "replays": float(replays),
        }

    def _learn(self, segments: Segments, learning_rate: float) -> dict[str, Tensor]:
        loss, metrics = acer_loss(self.nets, self._batch(segments), self.scalars)
        metrics["grad_norm"] = self.learner.step(loss, learning_rate)
        if self.config.trust_region:
            self.average.follow(self.learner, 1 - self.config.average_decay)
        return metrics

    @torch.no_grad()
    def _batch(self, segments: Segments) -> ACERBatch:
        """Return the segments with what the networks say of them outside of the gradient."""
        final_value = torch.zeros_like(segments.reward)
        if len(segments.final_obs):
            final_value.view(-1)[segments.final_index] = self.nets.value(segments.final_obs)
        average = None
        if self.config.trust_region:
            average = self.average.module.probabilities(segments.obs[:, :-1])
        return ACERBatch(*segments[:7], final_value, average)

    def state_dict(self) -> dict[str, Any]:
        """Return networks, average policy, optimizer and generator."""
        return {
            "nets": self.nets.state_dict(),
            "average": self.average.module.state_dict(),
            "learner": self.learner.state_dict(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        self.nets.load_state_dict(state["nets"])
        self.average.module.load_state_dict(state["average"])
        self.learner.load_state_dict(state["learner"])
        restore_generator(self.generator, state["generator"])
