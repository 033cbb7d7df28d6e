from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from replay_helpers import fill
from rltune.agents import Agent
from rltune.agents.algorithms import ddpg, sac
from rltune.agents.algorithms.ddpg import DDPG
from rltune.agents.algorithms.sac import SAC
from rltune.agents.algorithms.td3 import TD3
from rltune.agents.config import make_config
from rltune.agents.errors import UserError
from rltune.agents.spaces import Spaces

from tests.parameters import quick

BOX = spaces.Box(np.array([-2, 1], np.float32), np.array([2, 3], np.float32))
VECTOR = spaces.Box(-1, 1, (4,), np.float32)
IMAGE = spaces.Box(0, 255, (1, 36, 36), np.uint8)
SMALL = {"net_arch": [16], "batch_size": 8, "learning_starts": 0}
# What holds for all that act in a Box.
EVERY = pytest.mark.parametrize("agent", [DDPG, TD3, SAC])


def make(agent: Any, action: Any = BOX, obs: Any = VECTOR, n_envs: int = 2, **config: Any) -> Any:
    return agent(
        make_config(agent.Config, {**SMALL, **config}), Spaces(obs, action, n_envs), seed=0
    )


@EVERY
def test_actions_are_within_their_bounds_and_greedy_ones_change_nothing(agent: Any) -> None:
    shape = spaces.Box(-3, 1, (2, 3), np.float32)
    algorithm = make(agent, shape)
    obs = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32) * 10
    before = [algorithm.generator.get_state(), algorithm.state_dict()["counters"]]
    greedy = algorithm.act(obs, explore=False)
    assert np.array_equal(greedy, algorithm.act(obs, explore=False))
    assert torch.equal(algorithm.generator.get_state(), before[0])
    assert algorithm.state_dict()["counters"] == before[1]
    for action in (greedy, algorithm.act(obs, explore=True)):
        assert action.shape == (50, 2, 3)
        assert action.dtype == np.float32
        assert all(shape.contains(part) for part in action)
    assert not np.array_equal(algorithm.act(obs, explore=True), algorithm.act(obs, explore=True))


@EVERY
def test_the_first_actions_are_uniform_whatever_the_network_says(agent: Any) -> None:
    algorithm = make(agent, learning_starts=4000, n_envs=4)
    obs = np.zeros((4, 4), np.float32)
    actions = np.concatenate([algorithm.act(obs, explore=True) for _ in range(1000)])
    for i, (low, high) in enumerate(zip(BOX.low, BOX.high, strict=True)):
        counts, _ = np.histogram(actions[:, i], bins=8, range=(low, high))
        assert counts.sum() == 4000
        assert counts == pytest.approx(np.full(8, 500), abs=100)
    for _ in range(5):  # then the actor acts
        late = algorithm.act(obs, explore=True)
        if agent is not SAC:
            assert np.abs(late - algorithm.act(obs, explore=False)).max() < 6 * 0.1 * 2


@pytest.mark.parametrize("agent", [DDPG, TD3])
def test_the_noise_really_explores(agent: Any) -> None:
    algorithm = make(agent, noise_std=0.2)
    obs = np.zeros((2, 4), np.float32)
    greedy = algorithm.act(obs, explore=False)
    away = np.stack([algorithm.act(obs, explore=True) - greedy for _ in range(2000)])
    assert away.std((0, 1)) == pytest.approx(0.2 * (BOX.high - BOX.low) / 2, rel=0.1)
    assert abs(np.corrcoef(away[:, 0, 0], away[:, 1, 0])[0, 1]) < 0.1


@EVERY
def test_memory_and_networks_agree_on_actions(agent: Any) -> None:
    algorithm = make(agent)
    unit = torch.tensor([[-1.0, 1.0], [0.0, 0.5]])
    done = algorithm.scale.to_space(unit)
    assert done == pytest.approx(np.array([[-2, 3], [0, 2.5]]))
    torch.testing.assert_close(algorithm.scale.to_nets(torch.from_numpy(done)), unit)


@EVERY
def test_boxes_without_bounds_are_refused(agent: Any) -> None:
    with pytest.raises(UserError, match="finite bounds"):
        make(agent, spaces.Box(-np.inf, np.inf, (1,), np.float32))


@pytest.mark.parametrize("agent", [DDPG, TD3])
def test_choices_are_refused(agent: Any) -> None:
    with pytest.raises(UserError, match=f"{agent.__name__} acts in Box"):
        make(agent, spaces.Discrete(2))


@EVERY
def test_images_are_read(agent: Any) -> None:
    algorithm = make(agent, obs=IMAGE, batch_size=4)
    memory = fill(algorithm, 4)
    start = algorithm.nets.actor.torso.encoder.linear[0].weight.clone()
    for _ in range(2):  # TD3's actor moves in every second update
        metrics = algorithm.update(memory, 0.0)
    assert np.isfinite(list(metrics.values())).all()
    assert not torch.equal(start, algorithm.nets.actor.torso.encoder.linear[0].weight)
    assert algorithm.act(np.zeros((2, 1, 36, 36), np.uint8), explore=False).shape == (2, 2)


