"""Finalists that are trained again when time is short."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from rltune.answer.model import Finalist
from rltune.search.retesting import Retesting


def test_with_little_time_the_worst_finalists_are_left_out() -> None:
    """The defaults and the best stay; known-good settings need two seeds each, others three.

    The second of the search joins where two are left for those that it is compared with.
    """
    finalists = [
        Finalist(trial=n, origins=(origin,), config={"n": n}, objective=objective)
        for n, origin, objective in (
            (0, "default", 10.0), (1, "start:0", None), (5, "sampler", 70.0),
            (3, "sampler", 50.0), (4, "sampler", 40.0),
        )
    ]  # fmt: skip
    prices: dict[int, float | None] = {0: 10.0, 1: None, 3: 20.0, 4: 20.0, 5: 30.0}
    scores: dict[tuple[int, int], float] = {}

    def left(seconds: float) -> list[int]:
        retesting: Any = SimpleNamespace(
            ending=SimpleNamespace(seconds_left=lambda: seconds),
            parts=SimpleNamespace(
                progress=SimpleNamespace(slots=2), others=SimpleNamespace(goals=())
            ),
            prices=SimpleNamespace(of_retraining=lambda number, config: prices[number]),
            spec=SimpleNamespace(test_seeds=5),
            scores=scores,
        )
        return [finalist.trial for finalist in Retesting.affordable(retesting, finalists)]

    assert left(166) == [0, 1, 5, 3, 4]  # three times 10, 20, 30, 20 and 20, two at once, a tenth
    assert left(164) == [0, 1, 5, 3]
    assert left(116) == [0, 1, 5, 3]  # two seeds of 10 and 20, three of 30 and 20
    assert left(115) == [0, 1, 5]
    assert left(67) == [0, 1, 5]  # two seeds
    assert left(65) == [0, 5]
    assert left(1) == [0, 5]
    prices[1] = 60.0
    assert left(111) == [0, 1, 5]
    assert left(109) == [0, 5, 3]  # who is dear has no place where a cheaper one has
    prices |= {1: None, 3: 90.0}
    assert left(135) == [0, 1, 5, 4]  # two seeds of 10 and 37.5, three of 30 and 20
    assert left(134) == [0, 1, 5]
    prices[3] = 20.0
    prices[1] = None
    assert left(math.inf) == [0, 1, 5, 3, 4]
    scores.update({(trial, seed): 1.0 for trial in (0, 5) for seed in (100, 101, 102)})
    assert left(67) == [0, 1, 5, 3]  # before a resume
    scores.clear()
    prices.update(dict.fromkeys(prices))
    assert left(1) == [0, 1, 5, 3, 4]  # nobody knows what they cost
