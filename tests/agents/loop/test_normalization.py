"""Stable-Baselines3's VecNormalize is the oracle where it is installed."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from rltune.agents.envs.vector import Envs
from rltune.agents.loop.normalization import ObservationNormalizer, RewardNormalizer, RunningMeanStd


def test_running_mean_and_variance_are_those_of_all_rows():
    rows = np.random.default_rng(0).normal(3, 7, size=(1000, 2)).astype(np.float32)
    running = RunningMeanStd((2,), epsilon=0.0)
    for part in np.split(rows, [1, 40, 41, 500]):
        running.update(part)
    np.testing.assert_allclose(running.mean, rows.astype(np.float64).mean(axis=0))
    np.testing.assert_allclose(running.var, rows.astype(np.float64).var(axis=0))


@pytest.mark.parametrize("env", ["Pendulum-v1", "CartPole-v1"])
def test_equal_to_vec_normalize(env):
    sb3 = pytest.importorskip("stable_baselines3.common.vec_env")
    stock = sb3.VecNormalize(
        sb3.DummyVecEnv([lambda: gymnasium.make(env, max_episode_steps=30)] * 4), gamma=0.9
    )
    stock.seed(0)
    stock_obs = stock.reset()
    shape = stock.observation_space.shape
    observations, rewards = ObservationNormalizer(shape), RewardNormalizer(4, 0.9)

    def seen(raw):
        observations.update(raw)
        return observations.normalize(raw)

    np.testing.assert_allclose(seen(stock.get_original_obs()), stock_obs, rtol=1e-5, atol=1e-6)
    generator = np.random.default_rng(0)
    ends = 0
    for _ in range(100):
        if env == "Pendulum-v1":
            action = generator.uniform(-2, 2, (4, 1)).astype(np.float32)
        else:
            action = generator.integers(2, size=4)
        stock_obs, stock_reward, ended, infos = stock.step(action)
        obs = seen(stock.get_original_obs())
        reward = rewards.normalize(stock.get_original_reward(), ended, np.ones(4, np.bool_))
        np.testing.assert_allclose(obs, stock_obs, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(reward, stock_reward, rtol=1e-5)
        for info in (infos[i] for i in ended.nonzero()[0]):
            ends += 1
            final = stock.unnormalize_obs(info["terminal_observation"])
            np.testing.assert_allclose(
                observations.normalize(final), info["terminal_observation"], rtol=1e-3, atol=1e-4
            )
    assert ends >= 12


def test_normalizing_does_not_learn():
    normalizer = ObservationNormalizer((3,))
    normalizer.update(np.ones((4, 3)))
    before = normalizer.state_dict()
    normalizer.normalize(np.full((2, 3), 100.0))
    after = normalizer.state_dict()
    assert before["count"] == after["count"]
    assert torch.equal(before["mean"], after["mean"])


def test_clipping():
    observations = ObservationNormalizer((1,))
    assert observations.normalize(np.array([[1e9], [-1e9]])).tolist() == [[10.0], [-10.0]]
    assert observations.normalize(np.zeros((1, 1))).dtype == np.float32


def test_rows_that_are_no_transitions_do_not_count():
    generator = np.random.default_rng(0)
    all_valid, with_gaps = RewardNormalizer(2, 0.9), RewardNormalizer(2, 0.9)
    both = np.ones(2, np.bool_)
    for _ in range(20):
        reward, ended = generator.normal(size=2), generator.random(2) < 0.2
        all_valid.normalize(reward, ended, both)
        with_gaps.normalize(reward, ended, both)
        with_gaps.normalize(np.zeros(2), ~both, ~both)
    np.testing.assert_array_equal(all_valid.statistics.var, with_gaps.statistics.var)


def test_resume_is_bit_equal(tmp_path):
    envs = Envs("CartPole-v1", 3, seed=0)
    obs = envs.reset()
    straight = ObservationNormalizer((4,)), RewardNormalizer(3, 0.99)
    resumed = ObservationNormalizer((4,)), RewardNormalizer(3, 0.99)

    def step(normalizers, transition):
        normalizers[0].update(transition.obs)
        ended = transition.terminated | transition.truncated
        reward = normalizers[1].normalize(transition.reward, ended, transition.valid)
        return normalizers[0].normalize(transition.obs), reward

    straight[0].update(obs)
    for t in range(60):
        transition = envs.step(np.full(3, t % 2))
        out = step(straight, transition)
        if t == 30:
            torch.save([part.state_dict() for part in straight], tmp_path / "state.pt")
            states = torch.load(tmp_path / "state.pt", weights_only=True)
            for part, state in zip(resumed, states, strict=True):
                part.load_state_dict(state)
        elif t > 30:
            for a, b in zip(out, step(resumed, transition), strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("shape", [(), (1,), (4,), (17,)])
def test_statistics_are_bit_equal_to_the_formula(shape):
    """The numbers of earlier versions, whose checkpoints go on with them."""
    generator = np.random.default_rng(0)
    running = RunningMeanStd(shape)
    mean, var, count = np.zeros(shape), np.ones(shape), 1e-4
    for n in (1, 8, 8, 3, 16, 8, 100):
        rows = generator.normal(2, 5, size=(n, *shape)).astype(np.float32)
        running.update(rows)
        rows = rows.astype(np.float64)
        batch_mean = rows.sum(axis=0) / n
        batch_var = ((rows - batch_mean) ** 2).sum(axis=0) / n
        delta, total = batch_mean - mean, count + n
        spread = var * count + batch_var * n + delta**2 * (count * n / total)
        mean, var, count = mean + delta * (n / total), spread / total, total
        np.testing.assert_array_equal(running.mean, mean)
        np.testing.assert_array_equal(running.var, var)
        assert running.count == count
