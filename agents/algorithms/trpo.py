"""Trust region policy optimisation (Schulman et al. 2015, arXiv:1502.05477)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from rltune.agents.algorithm import Algorithm, means
from rltune.agents.algorithms.on_policy import Rollout, RolloutPolicy
from rltune.agents.algorithms.trust_region import line_search, natural_step
from rltune.agents.config import OnPolicyConfig, hp
from rltune.agents.kernels.rollouts import Transitions
from rltune.agents.kernels.standard import check_actor_critic
from rltune.agents.kernels.trpo import TRPOKernel
from rltune.agents.learner import Learner, flatten
from rltune.agents.memory.rollout import RolloutMemory
from rltune.agents.networks.actor_critic import ActorCritic
from rltune.agents.networks.distributions import Bernoulli, Gaussian
from rltune.agents.spaces import Spaces
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class TRPOConfig(OnPolicyConfig):
    """The hyperparameters of TRPO; optimizer and gradient norm are the critic's."""

    learning_rate: float | str = hp(
        1e-3, low=1e-4, high=1e-2, scale="log", schedule=True, help="step size of the critic"
    )
    max_grad_norm: float = hp(
        0.0, low=0.3, high=5.0, scale="log", help="largest gradient norm of the critic; 0: any"
    )
    vf_coef: float = hp(1.0, help="weight of the critic's loss: next to its gradient norm only")
    # With 8 environments the rows of sb3-contrib's default: 2048 steps of one.
    n_steps: int = hp(
        256, low=64, high=2048, scale="pow2", minimum=1, help="steps of each environment a rollout"
    )
    batch_size: int = hp(
        128, low=32, high=1024, scale="pow2", minimum=1, help="minibatch size of the critic"
    )
    n_critic_updates: int = hp(
        10, low=5, high=30, minimum=1, help="the critic's passes over each rollout"
    )
    target_kl: float = hp(
        0.01,
        low=0.003,
        high=0.1,
        scale="log",
        minimum=1e-6,
        help="the trust region: mean KL an update (Box, MultiBinary: and a dimension)",
    )
    cg_max_steps: int = hp(15, low=5, high=30, minimum=1, help="steps of conjugate gradient")
    cg_residual_tolerance: float = hp(
        1e-10, low=1e-12, high=1e-2, scale="log", help="it ends below this squared residual"
    )
    cg_damping: float = hp(0.1, low=1e-3, high=0.5, scale="log", help="added to the Fisher matrix")
    line_search_shrinking_factor: float = hp(
        0.8, low=0.5, high=0.9, maximum=1, help="how much shorter the next step of the search is"
    )
    line_search_max_iter: int = hp(10, low=5, high=20, minimum=1, help="steps the search tries")
    sub_sampling_factor: int = hp(
        1, low=1, high=8, minimum=1, help="the actor learns from one row in so many"
    )
    normalize_advantage: bool = hp(True, help="normalise the advantages of each rollout")
    advantage_eps: float = hp(
        1e-8, low=1e-8, high=1e-3, scale="log", help="added to the deviation that divides them"
    )
    actor_model: str = hp(
        "", outputs=("",), mutable=False, help="file that describes the actor's network"
    )
    critic_model: str = hp("", outputs=("",), mutable=False, help="the same for the critic")


class Scalars(NamedTuple):
    """The hyperparameters in the losses, as 0-d tensors."""

    ent_coef: Tensor
    vf_coef: Tensor


class Behaviour(NamedTuple):
    """Actions of the policy that acted; the first axis of every tensor is rows."""

    obs: Tensor
    action: Tensor
    log_prob: Tensor  # of the policy that acted
    advantage: Tensor
    params: Tensor  # of the distributions that acted


class Targets(NamedTuple):
    """The critic's training data: its inputs, and the target values."""

    features: Tensor
    target: Tensor


