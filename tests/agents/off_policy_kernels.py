"""Helpers of the tests of SAC's, TD3's and DDPG's kernels: agents with either engine, compared."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from kernel_engines import unlikeness
from replay_helpers import fill
from rltune.agents import Agent
from rltune.agents.config import make_config
from rltune.agents.spaces import Spaces
from torch import Tensor, nn

SMALL: dict[str, Any] = {"net_arch": [24, 16], "batch_size": 32, "learning_starts": 0}


def make(cls: Any, engine: str = "numpy", obs: Any = (4,), size: int = 2, **config: Any) -> Any:
    """Return an algorithm for ``obs`` numbers (or a space) and ``size`` numbers of an action."""
    seen = spaces.Box(-1, 1, obs, np.float32) if isinstance(obs, tuple) else obs
    done = spaces.Box(-2, 2, (size,), np.float32)
    algorithm = cls(make_config(cls.Config, {**SMALL, **config}), Spaces(seen, done, 2), seed=0)
    algorithm.use_engine(engine)
    return algorithm


def assert_gradient(found: Any, loss: Tensor, parameters: Sequence[Tensor]) -> None:
    """Compare a flat gradient with autograd's, as `unlikeness` does.

    Args:
        found: the gradient
        loss: of `double` networks: next to saturated actions, autograd's float32 is 20 times less
            exact than the kernel's
        parameters: of them
    """
    expected = torch.autograd.grad(loss, list(parameters))
    assert unlikeness(torch.from_numpy(found), expected) <= 1e-5


def silence(network: nn.Module, part: float) -> None:
    """Let so many units of the second layer be 0 for everything that is seen."""
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    with torch.no_grad():
        layers[1].bias[: int(part * layers[1].out_features)] = -100.0


def double(part: Any) -> Any:
    """Return networks, a minibatch or hyperparameters in float64."""
    if isinstance(part, nn.Module):
        return copy.deepcopy(part).double()
    return part._make(None if value is None else value.double() for value in part)


def assert_metrics(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Compare names and values."""
    assert list(found) == list(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], float(value), rtol=1e-4, atol=1e-5, err_msg=name)


def both_updated(cls: Any, **config: Any) -> tuple[Any, Any, dict[str, float], dict[str, float]]:
    """Return agents after ten minibatches from one state, with PyTorch and with the kernel."""
    updated = []
    for engine in ("torch", "numpy"):
        algorithm = make(cls, engine, gradient_steps=10, **config)
        updated.append((algorithm, algorithm.update(fill(algorithm, 60), 0.0)))
    (one, by_torch), (other, by_numpy) = updated
    return one, other, by_torch, by_numpy


def assert_same_updates(cls: Any, **config: Any) -> None:
    """Check that ten updates from one state are the same with either engine."""
    one, other, by_torch, by_numpy = both_updated(cls, **config)
    assert_metrics(by_numpy, by_torch)
    a, b = one.state_dict(), other.state_dict()
    assert torch.equal(a.pop("generator"), b.pop("generator"))
    for part in a:
        torch.testing.assert_close(b[part], a[part], rtol=1e-4, atol=1e-4, msg=part)


def assert_same_acting(cls: Any, **config: Any) -> None:
    """Check that actions are the same with either engine: random, noisy and greedy ones."""
    one, other = (make(cls, engine, learning_starts=4, **config) for engine in ("torch", "numpy"))
    rng = np.random.default_rng(0)
    for step in range(6):
        obs = rng.normal(size=(2, 4)).astype(np.float32)
        before = other.generator.get_state()
        for explore in (True, False):
            expected = one.act(obs, explore=explore)
            found = other.act(obs, explore=explore)
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        assert torch.equal(other.generator.get_state(), one.generator.get_state())
        assert not torch.equal(before, one.generator.get_state()), step


def assert_metrics_tell_of_nan(cls: Any) -> None:
    """Check that NaN in a minibatch is found in the same metrics as with PyTorch."""
    found = []
    for engine in ("torch", "numpy"):
        algorithm = make(cls, engine)
        memory = fill(algorithm, 60)
        memory.reward[::7] = np.nan
        found.append(algorithm.update(memory, 0.0))
    broken = [[name for name, value in each.items() if not np.isfinite(value)] for each in found]
    assert broken[0] == broken[1]
    assert "critic_loss" in broken[0]


def assert_resumes(name: str, path: Path) -> None:
    """Check that a training goes on bit by bit, and that one of PyTorch's goes on as well."""
    config = {**SMALL, "learning_starts": 16, "buffer_size": 500}

    def train(engine: str, until: int) -> Agent:
        agent = Agent(name, "Pendulum-v1", config, total_timesteps=80, engine=engine)
        agent.learn(until)
        return agent

    whole = state(train("numpy", 80))
    train("numpy", 40).save(path)
    resumed = Agent.load(path)
    assert resumed.algorithm.engine == "numpy"
    resumed.learn(80)
    for part, value in state(resumed).items():
        torch.testing.assert_close(value, whole[part], rtol=0, atol=0)

    for before, after in (("torch", "numpy"), ("numpy", "torch")):
        train(before, 40).save(path)
        other = Agent.load(path, engine=after)
        assert other.algorithm.engine == after
        other.learn(80)
        for part, value in state(other).items():
            torch.testing.assert_close(value, whole[part], rtol=1e-3, atol=1e-3)


def state(agent: Agent) -> dict[str, Any]:
    """Return a copy of the algorithm's state."""
    return copy.deepcopy(agent.algorithm.state_dict())
