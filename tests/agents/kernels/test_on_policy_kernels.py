"""The kernels of A2C, PPO and TRPO do what the losses define."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from kernel_engines import both, distance, networks, unlikeness
from rltune.agents import Agent, UserError
from rltune.agents.algorithms.a2c import A2C, A2CConfig, a2c_loss
from rltune.agents.algorithms.on_policy import Rollout
from rltune.agents.algorithms.ppo import PPO, PPOConfig, Scalars, ppo_loss
from rltune.agents.algorithms.trpo import TRPO, TRPOConfig
from rltune.agents.algorithms.trust_region import natural_step
from rltune.agents.config import make_config
from rltune.agents.kernels.ppo import Limits
from rltune.agents.kernels.rollouts import Transitions
from rltune.agents.spaces import Spaces

ACTIONS = {
    "two": spaces.Discrete(2),
    "five": spaces.Discrete(5),
    "one number": spaces.Box(-2, 2, (1,), np.float32),
    "three numbers": spaces.Box(-1, 1, (3,), np.float32),
}
ON = {"n_envs": 4, "n_steps": 16, "net_arch": [16, 16]}


def spaces_of(action: str) -> Spaces:
    return Spaces(spaces.Box(-1, 1, (6,), np.float32), ACTIONS[action], 2)


def random_rollout(agent: Any, rows: int, seed: int = 0) -> Rollout:
    """Return rows as a policy that has moved since would have left them."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    obs = normal(rows, 6)
    params, value = agent.nets(obs)
    distribution = agent.policy.distribution
    action = distribution.sample(params, distribution.noise(rows, generator)).detach()
    log_prob = distribution.evaluate(params, action)[0].detach() + 0.3 * normal(rows)
    value = value.detach() + 0.3 * normal(rows)
    return Rollout(obs, action, log_prob, value, normal(rows), normal(rows))


def gradients_of(loss: torch.Tensor, agent: Any) -> list[torch.Tensor]:
    return list(torch.autograd.grad(loss, agent.learner.parameters))


HYPERPARAMETERS = [(0.2, None, 0.01), (0.0, 0.2, 0.0), (0.1, 0.0, 0.1)]


@pytest.mark.parametrize("activation", ["tanh", "relu", "elu", "silu"])
@pytest.mark.parametrize("action", list(ACTIONS))
def test_ppos_gradient_is_autograds(activation: str, action: str) -> None:
    config = {"net_arch": [24, 24], "activation": activation, "n_steps": 8}
    agent = PPO(make_config(PPOConfig, config), spaces_of(action), seed=1)
    agent.use_engine("numpy")
    for rows, (clip_range, clip_range_vf, ent_coef) in product([1, 7, 64], HYPERPARAMETERS):
        rollout = random_rollout(agent, rows)
        limits = Limits(clip_range, clip_range_vf, ent_coef, 0.5)
        loss, metrics = ppo_loss(agent.nets, rollout, Scalars.of(limits, agent.device))
        found = agent.kernel.gradient(Transitions.of(rollout), limits)
        wanted = gradients_of(loss, agent)
        assert unlikeness(torch.from_numpy(agent.kernel.nets.gradient), wanted) < 1e-5
        assert found == pytest.approx(
            [float(m.detach()) for m in metrics.values()], rel=1e-5, abs=1e-6
        )


@pytest.mark.parametrize("net_arch", [[16], [16, 8, 4], [300, 200]])
def test_networks_of_any_shape(net_arch: list[int]) -> None:
    agent = PPO(make_config(PPOConfig, {"net_arch": net_arch}), spaces_of("five"), seed=1)
    agent.use_engine("numpy")
    rollout = random_rollout(agent, 32)
    limits = Limits(0.2, None, 0.01, 0.5)
    loss, _ = ppo_loss(agent.nets, rollout, Scalars.of(limits, agent.device))
    agent.kernel.gradient(Transitions.of(rollout), limits)
    wanted = gradients_of(loss, agent)
    assert unlikeness(torch.from_numpy(agent.kernel.nets.gradient), wanted) < 1e-5


