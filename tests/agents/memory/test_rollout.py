from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from rltune.agents.memory.rollout import RolloutMemory
from rltune.agents.spaces import Spaces


def make(dtype: Any = np.float32) -> RolloutMemory:
    observation = spaces.Box(0, 255, (1,), dtype)
    return RolloutMemory(4, Spaces(observation, spaces.Discrete(2), 2), (), np.int64)


def add(memory: RolloutMemory, t: int, truncated: tuple[bool, bool] = (False, False)) -> None:
    both = np.array([2 * t, 2 * t + 1])
    memory.add(
        obs=both[:, None].astype(memory.obs.dtype),
        action=both % 2,
        reward=both.astype(np.float64),
        terminated=np.zeros(2, np.bool_),
        truncated=np.array(truncated),
        next_obs=(100 + both)[:, None].astype(memory.obs.dtype),
        valid=np.ones(2, np.bool_),
    )


def test_rows_and_the_successors_that_matter() -> None:
    memory = make()
    for t, truncated in enumerate([(False, False), (False, True), (False, False), (True, False)]):
        add(memory, t, truncated)
    assert memory.full
    assert memory.obs[:, 1, 0].tolist() == [1, 3, 5, 7]
    assert memory.reward[2].tolist() == [4, 5]
    assert memory.final_index == [(1, 1), (3, 0), (3, 1)]
    assert [float(obs[0]) for obs in memory.final_obs] == [103, 106, 107]
    with pytest.raises(RuntimeError, match="full"):
        add(memory, 4)
    memory.clear()
    assert not memory.full
    assert memory.final_index == []


def test_a_rollout_may_end_early() -> None:
    memory = make()
    for t, truncated in enumerate([(True, False), (False, True)]):
        add(memory, t, truncated)
    memory.end_rollout()
    assert memory.full
    assert memory.reward.tolist() == [[0, 1], [2, 3]]
    assert sorted(memory.final_index) == [(0, 0), (1, 0), (1, 1)]
    assert sorted(float(obs[0]) for obs in memory.final_obs) == [100, 102, 103]
    memory.clear()
    for t in range(4):
        add(memory, t)
    assert memory.full
    memory.end_rollout()  # nothing is missing
    assert memory.reward.shape == (4, 2)
    assert memory.final_index == [(3, 0), (3, 1)]


def test_images_stay_bytes() -> None:
    assert make(np.uint8).obs.dtype == np.uint8


@pytest.mark.parametrize("steps", [0, 2, 4])
def test_the_state_is_complete(steps: int) -> None:
    first, second = make(), make()
    for t in range(steps):
        add(first, t, (t == 1, False))
    second.load_state_dict(first.state_dict())
    for t in range(steps, 4):
        add(first, t)
        add(second, t)
    assert second.position == first.position == 4
    assert second.final_index == first.final_index
    for name in ("obs", "action", "reward", "terminated", "truncated", "valid", "final_obs"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
