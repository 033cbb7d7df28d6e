"""Prioritised replay: the tree, how often what is drawn, the weights, and what is restored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltune.agents.memory.prioritised import SMALLEST, PrioritisedMemory, SumTree
from rltune.agents.spaces import Spaces


def make(capacity: int = 20, n_envs: int = 2, alpha: float = 0.7, **changes: Any) -> Any:
    box = spaces.Box(-1e9, 1e9, (1,), np.float32)
    return PrioritisedMemory(
        capacity,
        Spaces(box, spaces.Discrete(3), n_envs),
        (),
        np.int64,
        gamma=0.9,
        alpha=alpha,
        **changes,
    )


def fill(memory: Any, first: int, steps: int, invalid: tuple[int, ...] = ()) -> None:
    """Environment i observes 1000 i + time; the episode never ends."""
    envs = np.arange(memory.n_envs)
    for t in range(first, first + steps):
        memory.add(
            obs=(1000 * envs + t)[:, None].astype(np.float32),
            action=envs % 3,
            reward=np.full(memory.n_envs, float(t)),
            terminated=np.zeros(memory.n_envs, np.bool_),
            truncated=np.zeros(memory.n_envs, np.bool_),
            next_obs=(1000 * envs + t + 1)[:, None].astype(np.float32),
            valid=np.full(memory.n_envs, t not in invalid),
        )


@pytest.mark.parametrize("size", [1, 2, 7, 8, 100])
def test_the_tree_is_a_running_sum(size: int) -> None:
    rng, tree, naive = np.random.default_rng(size), SumTree(size), np.zeros(size)
    for _ in range(30):
        index = rng.integers(0, size, 5)
        values = rng.random(5) * (rng.random(5) < 0.7)
        tree.set(index, values)
        for i, value in zip(index, values, strict=True):
            naive[i] = value
        np.testing.assert_array_equal(tree.leaves, naive)
        assert tree.total == pytest.approx(naive.sum())
        if tree.total > 0:
            height = rng.random(50) * tree.total
            expected = np.searchsorted(naive.cumsum(), height, side="right")
            np.testing.assert_array_equal(tree.find(height), expected)
            assert (naive[tree.find(np.full(1, 2 * tree.total))] > 0).all()  # rounded too high


def test_draws_are_in_proportion_to_the_priorities() -> None:
    memory, generator = make(), torch.Generator().manual_seed(0)
    fill(memory, 0, 37, invalid=(33,))  # the ring has gone round more than once
    errors = np.linspace(-3, 3, memory.tree.size).astype(np.float32)
    memory._refresh()
    slots = np.flatnonzero(memory.tree.leaves)
    assert len(slots) == 18  # 20, less the two that are not valid
    memory.set_errors(torch.from_numpy(slots), torch.from_numpy(errors[slots]))
    probability = np.zeros(memory.tree.size)
    probability[slots] = (np.abs(errors[slots]) + SMALLEST) ** 0.7
    probability /= probability.sum()

    counts = np.zeros(memory.tree.size)
    draws = 400
    for _ in range(draws):
        batch = memory.sample(32, generator, beta=0.5)
        counts += np.bincount(batch.slot, minlength=len(counts))
        weight = (len(memory) * probability[batch.slot.numpy()]) ** -0.5
        np.testing.assert_allclose(batch.weight, weight / weight.max(), rtol=1e-5)
    np.testing.assert_allclose(counts / counts.sum(), probability, atol=0.005)
    assert set(np.flatnonzero(counts)) <= set(slots)
    # What is drawn is what the slot stands for: the latest ten steps of two environments.
    row, env = np.divmod(batch.slot.numpy(), 2)
    time = batch.obs[:, 0].numpy() - 1000 * env
    assert set(time) <= set(range(27, 37)) - {33}
    np.testing.assert_array_equal(time % memory.n_rows, row)
    np.testing.assert_array_equal(batch.reward, time)


def test_new_transitions_have_the_largest_priority_so_far() -> None:
    memory, generator = make(alpha=1.0), torch.Generator().manual_seed(0)
    fill(memory, 0, 3)
    batch = memory.sample(8, generator)
    assert torch.equal(batch.weight, torch.ones(8))
    memory.set_errors(batch.slot, torch.full((8,), -5.0))
    fill(memory, 3, 1)
    memory._refresh()
    newest = memory.tree.leaves.reshape(-1, 2)[3]
    np.testing.assert_allclose(newest, 5.0, atol=1e-5)
    memory.set_errors(torch.arange(8), torch.full((8,), 0.1))
    fill(memory, 4, 1)
    memory._refresh()
    np.testing.assert_allclose(memory.tree.leaves.reshape(-1, 2)[4], 5.0, atol=1e-5)


@pytest.mark.parametrize("steps", [3, 10, 11, 25, 60])
def test_only_what_is_held_has_a_priority(steps: int) -> None:
    together, apart = make(), make()
    for t in range(steps):
        fill(apart, t, 1)
        apart._refresh()
    fill(together, 0, steps)
    together._refresh()
    np.testing.assert_array_equal(together.tree.nodes, apart.tree.nodes)
    assert np.count_nonzero(apart.tree.leaves) == 2 * min(steps, 10)


@pytest.mark.parametrize("steps", [4, 10, 37])
def test_what_is_loaded_goes_on_bit_equal(steps: int) -> None:
    memory, generator = make(n_step=3), torch.Generator().manual_seed(0)
    fill(memory, 0, steps)
    for _ in range(5):
        batch = memory.sample(8, generator)
        memory.set_errors(batch.slot, torch.randn(8, generator=generator))
    fill(memory, steps, 1)
    other = make(n_step=3)
    other.load_state_dict(memory.state_dict())
    np.testing.assert_array_equal(other.tree.nodes, memory.tree.nodes)
    for each in (memory, other):
        fill(each, steps + 1, 2)
    drawn = [
        entry.sample(32, torch.Generator().manual_seed(1), beta=0.4) for entry in (memory, other)
    ]
    for a, b in zip(*drawn, strict=True):
        assert torch.equal(a, b)