def policy_loss(
    nets: ActorCritic, batch: Behaviour, hp: Scalars
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the surrogate loss (equation 14) and, among the metrics, the divergence ``kl``."""
    params = nets.params(batch.obs)
    log_prob, entropies = nets.distribution.evaluate(params, batch.action)
    ratio = (log_prob - batch.log_prob).exp()
    entropy = entropies.mean()
    surrogate = -(batch.advantage * ratio).mean()
    kl = nets.distribution.kl(params, batch.params).mean()
    # sb3-contrib takes the mean over these dimensions too, and the known settings go with that.
    if isinstance(nets.distribution, (Bernoulli, Gaussian)):
        kl = kl / nets.distribution.size
    metrics = {"policy_loss": surrogate.detach(), "entropy": entropy.detach(), "kl": kl}
    return surrogate - hp.ent_coef * entropy, metrics


def value_loss(critic: nn.Module, batch: Targets, hp: Scalars) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the squared error of the critic."""
    loss = (batch.target - critic(batch.features).squeeze(-1)).square().mean()
    return hp.vf_coef * loss, {"value_loss": loss.detach()}


class TRPO(Algorithm[TRPOConfig]):
    """TRPO with sb3-contrib's semantics, so that rl-zoo3's settings mean the same here.

    A convolutional encoder belongs to the actor: the critic reads its features, but only the steps
    within the trust region change it.
    """

    Config = TRPOConfig

    def __init__(
        self, config: TRPOConfig, spaces: Spaces, *, seed: int, device: str = "cpu"
    ) -> None:
        super().__init__(config, spaces, seed=seed, device=device)
        self.update_every = config.n_steps * spaces.n_envs
        self.policy = RolloutPolicy(config, spaces, seed, self.generator)
        self.nets = self.policy.nets
        self.parameters = [*self.nets.encoder.parameters(), *self.nets.actor.parameters()]
        self.flat = flatten(self.parameters)
        self.learner = Learner(self.nets.critic, config)
        self.scalars = Scalars(
            ent_coef=torch.tensor(config.ent_coef, device=self.device),
            vf_coef=torch.tensor(config.vf_coef, device=self.device),
        )

    def make_kernel(self) -> TRPOKernel:
        """Return what computes in NumPy, for standard networks."""
        check_actor_critic(self.nets, self.config)
        kernel = TRPOKernel(self.nets, self.flat, self.learner, self.config, self.generator)
        self.policy.kernel = kernel
        return kernel

    def make_memory(self) -> RolloutMemory:
        """Return an empty rollout memory."""
        return self.policy.make_memory()

    def act(self, obs: NDArray[Any], *, explore: bool) -> NDArray[Any]:
        """Return the raw (unclipped) actions for ``obs`` (n, ...); greedy unless ``explore``."""
        return self.policy.act(obs, explore=explore)

    def restart_exploration(self) -> None:
        """Draw new noise functions with the next exploring step."""
        self.policy.begin_rollout()

    def greedy(self, inputs: Tensor) -> Tensor:
        """Return the greedy actions, see `Algorithm.greedy`."""
        return self.policy.greedy(inputs)

    def imitation(self, inputs: Tensor, action: Tensor) -> Tensor:
        """Return the loss of a policy that imitates actions."""
        return self.policy.imitation(inputs, action)

    def update(self, memory: RolloutMemory, progress: float) -> dict[str, float]:
        """Learn from a full rollout and clear it."""
        rollout = self.policy.take_rollout(memory)
        if rollout is None:
            return {}
        learning_rate = self.learning_rate_at(progress)
        if self.kernel is not None:
            learned_from = Transitions.of(self._actors_part(rollout))
            found = {
                **self.kernel.learn_policy(learned_from),
                **self.kernel.learn_values(Transitions.of(rollout), learning_rate),
            }
        else:
            found = {
                **self._update_actor(self._behaviour(self._actors_part(rollout))),
                **self._update_critic(rollout, learning_rate),
            }
        return {
            **found,
            "explained_variance": rollout.explained_variance(),
            "learning_rate": learning_rate,
        }

    def _actors_part(self, rollout: Rollout) -> Rollout:
        """Return the rows that the actor learns from."""
        every = self.config.sub_sampling_factor
        if every > 1:
            rollout = rollout.rows(self._shuffled(len(rollout.advantage))[::every])
        if self.config.normalize_advantage:
            rollout = rollout.normalised(self.config.advantage_eps)
        return rollout

    @torch.no_grad()
    def _behaviour(self, rollout: Rollout) -> Behaviour:
        """Return the data that the actor learns from."""
        params = self.nets.params(rollout.obs)
        return Behaviour(rollout.obs, rollout.action, rollout.log_prob, rollout.advantage, params)

    def _shuffled(self, n: int) -> Tensor:
        return torch.randperm(n, generator=self.generator, device=self.device)

    def _update_actor(self, batch: Behaviour) -> dict[str, float]:
        """Go as far along the natural gradient as the trust region allows (appendix C)."""
        config, target_kl = self.config, self.config.target_kl
        loss, metrics = policy_loss(self.nets, batch, self.scalars)
        step = natural_step(
            loss,
            metrics["kl"],
            self.parameters,
            target_kl,
            config.cg_damping,
            config.cg_max_steps,
            config.cg_residual_tolerance,
        )
        fraction, metrics = line_search(
            lambda: policy_loss(self.nets, batch, self.scalars),
            (loss.detach(), metrics),
            self.flat,
            step,
            target_kl,
            config.line_search_shrinking_factor,
            config.line_search_max_iter,
        )
        return {**means([metrics]), "step_fraction": fraction}

    def _update_critic(self, rollout: Rollout, learning_rate: float) -> dict[str, float]:
        """Fit the values to the targets."""
        with torch.no_grad():
            features = self.nets.read(rollout.obs)
        history: list[dict[str, Tensor]] = []
        for _ in range(self.config.n_critic_updates):
            for index in torch.split(self._shuffled(len(features)), self.config.batch_size):
                batch = Targets(*(t.index_select(0, index) for t in (features, rollout.target)))
                loss, metrics = value_loss(self.nets.critic, batch, self.scalars)
                norm = self.learner.step(loss, learning_rate)
                history.append({**metrics, "grad_norm": norm})
        return means(history)

    def state_dict(self) -> dict[str, Any]:
        """Return policy and the critic's optimizer."""
        return {**self.policy.state_dict(), "learner": self.learner.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        self.policy.load_state_dict(state)
        self.learner.load_state_dict(state["learner"])
