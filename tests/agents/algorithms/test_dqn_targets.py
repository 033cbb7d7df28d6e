from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltune.agents.algorithms.dqn import DQN
from rltune.agents.algorithms.dqn_config import DQNConfig
from rltune.agents.spaces import Spaces

SEQUENCES = {"lstm_size": 4, "sequence_length": 4, "burn_in": 2}


def drawn(n: int, config: dict[str, Any]) -> tuple[DQN, list[Any]]:
    """Fill the memory of an agent, let it draw, and return the minibatches."""
    box = spaces.Box(-1, 1, (2,), np.float32)
    space = Spaces(box, spaces.Discrete(3), 1)
    dqn = DQN(DQNConfig(net_arch=(4,), batch_size=16, **config), space, seed=0)
    memory, rng = dqn.make_memory(), np.random.default_rng(0)
    shape = dqn.spaces.observation.shape
    assert shape is not None
    never = np.zeros(1, np.bool_)
    for _ in range(40):
        memory.add(
            obs=rng.normal(size=(1, *shape)).astype(np.float32),
            action=rng.integers(3, size=1),
            reward=rng.normal(size=1),
            terminated=never,
            truncated=never,
            next_obs=rng.normal(size=(1, *shape)).astype(np.float32),
            valid=~never,
        )
    return dqn, list(dqn.td_targets.draw(memory, n, 1.0))


@pytest.mark.parametrize("config", [{}, {"double": True}, {"prioritised": True}, SEQUENCES])
def test_so_many_minibatches_are_drawn_as_were_asked_for(config: dict[str, Any]) -> None:
    _, batches = drawn(5, config)
    assert [len(batch.target) for batch in batches] == 5 * [16]
    assert not torch.equal(batches[0].target, batches[1].target)
    assert all((batch.weight is not None) == ("prioritised" in config) for batch in batches)


def test_large_draws_are_cut_into_the_minibatches() -> None:
    _, batches = drawn(600, {})  # 9600 transitions, more than are drawn at once
    assert len(batches) == 600
    assert all(len(batch.obs) == 16 for batch in batches)
    pairs = {
        (row[0].item(), target.item())
        for batch in batches
        for row, target in zip(batch.obs, batch.target, strict=True)
    }
    assert len(pairs) == 40  # each of the 40 transitions has one target


def test_sequences_lose_their_burn_in() -> None:
    _, batches = drawn(1, SEQUENCES)
    assert batches[0].obs.shape[:2] == (4, 4)
    _, batches = drawn(1, {**SEQUENCES, "sequence_length": 32})  # longer than a minibatch
    assert batches[0].obs.shape[:2] == (1, 32)
