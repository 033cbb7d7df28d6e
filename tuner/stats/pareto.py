"""Pareto fronts: ranks by non-domination, and a choice of points that lie far apart.

One point dominates another when it is nowhere worse and somewhere better. Points of a front are
told apart by how sparse their region is: an epsilon net, as in Schmucker et al., "Multi-objective
Asynchronous Successive Halving" (arXiv:2106.12639), where it did better than NSGA-II's crowding
distance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Points = Sequence[Sequence[float]]


def losses(points: Points, minimize: Sequence[bool]) -> Array:
    """Return the points as if all of their values were to be minimised; shape (points, values)."""
    signs = np.where(minimize, 1.0, -1.0)
    return np.asarray(points, float).reshape(len(points), len(minimize)) * signs


def ranks(points: Points, minimize: Sequence[bool], at_least: int | None = None) -> list[int]:
    """Return the rank of each point: 0 on the front, 1 on the front of the others, and so on.

    Args:
        points: shape (points, values), without NaN
        minimize: of each value, whether lower is better
        at_least: as many points get their true rank; those behind them may share one
    """
    # Late: printing a front need not wait for Optuna.
    from optuna.study._multi_objective import _fast_non_domination_rank

    found: list[int] = _fast_non_domination_rank(
        losses(points, minimize), n_below=at_least
    ).tolist()
    return found


def front(points: Points, minimize: Sequence[bool]) -> list[int]:
    """Return the indices of the points that no other one dominates, ascending; twins are all in."""
    return [index for index, rank in enumerate(ranks(points, minimize, 1)) if rank == 0]


def spread(points: Points, minimize: Sequence[bool]) -> list[int]:
    """Return the indices such that any number of the first ones lie far apart.

    First comes the point that is best in the first value (then the second, and so on), then again
    and again the one that is farthest from all before it. Each value counts in parts of its range;
    the earlier of two equals comes first. All values are finite.
    """
    if not len(points):
        return []
    scaled = losses(points, minimize)
    first = min(range(len(points)), key=lambda index: (*scaled[index], index))
    span = np.ptp(scaled, axis=0)
    scaled /= np.where(span > 0, span, 1.0)
    order = [first]
    distance = np.linalg.norm(scaled - scaled[first], axis=1)
    while len(order) < len(points):
        distance[order[-1]] = -1.0
        order.append(int(distance.argmax()))
        distance = np.minimum(distance, np.linalg.norm(scaled - scaled[order[-1]], axis=1))
    return order


def select(points: Points, minimize: Sequence[bool], n: int) -> list[int]:
    """Return the indices of the `n` best: whole fronts first, of the last one those far apart."""
    chosen: list[int] = []
    rank_of = ranks(points, minimize, min(n, len(points)))
    for rank in range(max(rank_of, default=-1) + 1):
        members = [index for index, own in enumerate(rank_of) if own == rank]
        order = spread([points[index] for index in members], minimize)
        chosen += [members[index] for index in order][: n - len(chosen)]
        if len(chosen) == n:
            break
    return chosen
