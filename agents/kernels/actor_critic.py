"""The actor and the critic of A2C and PPO: acting, values, and the gradient of a loss."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.kernels.mlp import MLPs
from rltune.agents.kernels.policies import Choice, Normal, Policy
from rltune.agents.kernels.slots import slot
from rltune.agents.kernels.standard import linear_layers
from rltune.agents.learner import Learner
from rltune.agents.networks.actor_critic import ActorCritic
from rltune.agents.networks.distributions import Gaussian
from torch import nn

Array = NDArray[Any]
CHUNK = 1024  # rows of a long rollout that are looked at together: their numbers stay in the cache


class ActorCriticKernel:
    """Computes with the parameters of an `ActorCritic` of standard form.

    Args:
        nets: the networks
        learner: optimises all their parameters
        activation: of the hidden layers
    """

    def __init__(self, nets: ActorCritic, learner: Learner, activation: str) -> None:
        self.learner = learner
        flat = learner.flat.numpy()
        self.gradient = np.empty_like(flat)
        torsos = [linear_layers(nets.actor.torso), linear_layers(nets.critic[0])]
        self._hidden = MLPs(torsos, learner.flat, activation)
        self._layers = self._hidden.layers(flat)
        self._gradients = self._hidden.layers(self.gradient)
        self._acting = MLPs(torsos[:1], learner.flat, activation)
        self._acting_layers = self._acting.layers(flat)
        heads = [nets.actor.head, cast(nn.Linear, nets.critic[1])]
        slots = [(slot([h.weight], learner.flat), slot([h.bias], learner.flat)) for h in heads]
        self._heads = [(w.of(flat)[0], b.of(flat)[0][:, None]) for w, b in slots]
        self._head_gradients = [(w.of(self.gradient)[0], b.of(self.gradient)[0]) for w, b in slots]
        self.policy: Policy = Choice()
        if isinstance(nets.distribution, Gaussian):
            log_std = slot([nets.actor.log_std], learner.flat)
            self.policy = Normal(log_std, flat, self.gradient)

    @np.errstate(all="ignore")  # of a policy that has come to nothing
    def act(self, obs: Array, generator: torch.Generator | None) -> Array:
        """Return actions (n, size) for ``obs`` (n, d).

        Args:
            obs: what is seen
            generator: of the noise; None: the most likely actions
        """
        rows = self._acting.rows(len(obs))
        hidden = self._acting.forward(self._acting_layers, obs.T, rows)[0]
        weight, bias = self._heads[0]
        outputs = np.dot(weight, hidden)
        outputs += bias
        if generator is None:
            return self.policy.mode(outputs).T
        return self.policy.sample(outputs, generator).T

    def forward(self, x: Array) -> tuple[Array, Array]:
        """Return the actor's outputs (outputs, rows) and the values (rows,) for ``x`` (d, rows)."""
        self._rows = self._hidden.rows(x.shape[1])
        self._x = x
        hidden = self._hidden.forward(self._layers, x, self._rows)
        (weight, bias), (value_weight, value_bias) = self._heads
        outputs = np.dot(weight, hidden[0])
        outputs += bias
        values = np.dot(value_weight, hidden[1])
        values += value_bias
        return outputs, values[0]

    def backward(self, log_prob: Array, entropy: float, value: Array) -> None:
        """Set the gradient of all parameters; `forward` and the policy's ``evaluate`` came before.

        Args:
            log_prob: the loss's gradient with respect to each log-probability: (rows,)
            entropy: the same with respect to each entropy
            value: the same with respect to each value: (rows,)
        """
        weight, _ = self._heads[0]
        outputs = np.empty((len(weight), len(value)), np.float32)
        self.policy.backward(log_prob, entropy, outputs)
        hidden = self._rows.outputs[-1].array
        below = self._rows.gradients[-1].array
        for i, gradient in enumerate((outputs, value[None])):
            weight, _ = self._heads[i]
            own_weight, own_bias = self._head_gradients[i]
            np.dot(gradient, hidden[i].T, out=own_weight)
            np.add.reduce(gradient, axis=1, out=own_bias)
            np.dot(weight.T, gradient, out=below[i])
        self._hidden.backward(self._layers, self._gradients, self._x, self._rows)

    @np.errstate(all="ignore")
    def evaluate(self, x: Array, action: Array) -> tuple[Array, Array]:
        """Return log-probabilities and values, each (rows,), of a whole rollout.

        Args:
            x: observations (d, rows), of which the last may have no action
            action: (size, rows)
        """
        n, n_actions = x.shape[1], action.shape[1]
        log_prob, value = np.empty(n_actions, np.float32), np.empty(n, np.float32)
        for first in range(0, n, CHUNK):
            part = slice(first, first + CHUNK)
            outputs, value[part] = self.forward(x[:, part])
            own = action[:, part]
            if own.shape[1]:
                outputs = outputs[:, : own.shape[1]]
                log_prob[part] = self.policy.evaluate(outputs, own)[0]
        return log_prob, value
