from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch
from rltune.agents.memory.batch import Batch
from rltune.agents.shares import DividedShares, Shares
from torch import Tensor


class Steps(NamedTuple):
    obs: Tensor
    reward: Tensor
    noise: Tensor | None = None


def parts(n: int) -> list[DividedShares]:
    return [DividedShares(rank, n, lambda tensor: None) for rank in range(n)]


@pytest.mark.parametrize(("rows", "n"), [(6, 2), (7, 2), (7, 3), (3, 3), (2, 3), (1, 2)])
def test_weighted_means_of_the_shares_are_the_mean_of_all(rows: int, n: int) -> None:
    values = np.random.default_rng(0).normal(size=rows)
    total = 0.0
    for share in parts(n):
        own = values[share.own(rows)]
        assert len(own)
        total += share.weight * own.mean()
    assert total == pytest.approx(values.mean())


def test_blocks_cover_all_rows() -> None:
    covered = [i for share in parts(4) for i in range(3)[share.block(3)]]
    assert covered == [0, 1, 2]


def test_rows_of_every_part() -> None:
    batch = Steps(torch.arange(10).view(5, 2), torch.arange(15).view(3, 5))  # of three streams
    first, second = (share.rows(batch) for share in parts(2))
    assert first.obs.tolist() == [[0, 1], [2, 3]]
    assert second.obs.tolist() == [[4, 5], [6, 7], [8, 9]]
    assert first.reward.tolist() == [[0, 1], [5, 6], [10, 11]]
    assert first.noise is None


def test_steps_of_sequences() -> None:
    batch = Steps(torch.zeros(3, 4, 2), torch.arange(12), torch.arange(24).view(12, 2))
    _, second = (share.rows(batch) for share in parts(2))
    assert second.obs.shape == (2, 4, 2)
    assert second.reward.tolist() == list(range(4, 12))
    assert second.noise is not None
    assert second.noise[:, 0].tolist() == list(range(8, 24, 2))


def test_minibatches_of_a_large_draw() -> None:
    rows = torch.arange(6)
    drawn = Batch(rows, rows, rows, rows, rows)
    _, second = parts(2)
    assert [part.obs.tolist() for part in second.minibatches([drawn], 3)] == [[1, 2], [4, 5]]
    assert second.end_update() == pytest.approx(2 / 3)
    assert list(Shares().minibatches([drawn], 3)) == [drawn]


def test_gradients_are_weighted_and_added() -> None:
    sent: list[Tensor] = []
    share = DividedShares(0, 2, sent.append)
    share.own(3)
    gradient = torch.tensor([3.0, 6.0])
    share.add_up(gradient)
    assert sent[0] is gradient
    assert gradient.tolist() == [1.0, 2.0]


def test_a_learner_alone_has_everything() -> None:
    alone = Shares()
    batch = Steps(torch.zeros(3), torch.zeros(3))
    assert alone.rows(batch) is batch
    assert alone.mean(0.3) == 0.3
    assert range(5)[alone.own(5)] == range(5)
