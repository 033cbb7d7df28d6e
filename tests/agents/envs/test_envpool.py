"""envpool, held against gymnasium's own environments."""

from __future__ import annotations

import sys
from itertools import pairwise

import numpy as np
import pytest
from gymnasium import spaces
from rltune.agents.envs.vector import Envs, Transition, make_env
from rltune.agents.errors import UserError
from rltune.agents.loop.agent import Agent


@pytest.fixture
def envpool():
    return pytest.importorskip("envpool")


def rollout(envs: Envs, steps: int) -> list[Transition]:
    envs.reset()
    generator = np.random.default_rng(0)
    space = envs.single_action_space
    taken = []
    for _ in range(steps):
        if isinstance(space, spaces.Discrete):
            action = generator.integers(space.n, size=envs.n_envs)
        else:
            action = generator.uniform(-1, 1, (envs.n_envs, *space.shape)).astype(np.float32)
        taken.append(envs.step(action))
    envs.close()
    return taken


@pytest.mark.parametrize("name", ["Acrobot-v1", "LunarLander-v3", "HalfCheetah-v5"])
def test_it_looks_as_the_environment_does(envpool, name):
    if name == "HalfCheetah-v5":
        pytest.importorskip("mujoco")
    if name == "LunarLander-v3":
        pytest.importorskip("Box2D")
    ours, theirs = (Envs(name, 2, seed=0, vectorization=v) for v in ("sync", "envpool"))
    assert theirs.single_observation_space.shape == ours.single_observation_space.shape
    assert theirs.reset().dtype == np.float32
    (step,) = rollout(theirs, 1)
    assert step.reward.dtype == np.float64
    assert step.obs.dtype == np.float32


def test_transitions_are_those_of_the_bare_environment(envpool):
    envs = Envs("CartPole-v1", 4, seed=0, vectorization="envpool")
    obs = envs.reset()
    bare = make_env("CartPole-v1").unwrapped
    bare.reset(seed=0)
    generator = np.random.default_rng(1)
    checked = 0
    for _ in range(80):
        action = generator.integers(2, size=4)
        step = envs.step(action)
        for i in step.valid.nonzero()[0]:
            bare.state, bare.steps_beyond_terminated = tuple(obs[i].astype(np.float64)), None
            successor, _, terminated, _, _ = bare.step(action[i])
            np.testing.assert_allclose(step.next_obs[i], successor, atol=1e-5)
            assert step.terminated[i] == terminated
            checked += terminated
        obs = step.obs
    envs.close()
    assert checked > 3


def test_the_row_between_two_episodes_is_invalid_and_counts_nowhere(envpool):
    steps = rollout(Envs("CartPole-v1", 4, seed=0, vectorization="envpool"), 200)
    for before, after in pairwise(steps):
        np.testing.assert_array_equal(after.valid, ~(before.terminated | before.truncated))
        assert (after.reward[~after.valid] == 0).all()
    episodes = [episode for step in steps for episode in step.episodes]
    assert len(episodes) > 10
    assert all(episode.length == episode.episode_return for episode in episodes)
    assert sorted(episode.number for episode in episodes)[:10] == list(range(10))


@pytest.mark.parametrize(("limit", "length"), [(7, 7), (None, 200), (999, 200)])
def test_time_limits_truncate(envpool, limit, length):
    envs = Envs("Pendulum-v1", 2, seed=0, vectorization="envpool", max_episode_steps=limit)
    steps = rollout(envs, length)
    assert not any(step.truncated.any() for step in steps[:-1])
    assert steps[-1].truncated.all()
    assert not steps[-1].terminated.any()
    assert [episode.length for episode in steps[-1].episodes] == [length, length]


def test_the_seed_decides_on_the_first_episodes_and_all_that_follow(envpool):
    def obs(seed):
        envs = Envs("CartPole-v1", 2, seed=seed, vectorization="envpool")
        return np.stack([step.obs for step in rollout(envs, 60)])

    np.testing.assert_array_equal(obs(0), obs(0))
    assert (obs(0)[0] != obs(1)[0]).any()
    assert (obs(0)[:, 0] != obs(0)[:, 1]).any()


def test_steps_do_not_share_memory(envpool):
    steps = rollout(Envs("CartPole-v1", 2, seed=0, vectorization="envpool"), 2)
    envs = Envs("CartPole-v1", 2, seed=0, vectorization="envpool")
    kept = rollout(envs, 100)
    np.testing.assert_array_equal(kept[0].obs, steps[0].obs)


@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_agents_learn_and_go_on_with_new_episodes(envpool, name, tmp_path):
    own = {
        "ppo": {"n_steps": 32},
        "sac": {"learning_starts": 50, "batch_size": 16, "train_freq": 8},
    }
    config = {"n_envs": 2, "vectorization": "envpool", "net_arch": (16,), **own[name]}
    agent = Agent(name, "Pendulum-v1", config, total_timesteps=1000)
    agent.learn(450)
    agent.save(tmp_path / "agent.pt")
    again = Agent.load(tmp_path / "agent.pt")
    chunk = again.learn(1000)
    assert chunk.env_steps >= 1000
    assert chunk.updates > 0
    assert all(episode.length == 200 for episode in chunk.episodes)
    assert chunk.episodes
    again.close()


# Random play, 3 standard errors of the difference. A wrong frame skip, a shrunk or sticky-less
# action, or a life counted as a game would be far outside.
@pytest.mark.slow
@pytest.mark.parametrize("name", ["CartPole-v1", "LunarLander-v3", "Hopper-v5", "ALE/Breakout-v5"])
def test_random_play_has_the_same_statistics(envpool, name):
    for package in {"Lun": ["Box2D"], "Hop": ["mujoco"], "ALE": ["ale_py", "cv2"]}.get(
        name[:3], []
    ):
        pytest.importorskip(package)
    samples = []
    for vectorization in ("sync", "envpool"):
        steps = rollout(Envs(name, 8, seed=0, vectorization=vectorization), 2500)
        episodes = [episode for step in steps for episode in step.episodes]
        samples.append(np.array([(e.episode_return, e.length) for e in episodes]))
    ours, theirs = samples
    error = np.sqrt(ours.var(0) / len(ours) + theirs.var(0) / len(theirs))
    assert (np.abs(ours.mean(0) - theirs.mean(0)) < 3 * error).all()


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        (f"{__name__}:nothing", {}, "use 'sync'|no module|nothing"),
        ("MountainCarContinuous-v0", {"frame_stack": 2}, "frame_stack"),
        ("FrozenLake-v1", {}, "other observations"),
        ("CartPole-v1", {"env_kwargs": {"sutton_barto_reward": True}}, "sutton_barto_reward"),
    ],
)
def test_what_it_has_not_is_said(envpool, name, options, said):
    with pytest.raises(UserError, match=said):
        Envs(name, 2, seed=0, vectorization="envpool", **options)


def test_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(UserError, match=r'pip install "rltune\[fast\]"'):
        Envs("CartPole-v1", 2, seed=0, vectorization="envpool")
