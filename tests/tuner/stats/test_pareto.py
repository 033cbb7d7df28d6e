"""Fronts against a naive transcription of what they are."""

from __future__ import annotations

import numpy as np
import pytest
from rltune.stats.pareto import front, losses, ranks, select, spread


def naive_ranks(points: list[list[float]], minimize: list[bool]) -> list[int]:
    """Take the front away, then the next one, by the definition of dominance."""

    def dominates(a: list[float], b: list[float]) -> bool:
        pairs = [(x, y) if low else (-x, -y) for x, y, low in zip(a, b, minimize, strict=True)]
        return all(x <= y for x, y in pairs) and any(x < y for x, y in pairs)

    found = [-1] * len(points)
    left, rank = set(range(len(points))), 0
    while left:
        best = {i for i in left if not any(dominates(points[j], points[i]) for j in left)}
        for i in best:
            found[i] = rank
        left, rank = left - best, rank + 1
    return found


@pytest.mark.parametrize("n_values", [1, 2, 3])
def test_ranks_are_those_of_the_definition(n_values: int) -> None:
    rng = np.random.default_rng(n_values)
    for _ in range(40):
        points = rng.integers(0, 6, (int(rng.integers(1, 25)), n_values)).astype(float).tolist()
        minimize = [bool(value) for value in rng.integers(0, 2, n_values)]
        expected = naive_ranks(points, minimize)
        assert ranks(points, minimize) == expected
        assert front(points, minimize) == [i for i, rank in enumerate(expected) if rank == 0]
        n = int(rng.integers(1, len(points) + 1))
        chosen = select(points, minimize, n)
        assert len(chosen) == len(set(chosen)) == n
        worst = max(expected[i] for i in chosen)
        assert set(chosen) >= {i for i, rank in enumerate(expected) if rank < worst}


def test_infinite_values_are_the_worst() -> None:
    points = [[1.0, 2.0], [-np.inf, np.inf], [2.0, 1.0]]
    assert ranks(points, [False, True]) == [1, 2, 0]


def test_nobody() -> None:
    assert (ranks([], [True]), front([], [True]), spread([], [True])) == ([], [], [])
    assert select([], [True, False], 3) == []


def test_the_best_in_the_first_value_comes_first_then_those_far_apart() -> None:
    points = [[0.0, 0.0], [0.1, 1.0], [0.5, 50.0], [0.9, 98.0], [1.0, 100.0]]
    assert spread(points, [False, True]) == [4, 0, 2, 3, 1]
    assert select(points, [False, True], 3) == [4, 0, 2]
    # Each value counts in parts of its range, so its unit doesn't matter.
    in_ms = [[first, 1000 * second] for first, second in points]
    assert spread(in_ms, [False, True]) == [4, 0, 2, 3, 1]


def test_equals_keep_their_order() -> None:
    assert spread([[1.0, 1.0]] * 3, [False, True]) == [0, 1, 2]
    # The first value ties: the second one decides.
    assert spread([[1.0, 5.0], [1.0, 2.0]], [False, True])[0] == 1


def test_losses_are_to_be_minimised() -> None:
    assert losses([[1.0, 2.0]], [False, True]).tolist() == [[-1.0, 2.0]]
