"""The update of TRPO: what `rltune.agents.algorithms.trpo` and `trust_region` define.

At the policy that acted, the second derivative of the divergence is Fisher's information: a change
of the parameters is taken forward to the outputs, weighed there, and taken back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.kernels.mlp import MLPs
from rltune.agents.kernels.policies import Choice, Normal, Policy
from rltune.agents.kernels.rollouts import Transitions
from rltune.agents.kernels.slots import slot
from rltune.agents.kernels.standard import linear_layers
from rltune.agents.learner import Learner
from rltune.agents.networks.actor_critic import ActorCritic
from rltune.agents.networks.distributions import Gaussian
from torch import Tensor

Array = NDArray[Any]


class Surrogate(NamedTuple):
    """What a policy is worth by the data of the one that acted."""

    loss: float
    policy_loss: float
    entropy: float
    kl: float


class TRPOKernel:
    """Acts, values and learns with the parameters of an `ActorCritic` of standard form.

    Args:
        nets: the networks
        flat: the buffer of the actor's parameters
        learner: optimises the critic's
        config: a `TRPOConfig`
        generator: of the minibatches
    """

    def __init__(
        self,
        nets: ActorCritic,
        flat: Tensor,
        learner: Learner,
        config: Any,
        generator: torch.Generator,
    ) -> None:
        self.learner, self.config, self.generator = learner, config, generator
        self.flat = flat.numpy()
        self.gradient = np.zeros_like(self.flat)
        self._direction = np.zeros_like(self.flat)
        activation = config.activation
        torso = linear_layers(nets.actor.torso)
        self._actor = MLPs([[*torso, nets.actor.head]], flat, activation, n_plain=1)
        self._layers, self._gradients, self._directions = (
            self._actor.layers(array) for array in (self.flat, self.gradient, self._direction)
        )
        critic = learner.flat.numpy()
        self.critic_gradient = np.zeros_like(critic)
        self._critic = MLPs([linear_layers(nets.critic)], learner.flat, activation, n_plain=1)
        self._critic_layers = self._critic.layers(critic)
        self._critic_gradients = self._critic.layers(self.critic_gradient)
        self.policy: Policy = Choice()
        self._kl_scale = 1.0
        if isinstance(nets.distribution, Gaussian):
            log_std = slot([nets.actor.log_std], flat)
            self.policy = Normal(log_std, self.flat, self.gradient)
            self._kl_scale = 1 / nets.distribution.size
            self._std = slice(log_std.offset, log_std.offset + nets.distribution.size)

    @np.errstate(all="ignore")  # of a policy that has come to nothing
    def act(self, obs: Array, generator: torch.Generator | None) -> Array:
        """Return actions (n, size) for ``obs`` (n, d); the most likely ones without a generator."""
        outputs = self._outputs(obs.T)
        if generator is None:
            return self.policy.mode(outputs).T
        return self.policy.sample(outputs, generator).T

    @np.errstate(all="ignore")
    def evaluate(self, x: Array, action: Array) -> tuple[Array, Array]:
        """Return log-probabilities and values of a rollout; see `ActorCriticKernel.evaluate`."""
        n = action.shape[1]
        log_prob = self.policy.evaluate(self._outputs(x[:, :n]), action)[0]
        return log_prob, self._values(x).copy()

    def _outputs(self, x: Array) -> Array:
        self._x, self._rows = x, self._actor.rows(x.shape[1])
        outputs: Array = self._actor.forward(self._layers, x, self._rows)[0]
        return outputs

    def _values(self, x: Array) -> Array:
        rows = self._critic.rows(x.shape[1])
        values: Array = self._critic.forward(self._critic_layers, x, rows)[0, 0]
        return values

    @np.errstate(all="ignore")  # what is not finite is found in the metrics
    def learn_policy(self, rollout: Transitions) -> dict[str, float]:
        """Go as far along the natural gradient as the trust region allows; returns metrics."""
        config = self.config
        outputs = self._outputs(rollout.obs)
        if isinstance(self.policy, Normal):
            self.policy.keep()
        acted = outputs.copy()
        before = self._surrogate(outputs, acted, rollout)
        downhill = -self._loss_gradient(rollout)
        direction = conjugate_gradient(
            self._fisher_product, downhill, config.cg_max_steps, config.cg_residual_tolerance
        )
        curvature = direction.dot(self._fisher_product(direction))
        step = direction * np.sqrt(2 * config.target_kl / curvature)

        start, fraction, found = self.flat.copy(), 1.0, before
        for _ in range(config.line_search_max_iter):
            np.add(start, np.float32(fraction) * step, out=self.flat)
            now = self._surrogate(self._outputs(rollout.obs), acted, rollout)
            # Written so that NaN, as from a gradient of 0, is no success.
            if now.kl < config.target_kl and now.loss < before.loss:
                found = now
                break
            fraction *= config.line_search_shrinking_factor
        else:
            self.flat[:], fraction = start, 0.0
        metrics = {name: float(value) for name, value in found._asdict().items() if name != "loss"}
        return {**metrics, "step_fraction": fraction}

    def _surrogate(self, outputs: Array, acted: Array, rollout: Transitions) -> Surrogate:
        """Return what the policy of ``outputs`` is worth, and keep what its gradient needs."""
        n = len(rollout.advantage)
        log_prob, entropies = self.policy.evaluate(outputs, rollout.action)
        self._ratio = np.exp(log_prob - rollout.log_prob)
        loss = -rollout.advantage.dot(self._ratio) / n
        entropy = np.add.reduce(entropies) / n
        kl = np.add.reduce(self.policy.kl(outputs, acted)) / n * self._kl_scale
        return Surrogate(loss - self.config.ent_coef * entropy, loss, entropy, kl)

    def _loss_gradient(self, rollout: Transitions) -> Array:
        n = len(rollout.advantage)
        to_log_prob = rollout.advantage * self._ratio / np.float32(-n)
        own = self._rows.gradients[-1].array[0]
        self.policy.backward(to_log_prob, -self.config.ent_coef / n, own)
        self._actor.backward(self._layers, self._gradients, self._x, self._rows)
        return self.gradient

    def _fisher_product(self, vector: Array) -> Array:
        """Return the divergence's second derivative, with damping, times ``vector``."""
        self._direction[:] = vector
        n = self._x.shape[1]
        tangent = self._actor.tangent(self._layers, self._directions, self._x, self._rows)[0]
        curved = self.policy.curvature(tangent) * np.float32(self._kl_scale / n)
        self._rows.gradients[-1].array[0] = curved
        self._actor.backward(self._layers, self._gradients, self._x, self._rows)
        if isinstance(self.policy, Normal):
            self.gradient[self._std] = vector[self._std] * np.float32(2 * self._kl_scale)
        product: Array = self.gradient + np.float32(self.config.cg_damping) * vector
        return product

    @np.errstate(all="ignore")
    def learn_values(self, rollout: Transitions, learning_rate: float) -> dict[str, float]:
        """Fit the values to the targets; returns metrics."""
        losses: list[float] = []
        norms: list[float] = []
        n, size, vf_coef = len(rollout.target), self.config.batch_size, self.config.vf_coef
        for _ in range(self.config.n_critic_updates):
            order = torch.randperm(n, generator=self.generator).numpy()
            obs, target = rollout.obs.take(order, axis=1), rollout.target.take(order)
            for first in range(0, n, size):
                part = slice(first, first + size)
                losses.append(self._value_gradient(obs[:, part], target[part], vf_coef))
                norms.append(self.learner.descend(self.critic_gradient, learning_rate))
        return {"value_loss": sum(losses) / len(losses), "grad_norm": sum(norms) / len(norms)}

    def _value_gradient(self, x: Array, target: Array, vf_coef: float) -> float:
        """Set the gradient of the critic's loss; returns the loss without its weight."""
        rows = self._critic.rows(len(target))
        error = self._values(x) - target
        np.multiply(
            error, np.float32(2 * vf_coef / len(target)), out=rows.gradients[-1].array[0, 0]
        )
        self._critic.backward(self._critic_layers, self._critic_gradients, x, rows)
        return float(error.dot(error)) / len(target)


def conjugate_gradient(
    product: Callable[[Array], Array], b: Array, max_steps: int, tolerance: float
) -> Array:
    """Return an x with A x = b (approximately); see `trust_region.conjugate_gradient`."""
    x, residual = np.zeros_like(b), b
    direction, squared = residual, residual.dot(residual)
    for _ in range(max_steps):
        if squared < tolerance:
            break
        curvature = product(direction)
        step = squared / direction.dot(curvature)
        x = x + step * direction
        residual = residual - step * curvature
        previous, squared = squared, residual.dot(residual)
        direction = residual + squared / previous * direction
    return x
