"""Agents on a GPU do what they do on the CPU; left out where there is no GPU."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from experts import demonstrate
from rltune.agents.loop.agent import Agent
from small_agents import AGENTS, OFF, ON

DEVICE = "cuda"
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

LSTM = {"lstm_size": 8, "sequence_length": 8}
RAINBOW = {"prioritised": True, "noisy": True, "dueling": True}
HINDSIGHT = {**OFF, "learning_starts": 30, "n_sampled_goal": 4}
SHOWN = {"demonstrations": "Which"}  # the environment that they are of
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    **{name: (name, env, config) for name, (env, config) in AGENTS.items()},
    "bc": ("bc", "toy_envs:Which", SHOWN),
    "dqn, C51": ("dqn", "CartPole-v1", {**OFF, **RAINBOW, "distributional": "c51"}),
    "dqn, hindsight": ("dqn", "goal_envs:BitFlip", HINDSIGHT),
    "dqn, LSTM": ("dqn", "CartPole-v1", {**OFF, **LSTM, "burn_in": 2}),
    "dqn, masks": ("dqn", "toy_envs:Fenced", OFF),
    "dqn, picture and numbers": ("dqn", "toy_envs:Camera", OFF),
    "dqn, pictures": ("dqn", "toy_envs:Picture", {**OFF, "encoder": "small_cnn"}),
    "dqn, quantiles": ("dqn", "CartPole-v1", {**OFF, "distributional": "qr"}),
    "ppo, cloning": ("ppo", "toy_envs:Which", {**ON, **SHOWN, "cloning": 1.0}),
    "ppo, GAIL": ("ppo", "toy_envs:Which", {**ON, **SHOWN, "gail_strength": 0.5}),
    "ppo, gSDE": ("ppo", "Pendulum-v1", {**ON, "use_sde": True}),
    "ppo, LSTM": ("ppo", "Pendulum-v1", {**ON, **LSTM}),
    "ppo, masks": ("ppo", "toy_envs:Fenced", ON),
    "ppo, picture and numbers": ("ppo", "toy_envs:Camera", ON),
    "ppo, RMSprop": ("ppo", "CartPole-v1", {**ON, "optimizer": "rmsprop"}),
    "ppo, several choices": ("ppo", "toy_envs:Both", ON),
    "ppo, signals": ("ppo", "CartPole-v1", {**ON, "curiosity_strength": 0.1, "rnd_strength": 0.1}),
    "sac, choices": ("sac", "CartPole-v1", OFF),
    "sac, cloning": ("sac", "toy_envs:Both", {**OFF, "demonstrations": "Both", "cloning": 1.0}),
    "sac, gSDE": ("sac", "Pendulum-v1", {**OFF, "use_sde": True}),
    "sac, hindsight": ("sac", "goal_envs:Reach", HINDSIGHT),
    "sac, LSTM": ("sac", "Pendulum-v1", {**OFF, **LSTM, "burn_in": 2}),
    "sac, masks": ("sac", "toy_envs:Fenced", OFF),
    "sac, signals": ("sac", "Pendulum-v1", {**OFF, "curiosity_strength": 0.1}),
    "td3, three steps": ("td3", "Pendulum-v1", {**OFF, "n_step": 3}),
}
# An update of theirs draws no noise but the minibatch.
WITHOUT_NOISE: dict[str, tuple[str, dict[str, Any]]] = {
    "a2c": ("CartPole-v1", ON),
    "ddpg": ("Pendulum-v1", OFF),
    "dqn": ("CartPole-v1", OFF),
    "ppo": ("CartPole-v1", {**ON, "batch_size": 32, "n_epochs": 2}),
    "trpo": ("CartPole-v1", {**ON, "cg_max_steps": 3}),
}
every_case = pytest.mark.parametrize("case", CASES, indirect=True)


@pytest.fixture
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str, dict[str, Any]]:
    """An agent, an environment and a configuration, with demonstrations where it wants some."""
    agent, env, config = CASES[request.param]
    if "demonstrations" in config:
        file = demonstrate(config["demonstrations"], tmp_path / "shown.parquet")
        config = {**config, "demonstrations": file}
    return agent, env, config


def made(agent: str, env: str, config: dict[str, Any], device: str = DEVICE) -> Agent:
    return Agent(agent, env, config, total_timesteps=2000, seed=3, device=device, engine="torch")


def parameters(agent: Agent) -> np.ndarray[Any, Any]:
    nets = agent.algorithm.state_dict()["nets"]
    return torch.cat([part.reshape(-1) for part in nets.values()]).cpu().numpy()


def greedy(agent: Agent) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(0)
    shape = agent.algorithm.spaces.observation.shape
    inputs = torch.from_numpy(rng.normal(size=(16, *shape)).astype(np.float32))
    with torch.no_grad():
        return agent.algorithm.greedy(inputs.to(agent.device)).cpu().numpy()


@every_case
def test_learns_there_and_not_elsewhere(case: Any) -> None:
    with contextlib.closing(made(*case)) as agent:
        nets = agent.algorithm.state_dict()["nets"].values()
        before = parameters(agent)
        values = agent.learn(300).values
        assert agent.device == DEVICE
        assert all(part.device.type == DEVICE for part in nets)
        assert agent.algorithm.generator.device.type == DEVICE
        assert np.abs(parameters(agent) - before).max() > 1e-4
        assert all(math.isfinite(value) for found in values.values() for value in found)


@pytest.mark.parametrize("name", WITHOUT_NOISE)
def test_an_update_is_that_of_the_cpu(name: str, tmp_path: Path) -> None:
    with contextlib.closing(made(name, *WITHOUT_NOISE[name], device="cpu")) as cpu:
        cpu.learn(160)
        cpu.save(tmp_path / "checkpoint")
        with contextlib.closing(Agent.load(tmp_path / "checkpoint", device=DEVICE)) as gpu:
            before = parameters(cpu)
            np.testing.assert_array_equal(parameters(gpu), before)
            found, expected = (
                agent.algorithm.update(random_steps(agent.algorithm), 0.5) for agent in (gpu, cpu)
            )
            assert np.abs(parameters(cpu) - before).max() > 1e-5
            np.testing.assert_allclose(parameters(gpu), parameters(cpu), rtol=1e-3, atol=1e-4)
            for metric, value in expected.items():
                np.testing.assert_allclose(found[metric], value, 1e-2, 1e-3, err_msg=metric)


def random_steps(algorithm: Any) -> Any:
    """Return a memory of random steps; a replay memory's are all the same, as draws differ."""
    memory, spaces = algorithm.make_memory(), algorithm.spaces
    rng, n = np.random.default_rng(1), spaces.n_envs
    obs = rng.normal(size=(2, n, *spaces.observation.shape)).astype(np.float32)
    reward = np.ones(n)
    spaces.action.seed(1)
    action = np.stack([spaces.action.sample() for _ in range(n)])
    for _ in range(getattr(algorithm.config, "n_steps", 64)):
        memory.add(
            obs=obs[0],
            action=action,
            reward=reward,
            terminated=np.ones(n, np.bool_),
            truncated=np.zeros(n, np.bool_),
            next_obs=obs[1],
            valid=np.ones(n, np.bool_),
        )
        if algorithm.on_policy:
            obs = rng.normal(size=obs.shape).astype(np.float32)
            reward = rng.normal(size=n)
    return memory


