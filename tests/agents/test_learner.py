from __future__ import annotations

from typing import Any

import pytest
import torch
from rltune.agents.config import AgentConfig, make_config
from rltune.agents.learner import Learner, Target
from torch import nn


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))


def reference_optimizer(name: str, parameters: Any) -> torch.optim.Optimizer:
    if name == "adam":
        return torch.optim.Adam(parameters, eps=1e-5)
    return torch.optim.RMSprop(parameters, eps=1e-5, alpha=0.99)


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
@pytest.mark.parametrize("max_grad_norm", [0.1, 0.0])
def test_steps_are_those_of_torch(optimizer: str, max_grad_norm: float) -> None:
    ours, theirs = network(), network()
    config = make_config(AgentConfig, {"optimizer": optimizer, "max_grad_norm": max_grad_norm})
    learner = Learner(ours, config)
    reference = reference_optimizer(optimizer, theirs.parameters())
    generator = torch.Generator().manual_seed(1)
    for step in range(20):
        x = torch.randn(16, 3, generator=generator)
        learning_rate = 1e-2 / (1 + step)
        norm = learner.step((ours(x) - 3).square().mean(), learning_rate)

        reference.param_groups[0]["lr"] = learning_rate
        reference.zero_grad()
        (theirs(x) - 3).square().mean().backward()
        limit = max_grad_norm or float("inf")
        their_norm = nn.utils.clip_grad_norm_(theirs.parameters(), limit)
        reference.step()
        torch.testing.assert_close(norm, their_norm)
    for own, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-6)


def test_parameters_are_views_of_one_buffer() -> None:
    net = network()
    before = [p.detach().clone() for p in net.parameters()]
    learner = Learner(net, AgentConfig())
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    learner.flat.zero_()
    assert all(not p.any() for p in net.parameters())


def test_the_state_is_complete() -> None:
    nets = [network(), network()]
    learners = [Learner(net, AgentConfig()) for net in nets]
    x = torch.ones(4, 3)
    for _ in range(3):
        learners[0].step(nets[0](x).mean(), 1e-2)
    nets[1].load_state_dict(nets[0].state_dict())
    learners[1].load_state_dict(learners[0].state_dict())
    for net, learner in zip(nets, learners, strict=True):
        learner.step(net(x).square().mean(), 1e-2)
    assert torch.equal(learners[0].flat, learners[1].flat)


def test_a_target_follows() -> None:
    net = torch.nn.Linear(3, 2)
    learner, target = Learner(net, AgentConfig()), Target(net)
    before = target.module.weight.clone()
    learner.flat += 1.0
    assert torch.equal(target.module.weight, before)
    target.follow(learner, 0.25)
    torch.testing.assert_close(target.module.weight, before + 0.25)
    target.follow(learner, 1.0)
    assert torch.equal(target.module.weight, net.weight)
    assert not any(p.requires_grad for p in target.module.parameters())


def test_adams_betas_and_clipping_by_value_are_those_of_torch() -> None:
    ours, theirs = network(), network()
    config = make_config(
        AgentConfig,
        {"adam_beta1": 0.5, "beta2": 0.9, "max_grad_value": 0.05, "max_grad_norm": 0.12},
    )
    learner = Learner(ours, config)
    reference = torch.optim.Adam(theirs.parameters(), lr=1e-2, betas=(0.5, 0.9), eps=1e-5)
    x = torch.randn(16, 3, generator=torch.Generator().manual_seed(1))
    for _ in range(5):
        norm = learner.step((ours(x) - 3).square().mean(), 1e-2)
        reference.zero_grad()
        (theirs(x) - 3).square().mean().backward()
        whole = torch.cat([p.grad.reshape(-1) for p in theirs.parameters() if p.grad is not None])
        torch.testing.assert_close(norm, whole.norm())  # before clipping
        nn.utils.clip_grad_value_(theirs.parameters(), 0.05)
        assert float(nn.utils.clip_grad_norm_(theirs.parameters(), 0.12)) > 0.12
        reference.step()
    for own, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-6)
