from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltune.agents.errors import UserError
from rltune.agents.networks.actions import BoxScale, Choices


def test_boxes_are_scaled_to_their_bounds_and_back() -> None:
    low, high = np.array([[-2, 0, 1]], np.float32), np.array([[4, 1, 1]], np.float32)
    scale = BoxScale(spaces.Box(low, high), "sac")
    unit = torch.tensor([[-1.0, 1.0, 0.0], [0.0, 0.5, 0.0]])
    done = scale.to_space(unit)
    assert done == pytest.approx(np.array([[[-2, 1, 1]], [[1, 0.75, 1]]]))
    torch.testing.assert_close(scale.to_nets(torch.from_numpy(done)), unit)
    beyond = scale.to_space(torch.tensor([[-1.1, 1.1, 5.0]]))  # as rounding may give it
    assert (beyond >= low).all()
    assert (beyond <= high).all()
    torch.testing.assert_close(scale.as_actions(unit), torch.from_numpy(done))


def test_actions_are_scaled_where_they_are() -> None:
    scale = BoxScale(spaces.Box(-2, 2, (1,)), "sac", "meta")
    action = torch.zeros(3, 1, device="meta")
    assert scale.as_actions(action).device.type == "meta"
    assert scale.to_nets(action).device.type == "meta"


@pytest.mark.parametrize(
    ("space", "counts"),
    [
        (spaces.Discrete(3), [3]),
        (spaces.MultiDiscrete([[2, 3]]), [2, 3]),
        (spaces.MultiBinary(3), [2, 2, 2]),
    ],
)
def test_choices_are_drawn_of_what_is_allowed(space: spaces.Space[Any], counts: list[int]) -> None:
    choices, generator = Choices(space, "sac"), torch.Generator().manual_seed(0)
    assert choices.counts == counts
    drawn = choices.random(200, generator)
    assert all(space.contains(action) for action in choices.to_space(drawn))
    torch.testing.assert_close(
        choices.to_nets(torch.from_numpy(choices.to_space(drawn))), drawn.long()
    )
    assert [len(column.unique()) for column in drawn.T] == counts
    first = torch.cat([torch.arange(n) == 0 for n in counts])
    assert not choices.random(200, generator, first.expand(200, -1)).any()


def test_the_advice_on_actions_without_bounds_works() -> None:
    unbounded = spaces.Box(-np.inf, np.inf, (1,))
    with pytest.raises(UserError, match=r"gymnasium\.wrappers\.TransformAction or use PPO"):
        BoxScale(unbounded, "sac")
    env = gymnasium.Env[Any, Any]()
    env.action_space, env.observation_space = unbounded, unbounded
    bounded = gymnasium.wrappers.TransformAction(
        env, lambda action: action, spaces.Box(-1, 1, (1,))
    )
    assert BoxScale(bounded.action_space, "sac").shape == (1,)