@EVERY
def test_the_number_of_updates_is_that_of_env_steps_whatever_the_environments(agent: Any) -> None:
    config = {**SMALL, "learning_starts": 50, "train_freq": 5, "gradient_steps": 3}
    counts = []
    for n_envs in (1, 8):
        whole = Agent(agent, "toy_envs:Aim", {**config, "n_envs": n_envs}, total_timesteps=200)
        whole.learn(200)
        counts.append(whole.algorithm.n_updates)  # type: ignore[attr-defined]
    assert counts == [(200 - 50) // 5 * 3] * 2


@EVERY
def test_an_update_before_learning_starts_does_nothing(agent: Any) -> None:
    algorithm = make(agent, learning_starts=10, train_freq=5)
    memory = fill(algorithm, 10)
    start = algorithm.critic_learner.flat.clone()
    assert algorithm.update(memory, 0.0) == algorithm.update(memory, 0.0) == {}
    assert torch.equal(start, algorithm.critic_learner.flat)
    assert algorithm.update(memory, 0.0)["critic_loss"] > 0


@EVERY
def test_schedules_and_the_plateau_factor_reach_the_update(agent: Any) -> None:
    algorithm = make(agent, learning_rate="lin_1e-2")
    algorithm.learning_rate_factor = 0.5
    assert algorithm.update(fill(algorithm, 5), 0.75)["learning_rate"] == pytest.approx(0.125e-2)


@EVERY
def test_values_bootstrap_at_time_limits_only(agent: Any) -> None:
    """The errors are known with every value 3 and every reward 1."""
    loss, factor = (sac.critic_loss, 0.5) if agent is SAC else (ddpg.critic_loss, 1.0)
    for terminated, target in ((True, 1.0), (False, 1 + 0.5 * 3)):
        algorithm = make(agent, gamma=0.5, n_envs=1)
        memory, obs = algorithm.make_memory(), np.zeros((1, 4), np.float32)
        for _ in range(5):
            memory.add(
                obs=obs,
                action=algorithm.act(obs, explore=True),
                reward=np.ones(1),
                terminated=np.array([terminated]),
                truncated=np.array([not terminated]),
                next_obs=obs,
                valid=np.ones(1, np.bool_),
            )
        networks = [*algorithm.nets.critics.networks, *algorithm.nets.target_critics.networks]
        for network in networks:
            torch.nn.init.zeros_(network[1].weight)
            torch.nn.init.constant_(network[1].bias, 3.0)
        prepare = algorithm.minibatches.of if agent is SAC else algorithm._transitions
        batch = prepare(memory.sample(8, algorithm.generator))
        zero = torch.zeros(())
        hyper = sac.Scalars(zero, zero, zero + 1) if agent is SAC else algorithm.scalars
        value, _ = loss(algorithm.nets, batch, hyper)
        assert value.item() == pytest.approx(len(networks) / 2 * factor * (3 - target) ** 2)


RESUMED = {
    "ddpg": (DDPG, {"noise_type": "ornstein-uhlenbeck"}),
    "td3": (TD3, {"gradient_steps": 3, "train_freq": 2}),
    "sac": (SAC, {"n_step": 3}),
    "gsde": (SAC, {"use_sde": True, "sde_sample_freq": 3, "train_freq": 8}),
}


@pytest.mark.parametrize("kind", RESUMED)
@pytest.mark.parametrize("stop", [20, 75])  # before learning starts, and after
def test_a_resumed_run_is_bit_equal(kind: str, stop: int, tmp_path: Path) -> None:
    found, changes = RESUMED[kind]
    config = {**SMALL, "n_envs": 3, "learning_starts": 40, **changes}

    def start() -> Agent:
        return Agent(found, "toy_envs:Aim", config, total_timesteps=150, seed=1)

    whole, first = start(), start()
    whole.learn(150)
    first.learn(stop)
    first.save(tmp_path / "a.pt")
    second = Agent.load(tmp_path / "a.pt", device="cpu")
    second.learn(150)

    def state(agent: Agent) -> dict[str, torch.Tensor]:
        nets: dict[str, torch.Tensor] = agent.algorithm.nets.state_dict()  # type: ignore[attr-defined]
        return {**nets, "generator": agent.algorithm.generator.get_state()}

    for name, tensor in state(whole).items():
        assert torch.equal(tensor, state(second)[name]), name
    assert any(not torch.equal(t, state(first)[name]) for name, t in state(whole).items())
    assert whole.evaluate(3).returns == second.evaluate(3).returns


LEARNED = {
    "ddpg ou": (DDPG, "Aim", {"noise_type": "ornstein-uhlenbeck", "noise_std": 0.5}),
    "gsde": (SAC, "Aim", {"ent_coef": "auto_0.1", "use_sde": True}),
}


@pytest.mark.parametrize("kind", quick(["ddpg ou"], LEARNED))
def test_small_tasks_are_learned(kind: str) -> None:
    found, env, changes = LEARNED[kind]
    config = {"net_arch": [64], "batch_size": 64, "gamma": 0.5, "learning_rate": 3e-3}
    config |= {"n_envs": 4, "train_freq": 2, **changes}
    agent = Agent(found, f"toy_envs:{env}", config, total_timesteps=3000)
    for until in range(250, 3001, 250):
        agent.learn(until)
        if agent.evaluate(10).mean / 8 >= 0.9:
            return
    pytest.fail("it was not learned")
