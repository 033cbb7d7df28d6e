from __future__ import annotations

from pathlib import Path
from typing import Any

import off_policy_kernels as check
import pytest
import torch
from replay_helpers import fill
from rltune.agents.algorithms.ddpg import DDPG, DDPGBatch, actor_loss, critic_loss
from rltune.agents.algorithms.td3 import TD3
from rltune.agents.errors import UserError

BOTH = pytest.mark.parametrize("cls", [DDPG, TD3])


def batch_of(agent: DDPG) -> DDPGBatch:
    memory = fill(agent, 60)
    return agent._transitions(memory.sample(agent.config.batch_size, agent.generator))


def assert_gradients(agent: DDPG, batch: DDPGBatch) -> None:
    nets, exact = check.double(agent.nets), check.double(batch)
    hp = check.double(agent.scalars)
    gradient, metrics = agent.kernel.critics_gradient(batch)
    loss, expected = critic_loss(nets, exact, hp)
    check.assert_gradient(gradient, loss, nets.critics.parameters())
    check.assert_metrics(metrics, expected)
    gradient, metrics = agent.kernel.actor_gradient(batch)
    loss, expected = actor_loss(nets, exact, hp)
    check.assert_gradient(gradient, loss, nets.actor.parameters())
    check.assert_metrics(metrics, expected)


@BOTH
@pytest.mark.parametrize("activation", ["tanh", "relu", "elu", "silu"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"batch_size": 1},
        {"batch_size": 300, "net_arch": [64], "td_loss": "huber", "reward_scale": 3.0},
        {"net_arch": [8, 130, 20], "size": 1, "obs": (2, 3)},
    ],
)
def test_gradients_are_those_of_the_losses(
    cls: Any, activation: str, changes: dict[str, Any]
) -> None:
    agent = check.make(cls, activation=activation, **changes)
    for _ in range(3):
        assert_gradients(agent, batch_of(agent))


@BOTH
@pytest.mark.parametrize("part", [0.1, 0.6, 1.0])
def test_units_without_a_part(cls: Any, part: float) -> None:
    agent = check.make(cls, net_arch=[128, 140])
    for network in (agent.nets.actor, *agent.nets.critics.networks):
        check.silence(network, part)
    assert_gradients(agent, batch_of(agent))


@BOTH
def test_saturated_actions(cls: Any) -> None:
    agent = check.make(cls)
    with torch.no_grad():
        for actor in (agent.nets.actor, agent.nets.target_actor):
            actor.head.bias[:] = torch.tensor([30.0, 0.1])
    assert_gradients(agent, batch_of(agent))


@BOTH
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"net_arch": [128, 128], "batch_size": 128},
        {"td_loss": "huber", "activation": "tanh", "n_step": 3, "tau": 0.1},
        {"max_grad_norm": 0.3, "max_grad_value": 0.1, "optimizer": "rmsprop", "reward_scale": 0.5},
        {"actor_learning_rate": 1e-4, "noise_type": "ornstein-uhlenbeck"},
    ],
)
def test_ten_updates_are_those_of_pytorch(cls: Any, changes: dict[str, Any]) -> None:
    check.assert_same_updates(cls, **changes)


@pytest.mark.parametrize("policy_delay", [1, 3, 20])
def test_the_delay_and_the_noise_of_td3(policy_delay: int) -> None:
    check.assert_same_updates(
        TD3, policy_delay=policy_delay, target_policy_noise=0.5, target_noise_clip=0.1
    )


@BOTH
@pytest.mark.parametrize("noise_type", ["normal", "ornstein-uhlenbeck"])
def test_actions_are_those_of_pytorch(cls: Any, noise_type: str) -> None:
    check.assert_same_acting(cls, noise_type=noise_type)


@BOTH
def test_nan_is_found(cls: Any) -> None:
    check.assert_metrics_tell_of_nan(cls)


@pytest.mark.parametrize("name", ["ddpg", "td3"])
def test_a_training_goes_on_with_either_engine(name: str, tmp_path: Path) -> None:
    check.assert_resumes(name, tmp_path / "agent.pt")


@BOTH
def test_other_networks_are_left_to_pytorch(cls: Any) -> None:
    agent = check.make(cls, "auto", layer_norm=True)
    assert agent.engine == "torch"
    with pytest.raises(UserError, match="LayerNorm"):
        agent.use_engine("numpy")
