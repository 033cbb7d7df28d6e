"""Goal environments: where their goals stand, and what is said of those that are none."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from goal_envs import BitFlip, Reach
from gymnasium import spaces
from rltune.agents.algorithms.dqn_config import DQNConfig
from rltune.agents.algorithms.sac_config import SACConfig
from rltune.agents.envs.goals import goals_of
from rltune.agents.envs.vector import Envs
from rltune.agents.errors import UserError
from rltune.agents.spaces import Goals

BIT_FLIP, REACH = "goal_envs:BitFlip", "goal_envs:Reach"


class Ordered(Reach):
    """Reach with another order of the parts, one of them of several numbers, and action masks."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        place = self.observation_space["observation"]
        pairs = [
            ("desired_goal", place),
            ("observation", spaces.Dict(kind=spaces.Discrete(3), place=place)),
            ("action_mask", spaces.MultiBinary(2)),
            ("achieved_goal", place),
        ]
        self.observation_space = spaces.Dict(pairs)
        self.action_space = spaces.Discrete(2)

    def _look(self) -> Any:
        seen = super()._look()
        place = seen["observation"]
        return {**seen, "observation": {"kind": 1, "place": place}, "action_mask": np.ones(2)}

    def step(self, action: Any) -> Any:
        return super().step([action, -action])


def found(env: str, config: Any = None, **env_kwargs: Any) -> Goals:
    config = config or SACConfig(n_sampled_goal=4)
    goals = goals_of(config, env, env_kwargs)
    assert goals is not None
    return goals


@pytest.mark.parametrize(
    ("env", "kwargs", "config", "frame"),
    [
        (REACH, {}, {}, 6),
        (REACH, {}, {"frame_stack": 3}, 6),
        (REACH, {"camera": True}, {}, 6),
        (REACH, {"camera": True}, {"frame_stack": 3}, 6),
        ("test_goals:Ordered", {}, {}, 9),
    ],
)
def test_goals_stand_where_they_are_seen(
    env: str, kwargs: dict[str, Any], config: dict[str, Any], frame: int
) -> None:
    goals = found(env, SACConfig(n_sampled_goal=4, **config), **kwargs)
    n_frames = max(1, config.get("frame_stack", 0))
    assert goals.desired.shape == (n_frames, 2)
    envs = Envs(env, 1, seed=0, env_kwargs=kwargs, **config)
    made = envs._backend._envs[0].unwrapped
    envs.reset()
    for _ in range(5):
        obs = envs.step(np.array([envs.single_action_space.sample()])).next_obs
        np.testing.assert_allclose(obs[0, goals.achieved], made.place, rtol=1e-6)
        for places in goals.desired:
            np.testing.assert_allclose(obs[0, places], made.wish, rtol=1e-6)
    assert goals.desired.max() < n_frames * frame
    envs.close()
    goals.close()


def test_rewards_are_the_environments_own() -> None:
    goals = found(REACH, near=0.5)
    places, wishes = np.random.default_rng(0).uniform(-1, 1, (2, 50, 2)).astype(np.float32)
    env = Reach(near=0.5)
    wanted = [env.compute_reward(a, b, {}) for a, b in zip(places, wishes, strict=True)]
    assert goals.reward(places, wishes).tolist() == wanted
    assert {0.0, -1.0} == set(wanted)
    bits = np.eye(8, dtype=np.float32)
    assert found(BIT_FLIP).reward(bits, bits[::-1]).tolist() == [-1.0] * 8
    assert found(BIT_FLIP).reward(bits, bits).tolist() == [0.0] * 8


class Doubled(gymnasium.Wrapper[Any, Any, Any, Any]):
    def compute_reward(self, *goals: Any) -> Any:
        return 2 * self.env.unwrapped.compute_reward(*goals)  # type: ignore[attr-defined]


def test_a_wrapper_may_have_rewards_of_its_own() -> None:
    goals = found(BIT_FLIP, None, **{"wrapper.test_goals:Doubled": True})
    assert goals.reward(np.zeros((1, 8)), np.ones((1, 8))) == -2
    goals = found(BIT_FLIP, None, **{"wrapper.OrderEnforcing": True})
    assert goals.reward(np.zeros((1, 8)), np.ones((1, 8))) == -1


def test_without_hindsight_no_environment_is_made() -> None:
    assert goals_of(DQNConfig(), "no_such_module:Env") is None


class Rewardless(Reach):
    compute_reward = property()  # type: ignore[assignment]


class OneByOne(Reach):
    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return -float(np.linalg.norm(achieved_goal - desired_goal) > self.near)


class NeedsInfo(Reach):
    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return np.array([each["reward"] for each in info])


class Named(BitFlip):
    def __init__(self) -> None:
        super().__init__()
        parts = dict(self.observation_space.spaces)  # type: ignore[attr-defined]
        self.observation_space = spaces.Dict({**parts, "desired_goal": spaces.Discrete(8)})


class Pictured(Reach):
    def __init__(self) -> None:
        super().__init__(camera=True)
        parts = dict(self.observation_space.spaces)  # type: ignore[attr-defined]
        self.observation_space = spaces.Dict({**parts, "achieved_goal": parts["camera"]})


class Uneven(Reach):
    def __init__(self) -> None:
        super().__init__()
        parts = dict(self.observation_space.spaces)  # type: ignore[attr-defined]
        self.observation_space = spaces.Dict({**parts, "achieved_goal": spaces.Box(-1, 1, (3,))})


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("CartPole-v1", "is no goal environment: .* with achieved_goal and desired_goal; use"),
        ("toy_envs:Camera", "is no goal environment"),
        ("test_goals:Rewardless", r"has goals, but no compute_reward\(achieved_goal"),
        ("test_goals:OneByOne", r"gave rewards of shape \(\) for 2 rows of goals"),
        ("test_goals:NeedsInfo", "failed for rows of goals: KeyError: 'reward'"),
        ("test_goals:Named", r"desired_goal is Discrete\(8\), but goals that are replaced must"),
        ("test_goals:Pictured", "achieved_goal is Box.* must be a Box of numbers"),
        ("test_goals:Uneven", r"achieved_goal has the shape \(3,\), but desired_goal \(2,\)"),
    ],
)
def test_what_can_not_be_relabelled_is_said(env: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        found(env)
