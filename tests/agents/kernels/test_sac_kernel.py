from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import off_policy_kernels as check
import pytest
import torch
from gymnasium import spaces
from replay_helpers import fill
from rltune.agents.algorithms.sac import SAC, Scalars, actor_loss, critic_loss
from rltune.agents.algorithms.sac_batches import SACBatch
from rltune.agents.config import make_config
from rltune.agents.errors import UserError
from rltune.agents.spaces import AugmentedBox, Spaces

IMAGE = spaces.Box(0, 255, (3, 40, 40), np.uint8)


def assert_gradients(agent: SAC, batch: SACBatch) -> None:
    hp = Scalars(torch.tensor(0.3), torch.tensor(-1.0), agent.reward_scale)
    nets, exact, hp = (check.double(part) for part in (agent.nets, batch, hp))
    gradient, metrics = agent.kernel.critics_gradient(batch, 0.3)
    loss, expected = critic_loss(nets, exact, hp)
    check.assert_gradient(gradient, loss, nets.critics.parameters())
    check.assert_metrics(metrics, expected)
    gradient, metrics = agent.kernel.actor_gradient(batch, 0.3)
    loss, expected = actor_loss(nets, exact, hp)
    check.assert_gradient(gradient, loss, nets.actor.parameters())
    assert expected.pop("entropies").tolist() == [expected["entropy"].item()]  # a Box has one
    check.assert_metrics(metrics, expected)


def batch_of(agent: SAC, noise: float = 0.3) -> SACBatch:
    """Return a minibatch; with less noise there are fewer all but saturated actions."""
    batch = agent.minibatches.draw(fill(agent, 60))
    return batch._replace(noise=noise * batch.noise, next_noise=noise * batch.next_noise)


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
def test_gradients_are_those_of_the_losses(activation: str, changes: dict[str, Any]) -> None:
    agent = check.make(SAC, activation=activation, **changes)
    for _ in range(3):
        assert_gradients(agent, batch_of(agent))


@pytest.mark.parametrize("part", [0.1, 0.6, 1.0])
def test_units_without_a_part(part: float) -> None:
    agent = check.make(SAC, net_arch=[128, 140])
    for network in (agent.nets.actor, *agent.nets.critics.networks):
        check.silence(network, part)
    with torch.no_grad():  # without them all values would be alike
        agent.nets.critics.networks[0][1].bias += 0.1
    assert_gradients(agent, batch_of(agent))


@pytest.mark.parametrize("log_std", [-30.0, -19.9, 1.9, 30.0])
def test_log_std_at_its_limits(log_std: float) -> None:
    agent = check.make(SAC)
    with torch.no_grad():
        agent.nets.actor.head.bias[2:] = log_std
    assert_gradients(agent, batch_of(agent, noise=0.03))


def test_saturated_actions() -> None:
    agent = check.make(SAC)
    with torch.no_grad():
        agent.nets.actor.head.bias[:2] = torch.tensor([30.0, -30.0])
    assert_gradients(agent, batch_of(agent))


def test_one_critic_may_be_the_smaller_everywhere() -> None:
    agent = check.make(SAC)
    for which in (0, 1):
        with torch.no_grad():
            agent.nets.critics.networks[which][1].bias -= 10.0 * (1 + which)
        assert_gradients(agent, batch_of(agent))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"net_arch": [128, 128], "batch_size": 128},
        {"td_loss": "huber", "ent_coef": "0.05", "activation": "tanh", "n_step": 3},
        {"max_grad_norm": 0.3, "max_grad_value": 0.1, "optimizer": "rmsprop", "reward_scale": 0.5},
        {"target_update_interval": 3, "ent_coef": "auto_0.2", "actor_learning_rate": 1e-3},
    ],
)
def test_ten_updates_are_those_of_pytorch(changes: dict[str, Any]) -> None:
    check.assert_same_updates(SAC, **changes)


def test_actions_are_those_of_pytorch() -> None:
    check.assert_same_acting(SAC)


def test_nan_is_found() -> None:
    check.assert_metrics_tell_of_nan(SAC)


def test_a_training_goes_on_with_either_engine(tmp_path: Path) -> None:
    check.assert_resumes("sac", tmp_path / "agent.pt")


@pytest.mark.parametrize(
    ("space", "action", "changes", "why"),
    [
        ((4,), spaces.Discrete(3), {}, "choices"),
        ((4,), None, {"use_sde": True}, "use_sde"),
        ((4,), None, {"layer_norm": True}, "LayerNorm"),
        ((4,), None, {"lstm_size": 8, "sequence_length": 4}, "LSTM"),
        ((4,), None, {"net_arch": []}, "hidden layer"),
        (IMAGE, None, {"encoder": "mlp"}, "images"),
    ],
)
def test_other_networks_are_left_to_pytorch(
    space: Any, action: Any, changes: dict[str, Any], why: str
) -> None:
    seen = spaces.Box(-1, 1, space, np.float32) if isinstance(space, tuple) else space
    done = spaces.Box(-1, 1, (2,), np.float32) if action is None else action
    config = make_config(SAC.Config, {"net_arch": [8], "buffer_size": 100, **changes})
    agent = SAC(config, Spaces(seen, done, 1), seed=0)
    agent.use_engine("auto")
    assert agent.engine == "torch"
    with pytest.raises(UserError, match=why):
        agent.use_engine("numpy")


def test_masks_are_left_to_pytorch() -> None:
    seen = AugmentedBox(spaces.Box(-1, 1, (4,), np.float32), 2)
    agent = check.make(SAC, "auto", obs=seen)
    assert agent.engine == "torch"
