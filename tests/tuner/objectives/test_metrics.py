from __future__ import annotations

import math

import pytest
from rltune.agents.errors import MissingMetricError, UserError
from rltune.objectives.metrics import DEFAULT, describe, metric_of, objective_of, parse_objective
from rltune.runs.search_spec import SearchSpec

RETURNS = [10.0, 60.0, 20.0, 30.0]


@pytest.mark.parametrize(
    ("objective", "value", "words"),
    [
        ("last", 30, "the last evaluation"),
        ("last:3", 110 / 3, "the mean of the last three evaluations"),
        ("last:9", 30, "the mean of the last 9 evaluations"),
        ("best", 60, "the best evaluation"),
        ("best:2", 40, "the best mean of two evaluations in a row"),
        ("best:9", 30, "the best mean of 9 evaluations in a row"),
        ("area", 30, "the mean of all evaluations so far, the area under the curve"),
    ],
)
def test_objectives(objective: str, value: float, words: str) -> None:
    assert objective_of(RETURNS, objective) == pytest.approx(value)
    assert describe(objective) == words
    assert objective_of(RETURNS[:1], objective) == 10


def test_the_default_is_no_lucky_evaluation() -> None:
    assert parse_objective(DEFAULT) == ("last", 3)


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ("lst", "did you mean 'last'"),
        ("last:0", "whole number"),
        ("last:", "whole number"),
        ("best:1.5", "whole number"),
        ("area:3", "last:N or best:N"),
        ("-1:last", "choose one of"),
    ],
)
def test_mistakes_are_explained(objective: str, message: str) -> None:
    with pytest.raises(UserError, match=f"--objective.*{message}"):
        SearchSpec(agent="ppo", env="CartPole-v1", space={}, budget=10, objective=objective)


def test_any_metric_can_be_the_objective() -> None:
    row = {"eval_return": 7.0, "loss": 0.5, "entropy": math.nan, "note": None}
    assert metric_of(row, "eval_return") == 7.0
    assert metric_of(row, "-loss") == -0.5
    for missing in ("entropy", "note", "kl"):
        with pytest.raises(
            MissingMetricError, match=f"no metric '{missing}' was reported; there are"
        ):
            metric_of(row, missing)
