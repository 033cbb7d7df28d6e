"""MuJoCo's environments, through gymnasium."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rltune.agents.envs.vector import Envs

pytest.importorskip("mujoco")


@pytest.mark.parametrize(
    ("name", "obs", "action"),
    [("HalfCheetah-v5", 17, 6), ("Hopper-v5", 11, 3), ("Walker2d-v5", 17, 6)],
)
def test_spaces_and_limits(name, obs, action):
    envs = Envs(name, 2, seed=0)
    first = envs.reset()
    assert first.shape == (2, obs)
    assert first.dtype == np.float32
    assert envs.single_action_space.shape == (action,)
    assert envs._backend.time_limit == 1000
    step = envs.step(np.full((2, action), 9.0))  # clipped to the bounds
    assert np.isfinite(step.next_obs).all()
    assert step.valid.all()


def test_a_fall_terminates_and_the_next_episode_has_another_start():
    envs = Envs("Hopper-v5", 1, seed=0)
    first = envs.reset()
    for _ in range(300):
        step = envs.step(np.ones((1, 3)))
        if step.episodes:
            break
    assert step.terminated[0]
    assert not step.truncated[0]
    assert not np.array_equal(step.obs, step.next_obs)
    assert not np.array_equal(step.obs, first)


def test_resume_is_bit_equal():
    straight = Envs("HalfCheetah-v5", 2, seed=1)
    straight.reset()
    generator = np.random.default_rng(0)
    for _ in range(60):
        straight.step(generator.uniform(-1, 1, (2, 6)))
    resumed = Envs("HalfCheetah-v5", 2, seed=1)
    resumed.load_state_dict(straight.state_dict())
    assert all(isinstance(actions, torch.Tensor) for actions in straight.state_dict()["actions"])
    for _ in range(60):
        action = generator.uniform(-1, 1, (2, 6))
        np.testing.assert_array_equal(straight.step(action).obs, resumed.step(action).obs)
