"""PyBullet's environments, which were written for the old gym package."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from rltune.agents.envs.vector import Envs, check_env_name, make_env
from rltune.agents.errors import UserError
from rltune.agents.loop.agent import Agent

MINITAUR = "MinitaurBulletEnv-v0"


@pytest.fixture
def bullet():
    pytest.importorskip("pybullet")


def episode(env, seed: int, steps: int = 12):
    first, _ = env.reset(seed=seed)
    actions = np.random.default_rng(0).uniform(-1, 1, (steps, *env.action_space.shape))
    return np.stack([first, *(env.step(action.astype(np.float32))[0] for action in actions)])


# Ant keeps something of its last episode in the simulation; Minitaur draws from global generators.
@pytest.mark.parametrize("name", [MINITAUR, "AntBulletEnv-v0"])
def test_same_seed_same_episode_and_nothing_outside_moves(bullet, name):
    env = make_env(name)
    one, other = episode(env, 5), episode(env, 6)
    assert one.dtype == np.float32
    assert not np.array_equal(one[0], other[0])
    before = random.getstate(), global_numpy_state()
    np.testing.assert_array_equal(episode(env, 5), one)
    assert (random.getstate(), global_numpy_state()) == before
    random.seed(0)  # what others do with the global generators makes no difference
    np.testing.assert_array_equal(episode(make_env(name), 5), one)


def global_numpy_state() -> str:
    return str(np.random.mtrand.get_bit_generator().state)


def test_falling_terminates_and_time_truncates(bullet):
    envs = Envs("InvertedPendulumBulletEnv-v0", 1, seed=0)
    envs.reset()
    steps = [envs.step(np.ones((1, 1), np.float32)) for _ in range(60)]
    ended = [step for step in steps if step.episodes]
    assert ended
    assert all(step.terminated[0] and not step.truncated[0] for step in ended)
    assert envs._backend.time_limit == 1000
    cut = Envs("InvertedPendulumBulletEnv-v0", 1, seed=0, max_episode_steps=2)
    cut.reset()
    cut.step(np.zeros((1, 1), np.float32))
    step = cut.step(np.zeros((1, 1), np.float32))
    assert step.truncated[0]
    assert not step.terminated[0]


@pytest.mark.parametrize("name", [MINITAUR, "HopperBulletEnv-v0"])
def test_resume_is_bit_equal(bullet, name, tmp_path: Path):
    straight = Envs(name, 2, seed=1)
    straight.reset()
    generator = np.random.default_rng(0)

    def step(envs, action):
        return envs.step(action).obs

    shape = (2, *straight.single_action_space.shape)
    for _ in range(15):
        step(straight, generator.uniform(-1, 1, shape))
    torch.save(straight.state_dict(), tmp_path / "state.pt")
    resumed = Envs(name, 2, seed=1)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for _ in range(20):
        action = generator.uniform(-1, 1, shape)
        np.testing.assert_array_equal(step(straight, action), step(resumed, action))


def test_sac_learns_on_minitaur(bullet):
    config = {"learning_starts": 20, "batch_size": 16, "net_arch": (16,)}
    agent = Agent("sac", MINITAUR, config, total_timesteps=40)
    chunk = agent.learn(40)
    assert chunk.env_steps == 40
    assert chunk.updates > 0
    assert agent.diverged is None
    agent.close()


def test_a_process_of_its_own(bullet):
    alone = Envs("HopperBulletEnv-v0", 1, seed=3)
    apart = Envs("HopperBulletEnv-v0", 1, seed=3, vectorization="async")
    np.testing.assert_array_equal(alone.reset(), apart.reset())
    action = np.full((1, 3), 0.5, np.float32)
    for _ in range(20):
        np.testing.assert_array_equal(alone.step(action).obs, apart.step(action).obs)
    apart.close()


def test_a_picture(bullet):
    envs = Envs("HopperBulletEnv-v0", 1, seed=0, render_mode="rgb_array")
    envs.reset()
    picture = envs.render()
    assert picture.shape == (240, 320, 3)
    assert picture.dtype == np.uint8
    assert picture.std() > 10
    assert envs.steps_per_second == 60


def test_no_stand_in_is_left_behind_and_nothing_is_printed(bullet):
    code = (
        "import sys; before = sys.path.copy()\n"
        "from rltune.agents.envs.make import make_env\n"
        f"make_env({MINITAUR!r}).reset(seed=0); make_env('HopperBulletEnv-v0').reset(seed=0)\n"
        "assert not [n for n in sys.modules if n.split('.')[0] in ('gym', 'pkg_resources')]\n"
        "assert sys.path == before\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "warn" not in done.stderr.lower()


def test_a_gym_that_was_there_is_there_again(bullet, monkeypatch):
    monkeypatch.setitem(sys.modules, "gym", sys)
    make_env("CartPoleBulletEnv-v1").reset(seed=0)
    assert sys.modules["gym"] is sys
    assert "gym.spaces" not in sys.modules


def test_missing_package_names_the_extra(monkeypatch):
    import gymnasium
    from rltune.agents.envs import pybullet as adapter

    def missing():
        raise ImportError("No module named 'pybullet_envs'")

    monkeypatch.setattr(adapter, "register", missing)
    registered = {k: v for k, v in gymnasium.registry.items() if "BulletEnv" not in k}
    monkeypatch.setattr(gymnasium, "registry", registered)
    with pytest.raises(UserError, match=r'needs PyBullet: pip install "rltune\[bullet\]"'):
        check_env_name(MINITAUR)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("MinitaurBulletEnv", "write 'MinitaurBulletEnv-v0'"),
        ("MinitaurBullettEnv-v0", "did you mean 'MinitaurBulletEnv-v0'"),
    ],
)
def test_close_names(bullet, name, said):
    with pytest.raises(UserError, match=said):
        check_env_name(name)


def test_wrong_arguments(bullet):
    with pytest.raises(UserError, match="gravy"):
        make_env(MINITAUR, env_kwargs={"gravy": 1})