@every_case
def test_goes_on_from_its_checkpoint_on_either_device(case: Any, tmp_path: Path) -> None:
    with contextlib.closing(made(*case)) as agent:
        agent.learn(200)
        agent.save(tmp_path / "checkpoint")
        for device in (DEVICE, "cpu"):
            loaded = Agent.load(tmp_path / "checkpoint", device=device)
            with contextlib.closing(loaded):
                np.testing.assert_array_equal(parameters(loaded), parameters(agent))
                if not agent.algorithm.state_size:
                    np.testing.assert_allclose(greedy(loaded), greedy(agent), 1e-3, 1e-4)
                loaded.learn(300)
                assert loaded.env_steps >= 300
                loaded.evaluate(1)
                loaded.save(tmp_path / device)
        with contextlib.closing(Agent.load(tmp_path / "cpu", device=DEVICE)) as back:
            back.learn(400)


@pytest.mark.parametrize("name", AGENTS)
def test_the_same_seed_gives_the_same_training(name: str) -> None:
    found = []
    for _ in range(2):
        with contextlib.closing(made(name, *AGENTS[name])) as agent:
            agent.learn(300)
            found.append(parameters(agent))
    np.testing.assert_array_equal(*found)


def test_only_pictures_take_it_unasked() -> None:
    for env, device in (("toy_envs:Camera", DEVICE), ("CartPole-v1", "cpu")):
        with contextlib.closing(made("ppo", env, ON, "auto")) as agent:
            assert agent.device == device


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "env", "config", "env_steps", "at_least"),
    [
        ("ppo", "CartPole-v1", {"n_envs": 8, "n_steps": 32, "batch_size": 256}, 40_000, 195),
        ("sac", "Pendulum-v1", {"learning_starts": 500, "learning_rate": 1e-3}, 6_000, -300),
    ],
)
def test_learns_what_it_learns_on_the_cpu(
    name: str, env: str, config: dict[str, Any], env_steps: int, at_least: float
) -> None:
    agent = Agent(name, env, config, total_timesteps=env_steps, seed=0, device=DEVICE)
    with contextlib.closing(agent):
        agent.learn(env_steps)
        assert agent.evaluate(20).mean >= at_least