@pytest.mark.parametrize("action", list(ACTIONS))
@pytest.mark.parametrize("ent_coef", [0.0, 0.05])
def test_a2cs_gradient_is_autograds(action: str, ent_coef: float) -> None:
    agent = A2C(make_config(A2CConfig, {"ent_coef": ent_coef}), spaces_of(action), seed=1)
    agent.use_engine("numpy")
    rollout = random_rollout(agent, 40)
    loss, metrics = a2c_loss(agent.nets, rollout, agent.scalars)
    found = agent.kernel.gradient(Transitions.of(rollout))
    wanted = gradients_of(loss, agent)
    assert unlikeness(torch.from_numpy(agent.kernel.nets.gradient), wanted) < 1e-5
    assert found == pytest.approx([float(m.detach()) for m in metrics.values()], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("action", list(ACTIONS))
def test_fishers_product_is_autograds(activation: str, action: str) -> None:
    config = make_config(TRPOConfig, {"activation": activation, "net_arch": [16, 16]})
    agent = TRPO(config, spaces_of(action), seed=1)
    agent.use_engine("numpy")
    rollout = random_rollout(agent, 50)
    batch = agent._behaviour(rollout)
    vector = torch.randn(agent.flat.shape, generator=torch.Generator().manual_seed(2))
    params = agent.nets.params(batch.obs)
    kl = agent.policy.distribution.kl(params, batch.params).mean()
    if action.endswith(("number", "numbers")):
        kl = kl / agent.policy.distribution.size
    slope = torch.autograd.grad(kl, agent.parameters, create_graph=True)
    product = torch.cat([g.reshape(-1) for g in slope]) @ vector
    wanted = (
        torch.cat([g.reshape(-1) for g in torch.autograd.grad(product, agent.parameters)])
        + config.cg_damping * vector
    )

    kernel = agent.kernel
    outputs = kernel._outputs(Transitions.of(rollout).obs)
    kernel.policy.evaluate(outputs, rollout.action.numpy().T)
    found = torch.from_numpy(kernel._fisher_product(vector.numpy()))
    assert float((found - wanted).abs().max() / wanted.abs().max()) < 1e-5


def test_the_natural_step_is_torchs() -> None:
    config = make_config(TRPOConfig, {"net_arch": [16, 16], "cg_max_steps": 5})
    agent = TRPO(config, spaces_of("five"), seed=1)
    agent.use_engine("numpy")
    rollout = random_rollout(agent, 200)
    log_prob, _ = agent.policy._evaluate(rollout.obs.numpy(), rollout.action.numpy())
    rollout = rollout._replace(log_prob=torch.from_numpy(log_prob))
    start = agent.flat.clone()
    loss, metrics = agent_loss(agent, rollout)
    step = natural_step(loss, metrics["kl"], agent.parameters, 0.01, 0.1, 5)
    found = agent.kernel.learn_policy(Transitions.of(rollout))
    assert found["step_fraction"] > 0
    moved = (agent.flat - start) / found["step_fraction"]
    assert float((moved - step).abs().max() / step.abs().max()) < 1e-3


def agent_loss(agent: TRPO, rollout: Rollout) -> Any:
    from rltune.agents.algorithms.trpo import policy_loss

    return policy_loss(agent.nets, agent._behaviour(rollout), agent.scalars)


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize(
    ("agent", "config"),
    [
        ("ppo", {"batch_size": 16, "n_epochs": 2, "max_grad_value": 0.1, "target_kl": 0.5}),
        ("ppo", {"batch_size": 24, "n_epochs": 2, "clip_range_vf": 0.2, "ent_coef": 0.01}),
        ("a2c", {"ent_coef": 0.01}),
        ("trpo", {"batch_size": 24, "n_critic_updates": 2, "cg_max_steps": 4}),
    ],
)
def test_ten_updates_are_those_of_torch(agent: str, config: dict[str, Any], env: str) -> None:
    one, other = both(agent, env, **ON, **config)
    chunks = [each.learn(10 * 64) for each in (one, other)]
    assert distance(one, other) < 1e-4
    assert set(chunks[0].metrics) == set(chunks[1].metrics)
    for name, value in chunks[0].metrics.items():
        assert chunks[1].metrics[name] == pytest.approx(value, rel=1e-3, abs=1e-4), name
    one.close()
    other.close()


@pytest.mark.parametrize("agent", ["a2c", "ppo", "trpo"])
def test_a_resumed_training_is_bit_equal_and_engines_take_over_from_each_other(
    agent: str, tmp_path: Path
) -> None:
    _, whole = both(agent, "Pendulum-v1", **ON)
    whole.learn(3 * 64)
    _, first = both(agent, "Pendulum-v1", **ON)
    first.learn(64 + 32)
    first.save(tmp_path / "part.pt")
    resumed = Agent.load(tmp_path / "part.pt")
    changed = Agent.load(tmp_path / "part.pt", engine="torch")
    assert [resumed.engine, changed.engine] == ["numpy", "torch"]
    for each in (resumed, changed):
        each.learn(3 * 64)
    assert distance(whole, resumed) == 0.0
    assert 0.0 < distance(whole, changed) < 1e-4


@pytest.mark.parametrize("agent", ["a2c", "ppo", "trpo"])
def test_evaluations_are_alike(agent: str) -> None:
    one, other = both(agent, "CartPole-v1", **ON)
    for mode in ("greedy", "stochastic"):
        results = [each.evaluate(3, mode=mode).returns for each in (one, other)]
        assert results[0] == results[1]


@pytest.mark.parametrize("agent", ["a2c", "ppo", "trpo"])
@pytest.mark.filterwarnings("error")
def test_what_is_not_finite_is_found(agent: str) -> None:
    for each in both(agent, "CartPole-v1", **ON):
        each.learn(64)
        add = each.memory.add
        each.memory.add = lambda add=add, **step: add(**{**step, "reward": np.full(4, np.nan)})
        each.learn(3 * 64)
        assert "a reward with NaN" in str(each.diverged)


@pytest.mark.parametrize(
    ("env", "config", "reason"),
    [
        ("CartPole-v1", {"lstm_size": 8}, "an LSTM"),
        ("CartPole-v1", {"layer_norm": True}, "a LayerNorm in the network"),
        ("CartPole-v1", {"shared_torso": True}, "shared_torso"),
        ("CartPole-v1", {"net_arch": []}, "networks without a hidden layer"),
        ("Pendulum-v1", {"use_sde": True}, "use_sde"),
        ("Pendulum-v1", {"state_dependent_std": True}, "state_dependent_std"),
    ],
)
def test_what_no_kernel_computes_is_named(env: str, config: dict[str, Any], reason: str) -> None:
    values = {**ON, **config}
    with pytest.raises(UserError, match=f"engine numpy has nothing for {reason}; use auto"):
        Agent("ppo", env, values, total_timesteps=1000, engine="numpy")
    assert Agent("ppo", env, values, total_timesteps=1000).engine == "torch"


def test_a_users_variant_computes_with_torch() -> None:
    class Mine(PPO):
        """Its loss may be another one."""

    assert Agent(Mine, "CartPole-v1", ON, total_timesteps=1000).engine == "torch"


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(UserError, match="engine"):
        Agent("ppo", "CartPole-v1", total_timesteps=1000, engine="jax")


def test_the_parameters_stay_pytorchs() -> None:
    """What a checkpoint loads is what the kernel computes with."""
    _, agent = both("ppo", "CartPole-v1", **ON)
    before = networks(agent)
    agent.learn(64)
    state = agent.algorithm.state_dict()
    obs = np.ones((2, 4), np.float32)
    agent.algorithm.load_state_dict({**state, "nets": {n[5:]: t for n, t in before.items()}})
    _, fresh = both("ppo", "CartPole-v1", **ON)
    found = [a.algorithm.policy.kernel.forward(obs.T)[0] for a in (agent, fresh)]
    assert np.array_equal(*found)
