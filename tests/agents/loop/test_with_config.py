"""Hyperparameters that change in a training that has begun, for every agent."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from rltune.agents.config import Hyperparameter, config_dict, hyperparameters
from rltune.agents.errors import UserError
from rltune.agents.loop.agent import Agent
from rltune.agents.registry import BUILTIN, agent_class

from tests.parameters import quick

BOX_ONLY = ("ddpg", "td3")
AGENTS = [name for name in BUILTIN if not agent_class(name).offline]  # see test_bc.py
ENVS = {name: "Pendulum-v1" if name in BOX_ONLY else "CartPole-v1" for name in AGENTS}
SMALL = {
    "n_envs": 2,
    "net_arch": [8],
    "n_steps": 16,
    "batch_size": 8,
    "buffer_size": 200,
    "learning_starts": 20,
    "replay_start": 20,
    "train_freq": 8,
    "gradient_steps": 2,
    "n_epochs": 2,
    "n_critic_updates": 2,
    "target_update_interval": 8,
    "cg_max_steps": 3,
    "exploration_fraction": 1.0,
    "normalize_observations": True,
    "normalize_rewards": True,
}
# What has to show in the weights at once. (Of others it depends on the rest of the configuration.)
FELT = (
    *("learning_rate", "gamma", "batch_size", "n_epochs", "gae_lambda", "ent_coef", "vf_coef"),
    *("n_steps", "clip_range", "q_coef", "replay_ratio", "tau", "train_freq", "gradient_steps"),
    *("optimizer_eps", "target_kl", "cg_damping", "n_critic_updates", "noise_std", "policy_delay"),
    *("target_policy_noise", "n_step", "huber_delta", "target_update_interval"),
)
EVERY = pytest.mark.parametrize("name", AGENTS)


def small(name: str, **values: Any) -> Agent:
    known = hyperparameters(agent_class(name).Config)
    config = {key: value for key, value in {**SMALL, **values}.items() if key in known}
    return Agent(name, ENVS[name], config, total_timesteps=400, device="cpu")


def another(one: Hyperparameter, value: Any) -> Any:
    """Return a value that it does not have."""
    special = {"ent_coef": {"auto": "0.3"}, "target_entropy": {"auto": "-3.0"}}
    if value in special.get(one.name, {}):
        return special[one.name][value]
    if one.choices is not None:
        return next(choice for choice in one.choices if choice != value)
    if one.type == "bool":
        return not value
    if one.type == "int":
        return value * 2 if value > 0 else (int(one.low) or 1 if one.low is not None else 1)
    if one.name in ("clip_range", "target_kl"):
        return one.minimum or 1e-9  # so small that it matters
    number = float(value)
    if one.scale == "one_minus_log":
        return 0.5
    return number / 3 if number * 3 > one.maximum else number * 3 or 0.05


def weights(agent: Agent) -> torch.Tensor:
    return torch.nn.utils.parameters_to_vector(agent.algorithm.nets.parameters()).clone()


@pytest.mark.parametrize("name", quick(("a2c", "acer", "ppo", "dqn", "ddpg"), AGENTS))
def test_a_training_goes_on_with_every_hyperparameter_that_can_change(name: str) -> None:
    began = small(name)
    began.learn(120)  # amid a rollout
    state, config = began._state(), config_dict(began.config)

    def go_on(values: dict[str, Any]) -> tuple[torch.Tensor, float]:
        agent = small(name)
        agent._restore(state, "in memory")
        agent = agent.with_config(values)
        assert agent.env_steps == began.env_steps
        assert torch.equal(weights(agent), weights(began))
        assert config_dict(agent.config) == values
        chunk = agent.learn(184)
        assert chunk.diverged is None
        assert chunk.updates
        agent.close()
        return weights(agent), chunk.metrics.get("learning_rate", 0.0)

    same, rate = go_on(config)
    for key, hyperparameter in hyperparameters(type(began.config)).items():
        if hyperparameter.mutable and key != "cloning":  # see test_cloning.py
            value = another(hyperparameter, config[key])
            changed, new_rate = go_on({**config, key: value})
            assert new_rate == pytest.approx(value if key == "learning_rate" else rate), key
            assert key not in FELT or not torch.equal(changed, same), key
    began.close()


@EVERY
def test_without_a_change_it_is_the_same_training(name: str) -> None:
    one, other = small(name), small(name)
    for until in (70, 150, 290):
        one.learn(until)
        other = other.with_config(config_dict(other.config))
        other.learn(until)
    assert torch.equal(weights(one), weights(other))
    assert one.evaluate(2).returns == other.evaluate(2).returns
    one.close()
    other.close()


@EVERY
def test_what_decides_on_the_form_can_not_change(name: str) -> None:
    agent = small(name)
    with pytest.raises(UserError, match=r"net_arch is \[8\], and a training that has begun can't"):
        agent.with_config({**config_dict(agent.config), "net_arch": [9]})
    agent.close()


def test_a_rollout_that_is_longer_than_one_may_be_is_dropped() -> None:
    agent = small("ppo", n_steps=32)
    agent.learn(50)
    assert agent.memory.position == 25  # type: ignore[attr-defined]
    longer = agent.with_config({**config_dict(agent.config), "n_steps": 64})
    assert longer.memory.position == 25  # type: ignore[attr-defined]
    shorter = longer.with_config({**config_dict(agent.config), "n_steps": 16})
    assert shorter.memory.position == 0  # type: ignore[attr-defined]
    assert shorter.learn(82).updates == 1
    shorter.close()


def test_a_fixed_temperature_is_the_configurations() -> None:
    """Not the checkpoint's: it is a weight there."""
    agent = small("sac", ent_coef="0.2")
    agent.learn(60)
    agent = agent.with_config({**config_dict(agent.config), "ent_coef": "0.4"})
    assert agent.learn(120).metrics["ent_coef"] == pytest.approx(0.4)
    agent = agent.with_config({**config_dict(agent.config), "ent_coef": "auto"})
    assert agent.algorithm.temperature.value() == pytest.approx(0.4)  # type: ignore[attr-defined]
    agent.close()
