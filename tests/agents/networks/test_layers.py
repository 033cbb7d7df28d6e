from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rltune.agents import Agent
from rltune.agents.config import hyperparameters
from rltune.agents.model_files import parse_model
from rltune.agents.networks.layers import ModelLayers, initialise, mlp
from rltune.agents.registry import BUILTIN, agent_class
from small_agents import AGENTS
from torch import nn

SHARING = [name for name in AGENTS if "shared_torso" in hyperparameters(agent_class(name).Config)]


def make(name: str, **config: Any) -> Agent:
    env, small = AGENTS[name]
    return Agent(name, env, {**small, **config}, total_timesteps=96, seed=1, device="cpu")


def weights(agent: Agent) -> torch.Tensor:
    nets = agent.algorithm.nets  # type: ignore[attr-defined]
    return torch.cat([p.detach().reshape(-1) for p in nets.parameters()])


def check_it_trains_and_resumes(path: Path, name: str, **config: Any) -> Agent:
    whole, first = make(name, **config), make(name, **config)
    before = weights(whole).clone()
    whole.learn(96)
    first.learn(40)
    first.save(path)
    again = Agent.load(path, device="cpu")
    again.learn(96)
    assert torch.equal(weights(whole), weights(again))
    assert torch.isfinite(weights(whole)).all()
    assert not torch.equal(weights(whole), before)
    return again


def test_every_agent_is_here() -> None:
    assert AGENTS.keys() == {name for name in BUILTIN if not agent_class(name).offline}
    assert SHARING == ["a2c", "acer", "ppo"]


@pytest.mark.parametrize("name", AGENTS)
def test_layer_norm_is_in_every_hidden_layer(name: str, tmp_path: Path) -> None:
    agent = check_it_trains_and_resumes(tmp_path / "a.pt", name, layer_norm=True)
    nets = agent.algorithm.nets  # type: ignore[attr-defined]
    norms = [m for m in nets.modules() if isinstance(m, nn.LayerNorm)]
    linear = [m for m in nets.modules() if isinstance(m, nn.Linear)]
    hidden = [m for m in linear if m.out_features == 16]
    assert len(norms) == len(hidden) >= 2
    trained = [norm for norm in norms if norm.weight.requires_grad]
    assert any((norm.weight != 1).any() for norm in trained)
    assert not any(isinstance(m, nn.LayerNorm) for m in make(name).algorithm.nets.modules())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "config", [{"dueling": True}, {"noisy": True}, {"distributional": "c51"}], ids=str
)
def test_layer_norm_goes_with_dqns_switches(config: dict[str, Any], tmp_path: Path) -> None:
    check_it_trains_and_resumes(tmp_path / "a.pt", "dqn", layer_norm=True, **config)


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("name", SHARING)
def test_a_shared_torso_is_trained_by_actor_and_critic(
    name: str, layer_norm: bool, tmp_path: Path
) -> None:
    config = {"shared_torso": True, "layer_norm": layer_norm}
    agent = check_it_trains_and_resumes(tmp_path / "a.pt", name, **config)
    nets = agent.algorithm.nets  # type: ignore[attr-defined]
    assert [m.out_features for m in nets.modules() if isinstance(m, nn.Linear)][:2] == [16, 16]
    assert sum(isinstance(m, nn.Linear) for m in nets.modules()) == 4
    first = next(nets.encoder.parameters())
    for i in range(2):
        assert torch.autograd.grad(nets(torch.randn(5, 4))[i].square().sum(), first)[0].any()


def test_what_is_normalised_has_mean_0_before_the_activation() -> None:
    layers = mlp([3, 16], "tanh", layer_norm=True)
    seen: list[torch.Tensor] = []
    layers[1][1].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    layers(torch.randn(5, 3) * 100)
    assert seen[0].mean(1).abs().max() < 1e-5
    assert seen[0].std(1, correction=0).numpy() == pytest.approx(np.ones(5), abs=1e-3)


def test_layer_norms_keep_1_and_0() -> None:
    layers = mlp([3, 16], "relu", layer_norm=True)
    for rule in ("orthogonal", "xavier", "torch"):
        initialise(layers, 2.0, rule, torch.Generator().manual_seed(0))
        norm = layers[1][0]
        assert (norm.weight == 1).all()
        assert (norm.bias == 0).all()


def test_layers_of_a_model_file_begin_as_it_says() -> None:
    text = "[dense] units=8 initializer=orthogonal gain=3 [dense] units=8 [dense] output=1"
    layers = ModelLayers(parse_model(text, ("",), "model").layers, (8,))
    initialise(nn.Sequential(layers, nn.Linear(8, 8)), 0.0, "torch", torch.Generator())
    first, second = layers.requires_grad_(False).layers
    torch.testing.assert_close(first.weight @ first.weight.T, 9 * torch.eye(8))
    assert 0 < second.weight.abs().max() <= (6 / 16) ** 0.5  # Glorot's bound
    assert float(second.weight.std()) == pytest.approx((2 / 16) ** 0.5, rel=0.2)
    assert not first.bias.any()
    assert not second.bias.any()
