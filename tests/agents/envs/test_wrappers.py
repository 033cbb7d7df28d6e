"""Wrappers that are named among an environment's arguments."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from rltune.agents.envs.make import make_env
from rltune.agents.errors import UserError


def layers(env_kwargs: dict[str, Any]) -> list[Any]:
    found: list[Any] = [make_env("Pendulum-v1", env_kwargs=env_kwargs)]
    while isinstance(found[-1], gymnasium.Wrapper):
        found.append(found[-1].env)
    return found


def names(env_kwargs: dict[str, Any]) -> list[str]:
    return [type(layer).__name__ for layer in layers(env_kwargs)]


def test_wrappers_are_put_around_in_their_order() -> None:
    plain = names({})
    both = {"wrapper.StickyAction.repeat_action_probability": 0.5, "wrapper.ClipAction": True}
    assert layers({**both, "g": 3.0})[-1].g == 3.0
    assert names(both) == [plain[0], "ClipAction", "StickyAction", *plain[1:]]
    assert names({**both, "wrapper.ClipAction": False})[1:] == ["StickyAction", *plain[1:]]
    assert names({**both, "wrapper.StickyAction": False})[1:] == ["ClipAction", *plain[1:]]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("wrapper.ClipReword.max_reward", 1.0, "did you mean 'ClipReward'"),
        ("wrapper.ClipReward.most", 1.0, "does not take these arguments"),
        ("wrapper.ClipAction", 3, "must be true or false"),
        ("wrapper.no_such_module:Thing.x", 1, "no_such_module"),
    ],
)
def test_mistakes_are_one_sentence(name: str, value: object, said: str) -> None:
    with pytest.raises(UserError, match=said):
        make_env("Pendulum-v1", env_kwargs={name: value})


def test_other_ways_to_step_have_no_wrappers() -> None:
    from rltune.agents.envs.vector import Envs

    with pytest.raises(UserError, match="needs vectorization sync or async"):
        Envs(
            "CartPole-v1",
            2,
            seed=0,
            env_kwargs={"wrapper.ClipReward.max_reward": 0.5},
            vectorization="native",
        )


@pytest.mark.parametrize("name", ["Pendulum-v1", "FrozenLake-v1"])
def test_frames_are_stacked_as_gymnasium_stacks_them(name: str) -> None:
    ours = make_env(name, frame_stack=3)
    bare = make_env(name)
    theirs = gymnasium.wrappers.FrameStackObservation(bare, 3)
    bare.action_space.seed(0)
    pairs = [(ours.reset(seed=1)[0], theirs.reset(seed=1)[0])]
    for _ in range(5):
        action = bare.action_space.sample()
        pairs.append((ours.step(action)[0], theirs.step(action)[0]))
    for mine, reference in pairs:  # at the end: what was returned earlier has stayed as it was
        np.testing.assert_array_equal(mine, reference.reshape(-1))
        assert mine.dtype == reference.dtype
