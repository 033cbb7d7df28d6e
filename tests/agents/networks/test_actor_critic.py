from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltune.agents.config import OnPolicyConfig, make_config
from rltune.agents.networks.actor_critic import ActorCritic
from rltune.agents.networks.distributions import make_distribution
from rltune.agents.spaces import Spaces

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
BOX = spaces.Box(-1, 1, (2,), np.float32)


def build(
    observation: Any = VECTOR, action: Any = BOX, seed: int = 0, **config: Any
) -> ActorCritic:
    return ActorCritic(
        Spaces(observation, action, 1),
        make_distribution(action),
        make_config(OnPolicyConfig, config),
        torch.Generator().manual_seed(seed),
    )


def test_weights_come_from_the_generator_alone() -> None:
    one = build()
    torch.manual_seed(99)
    again, other = build(), build(seed=1)
    for name, value in one.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])
    assert not torch.equal(one.actor.head.weight, other.actor.head.weight)


def test_orthogonal_initialisation() -> None:
    nets = build(net_arch=[16, 16])
    weight = nets.actor.torso[2].weight
    torch.testing.assert_close(weight @ weight.T, 2 * torch.eye(16), atol=1e-5, rtol=0)
    head = nets.actor.head.weight
    torch.testing.assert_close(head @ head.T, 1e-4 * torch.eye(2), atol=1e-7, rtol=0)
    assert all(not p.any() for name, p in nets.named_parameters() if name.endswith("bias"))


def test_actor_and_critic_share_nothing_on_vectors() -> None:
    nets = build()
    params, value = nets(torch.randn(5, 3))
    gradients = torch.autograd.grad(value.sum(), list(nets.actor.parameters()), allow_unused=True)
    assert all(g is None for g in gradients)
    assert params.shape == (5, 4)
    assert value.shape == (5,)


@pytest.mark.parametrize("state_dependent", [False, True])
def test_log_stds(state_dependent: bool) -> None:
    nets = build(state_dependent_std=state_dependent, log_std_init=-1.5)
    with torch.no_grad():
        nets.actor.head.weight.mul_(100)  # a trained head
    log_std = nets(torch.randn(5, 3))[0][:, 2:]
    assert (log_std.std(0) > 1e-3).all() == state_dependent
    if not state_dependent:
        assert (log_std == -1.5).all()


def test_gsde_noise_has_the_variance_of_the_density() -> None:
    nets = build(use_sde=True, log_std_init=-1.0)
    features = torch.randn(1, 3)
    with torch.no_grad():
        latent = nets.actor.torso(features)
        generator = torch.Generator().manual_seed(0)
        matrices = nets.actor.exploration_matrices(20_000, generator)
        noise = (latent.expand(20_000, 1, -1) @ matrices).squeeze(1)
        log_std = nets.actor(features)[0, 2:]
    torch.testing.assert_close(noise.std(0), log_std.exp(), rtol=0.03, atol=0)
    assert noise.mean(0).abs().max() < 0.05
    # The latent is not trained through the variance.
    loss = nets.actor(features)[:, 2:].sum()
    assert not torch.autograd.grad(loss, nets.actor.torso[0].weight)[0].any()
