"""The episodes of evaluations: as many as a decision needs, and all of them for the record."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rltune.objectives.episodes import LEAST, EvaluationPlan, affordable_steps, is_too_low

POINTS = [round(20_000 * k / 9) for k in range(1, 10)]


def make_plan(**changes: Any) -> EvaluationPlan:
    values: dict[str, Any] = {
        "episodes": 10,
        "points": POINTS,
        "stops": [POINTS[0], POINTS[2], POINTS[-1]],
        "cutoffs": {},
        "env_steps": affordable_steps(0.2, 20_000),
        "objective": "last:3",
    }
    return EvaluationPlan(**{**values, **changes})


def episodes(plan: EvaluationPlan, length: float) -> list[int]:
    """Return those of a training whose episodes all have this length."""
    found: list[int] = []
    for point in plan.points:
        found.append(plan.most(point, int(sum(found) * length), length))
    return found


def test_short_episodes_are_all_run_where_something_depends_on_them() -> None:
    assert episodes(make_plan(), 30) == [10, 10, 10, 3, 3, 3, 10, 10, 10]
    assert episodes(make_plan(objective="last"), 30) == [10, 3, 10, 3, 3, 3, 3, 3, 10]
    assert episodes(make_plan(stops=POINTS[-1:]), 30) == [3] * 6 + [10] * 3
    for objective in ("best:2", "area"):
        assert episodes(make_plan(objective=objective), 30) == [10] * 9
    known = make_plan(cutoffs={POINTS[0]: 50.0, POINTS[2]: 70.0})
    assert episodes(known, 30) == [10, 10, 10, 3, 3, 3, 10, 10, 10]
    assert known.most(POINTS[0], 0, None) == LEAST
    # Where no cutoff is known, values are what later ones are compared with.
    assert episodes(make_plan(), 500)[:6] == [10, 10, 10, 1, 1, 1]
    assert episodes(make_plan(cutoffs={POINTS[0]: 50.0}), 500)[:3] == [10, 10, 10]
    assert episodes(known, 500)[:3] == [3, 3, 3]


@pytest.mark.parametrize("length", [20, 100, 200, 300, 400, 500])
@pytest.mark.parametrize("share", [0.1, 0.2, 0.4])
def test_evaluations_take_no_more_than_their_share(length: int, share: float) -> None:
    cutoffs = {POINTS[0]: 50.0, POINTS[2]: 70.0}
    plan = make_plan(env_steps=affordable_steps(share, 20_000), cutoffs=cutoffs)
    found = episodes(plan, length)
    assert found[-3:] == [10] * 3
    least = 3 * LEAST + 3 * 1 + 30  # to decide, for nothing, for the record
    assert sum(found) * length <= max(plan.env_steps, least * length)
    assert min(found[:3]) >= LEAST


def test_the_mean_that_a_rung_needs() -> None:
    plan = make_plan(cutoffs={POINTS[0]: 50.0, POINTS[2]: 70.0, POINTS[-1]: 1e9})
    assert plan.needed(POINTS[0], []) == 50.0
    assert plan.needed(POINTS[1], [60.0]) is None
    # With 40 and 60 before, 110 makes a mean of 70.
    assert plan.needed(POINTS[2], [40.0, 60.0]) == pytest.approx(110.0)
    assert plan.needed(POINTS[-1], [1.0] * 8) is None  # the record needs no decision


Draw = Callable[[np.random.Generator, int], NDArray[Any]]
# Returns of episodes around 0, as they come: even ones, mostly the best possible with some
# failures, mostly the floor with some successes, and long tails.
KINDS: dict[str, Draw] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "ceiling": lambda rng, n: np.where(rng.random(n) < 0.85, 0.0, -rng.uniform(1, 5, n)),
    "floor": lambda rng, n: np.where(rng.random(n) < 0.8, -1.0, rng.uniform(0, 8, n)),
    "skewed": lambda rng, n: rng.exponential(size=n) - 1,
    "success": lambda rng, n: (rng.random(n) < 0.5).astype(float),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("distance", [2.0, 5.0, 10.0])
def test_what_is_clear_is_what_all_episodes_would_say(kind: str, distance: float) -> None:
    """The value that is needed is off by up to so many deviations of the episodes' mean."""
    rng = np.random.default_rng(0)
    draw, evaluations = KINDS[kind], 3000
    sample = draw(rng, 10_000)
    center, error = sample.mean(), sample.std() / math.sqrt(10)
    wrong = clear = 0
    for _ in range(evaluations):
        returns, training = draw(rng, 10), draw(rng, 20)
        needed = center + error * distance * rng.uniform(-1, 1)
        if is_too_low(returns[:LEAST].tolist(), needed, 10, training.tolist()):
            clear += 1
            wrong += returns.mean() >= needed
    assert wrong / evaluations < 0.015
    if distance == 10.0:  # and it spares something
        assert clear / evaluations > 0.15


def test_equal_returns_are_not_certain() -> None:
    assert not is_too_low([300.0] * 3, 320.0, 10, [500.0, 300.0, 420.0, 500.0])
    assert is_too_low([300.0] * 3, 480.0, 10, [500.0, 300.0, 420.0, 500.0])
    assert not is_too_low([-500.0] * 3, -500.0, 10, [-500.0] * 9)
    assert is_too_low([-500.0] * 3, -120.0, 10, [])
    assert not is_too_low([500.0] * 3, 20.0, 10, [9.0, 20.0])  # high enough
