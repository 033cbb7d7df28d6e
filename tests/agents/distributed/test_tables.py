"""Tables: sharded replay is as a single memory."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from rltune.agents.distributed.fragments import Fragment, FragmentMemory
from rltune.agents.distributed.tables import QueueTable, ReplayTable
from rltune.agents.memory.prioritised import PrioritisedMemory
from rltune.agents.memory.replay import ReplayMemory
from rltune.agents.spaces import Spaces, with_states

SPACES = Spaces(gymnasium.spaces.Box(-1e6, 1e6, (1,)), gymnasium.spaces.Discrete(2), 1)


def memory(kind: type[ReplayMemory], **more: Any) -> Any:
    return kind(100, SPACES, (), np.int64, gamma=0.9, **more)


def fragment(actor: int, first: int, rows: int, begins: bool = False, size: int = 1) -> Fragment:
    """Steps whose observations count from ``first``; the third of each ten is a time limit."""
    collected = FragmentMemory()
    for number in range(first, first + rows):
        collected.add(
            obs=np.full((1, size), number, np.float32),
            action=np.array([number % 2]),
            reward=np.array([float(number)]),
            terminated=np.zeros(1, np.bool_),
            truncated=np.array([number % 10 == 3]),
            next_obs=np.full((1, size), number + 1, np.float32),
            valid=np.ones(1, np.bool_),
        )
    return collected.take(actor=actor, version=0, episodes=[[]] * rows, begins=begins)


def test_fragments_know_the_true_successors() -> None:
    made = fragment(0, 0, 20)
    assert made.next_obs()[:, 0, 0].tolist() == list(range(1, 21))
    assert made.finals == [(3, 0), (13, 0)]
    assert made.from_row(5).next_obs()[:, 0, 0].tolist() == list(range(6, 21))


def test_replayed_transitions_are_true_and_all_of_them_are_drawn_alike() -> None:
    table = ReplayTable(lambda: memory(ReplayMemory), 2, seed=0)
    table.insert(fragment(0, 0, 20))
    table.insert(fragment(1, 100, 60))
    table.insert(fragment(0, 20, 20))
    batches = table.sample(50, 200)
    obs = np.concatenate([batch.obs for batch in batches])[:, 0]
    next_obs = np.concatenate([batch.next_obs for batch in batches])[:, 0]
    assert (next_obs == obs + 1).all()
    counts = np.bincount(obs.astype(int), minlength=160)
    assert set(np.flatnonzero(counts)) == {*range(40), *range(100, 160)}
    assert counts[counts > 0].std() == pytest.approx(np.sqrt(100), rel=0.3)


def test_priorities_count_across_memories() -> None:
    table = ReplayTable(lambda: memory(PrioritisedMemory, alpha=1.0), 2, seed=0)
    table.insert(fragment(0, 0, 10))
    table.insert(fragment(1, 100, 10))
    [batch] = table.sample(1, 500, 1.0)
    assert batch.weight is not None
    assert np.allclose(batch.weight, 1)
    wanted = np.where(batch.obs[:, 0] == 105, 81.0, 1.0)  # 81 of 100 in all
    table.set_errors(np.asarray(batch.slot), wanted)
    [batch] = table.sample(1, 2000, 1.0)
    often = np.asarray(batch.obs)[:, 0] == 105
    assert often.mean() == pytest.approx(0.81, abs=0.03)
    weight = np.asarray(batch.weight)
    assert weight[often].mean() == pytest.approx(1 / 81, rel=1e-3)
    assert weight[~often].mean() == pytest.approx(1, rel=1e-3)


def test_sequences_are_of_one_memory_each() -> None:
    spaces = with_states(SPACES, 1)  # the observation, a mark, and the state of an LSTM
    table = ReplayTable(lambda: ReplayMemory(100, spaces, (), np.int64, gamma=0.9), 2, seed=0)
    table.insert(fragment(0, 0, 4, size=4))  # too short
    table.insert(fragment(1, 100, 40, size=4))
    [batch] = table.sample_sequences(1, 6, 5, 2)
    assert np.asarray(batch.obs).shape == (6, 7, 4)
    assert (np.diff(np.asarray(batch.obs)[..., 0], axis=1) == 1).all()


def test_an_actor_that_begins_anew_has_no_part_in_the_old_episode() -> None:
    table = ReplayTable(lambda: memory(ReplayMemory, n_step=3), 1, seed=0)
    table.insert(fragment(0, 4, 3))
    table.insert(fragment(0, 50, 3, begins=True))
    [batch] = table.sample(1, 300)
    seen = {(int(a), int(b)) for a, b in zip(batch.obs[:, 0], batch.next_obs[:, 0], strict=True)}
    assert all(abs(b - a) <= 3 for a, b in seen)
    assert (6, 7) in seen


def test_what_is_saved_comes_back() -> None:
    table = ReplayTable(lambda: memory(ReplayMemory), 2, seed=0)
    table.insert(fragment(0, 0, 20))
    table.insert(fragment(1, 100, 20))
    other = ReplayTable(lambda: memory(ReplayMemory), 2, seed=5)
    other.load_state_dict(table.state_dict())
    assert len(other) == len(table)
    assert torch.equal(
        torch.tensor(other.sample(1, 9)[0].obs), torch.tensor(table.sample(1, 9)[0].obs)
    )


def test_a_queue_gives_each_item_once_in_its_order() -> None:
    queue = QueueTable(lambda given: given.actor)
    for actor in (3, 1, 2):
        queue.insert(fragment(actor, 0, 1))
    assert queue.take(2) == [3, 1]
    assert queue.take(5) == [2]
    assert len(queue) == 0
