"""Importances of trials that a sampler chose and a scheduler cut."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rltune.agents.config import config_hash
from rltune.analysis.importance.design import Factors, _reports, factors_of
from rltune.analysis.importance.importances import judge
from rltune.analysis.importance.response import Process, Response, Values
from rltune.results import Run
from rltune.runs.directory import RunDir
from rltune.samplers.proposer import open_study
from rltune.schedulers.registry import make_scheduler
from rltune.space.space import Space

NUMBERS = {name: {"uniform": [0.0, 1.0]} for name in ("x", "d1", "d2", "d3")}
BUDGETS = (1000, 3000, 9000)


def narrowing(
    seed: int, effect: float = 4.0, trials: int = 60, **spec: Any
) -> tuple[Factors, list[dict[str, Any]], dict[int, dict[int, float]]]:
    """Return a search that draws ever nearer to its best trial, in every parameter, with ASHA."""
    rng = np.random.default_rng(seed)
    judge_ = make_scheduler("asha", BUDGETS[-1], {})
    rows: list[dict[str, Any]] = []
    reports: dict[int, dict[int, float]] = {}
    best = (-np.inf, np.full(4, 0.5))
    for number in range(trials):
        place = rng.random(4) if number < 8 else best[1] + 0.15 * rng.normal(size=4)
        place = np.clip(place, 0, 1)
        own: dict[int, float] = {}
        for budget, part in zip(BUDGETS, (0.5, 0.8, 1.0), strict=True):
            own[budget] = part * (3 - effect * (place[0] - 0.7) ** 2) + 0.15 * rng.normal()
            if judge_.decide(number, budget, own[budget]) == "stop":
                break
        reports[number] = own
        rung = max(own)
        best = max(best, (own[rung] + 2 * (rung == BUDGETS[-1]), place), key=lambda one: one[0])
        config = {f"config.{name}": x for name, x in zip(NUMBERS, place.tolist(), strict=True)}
        state = "COMPLETE" if rung == BUDGETS[-1] else "PRUNED"
        row = {"trial": number, "state": state, "reason": "", "objective": own[rung], "rung": rung}
        rows.append(row | config)
    spec = {"space": {"space": NUMBERS}, "sampler": "tpe", **spec}
    return factors_of(spec, rows, lambda: reports), rows, reports


def test_parameters_that_only_narrowed_with_the_others_are_noise() -> None:
    above: list[str] = []
    for seed in range(3):
        frame = judge(narrowing(seed)[0])
        assert sorted(frame["parameter"].unique()) == sorted(NUMBERS)  # no budget among them
        assert any("a model judges" in note for note in frame.attrs["notes"])
        found = frame[~frame["is_noise"]]
        for method in ("fanova", "permutation"):
            mine = found[found["method"] == method]["parameter"].tolist()
            assert "x" in mine, method
        above += found[found["parameter"] != "x"]["parameter"].tolist()
        for _, row in frame.iterrows():
            assert 0 <= row["low"] <= row["importance"] <= row["high"] <= 1
    assert len(above) <= 2  # of 27


def test_nothing_is_found_where_nothing_matters() -> None:
    frame = judge(narrowing(0, effect=0.0)[0])
    assert frame["is_noise"].all()
    assert frame.attrs["needs"].startswith("60 trials can't tell which parameters matter.")


def test_a_population_claims_nothing() -> None:
    frame = judge(narrowing(0, scheduler="pbt")[0])
    assert frame["is_noise"].all()
    assert frame["importance"].isna().all()
    assert "Nothing is claimed: in a population" in frame.attrs["notes"][-1]


def test_random_trials_of_one_budget_are_shuffled() -> None:
    _, rows, reports = narrowing(0)
    spec = {"space": {"space": NUMBERS}, "sampler": "random"}
    assert factors_of(spec, rows, lambda: reports).chosen is not None  # ASHA has cut them
    whole = [row | {"rung": 9000} for row in rows]
    assert factors_of(spec, whole, lambda: reports).chosen is None
    assert factors_of(spec | {"warm_start": ["a"]}, whole, lambda: reports).chosen is not None


def test_all_values_of_a_trial_count_and_the_failed_one_is_the_worst() -> None:
    _, rows, reports = narrowing(0, trials=30)
    known = sum(map(len, reports.values()))
    rows[3] |= {"state": "FAIL", "reason": "diverged: nan", "objective": None, "rung": 1000}
    reports[3] = {1000: reports[3][1000]}
    lost = known - len(narrowing(0, trials=30)[2][3]) + 1
    spec = {"space": {"space": NUMBERS}, "sampler": "tpe"}
    chosen = factors_of(spec, rows, lambda: reports).chosen
    assert chosen is not None
    assert len(chosen.y) == lost + 1
    mine = chosen.trial == 29  # failed ones come last
    assert (mine.sum(), chosen.budget[mine][-1] < 1) == (2, True)
    there = chosen.budget == chosen.budget[mine][-1]
    assert chosen.y[mine][-1] == chosen.y[there].min()


def test_what_the_scheduler_was_told_is_read_from_the_study(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "run", {"space": {"space": NUMBERS}}, exist_error=False)
    assert _reports(Run(run)) == {}
    study = open_study(run.study_path, Space.from_dict({"space": NUMBERS}))
    asked = study.ask()
    assert asked is not None
    assert config_hash(asked.config)
    study.report(asked.number, 1000, 1.5)
    study.tell(asked.number, "COMPLETE", 2.5, point=9000)
    study.close()
    assert _reports(Run(run)) == {0: {1000: 1.5, 9000: 2.5}}


def test_the_slope_of_the_fit_is_right() -> None:
    factors = narrowing(1, trials=30)[0]
    assert factors.chosen is not None
    response = Response(factors.design.columns, factors.chosen)
    free = response._free
    theta = response._priors[:, 0] + 0.3 * np.random.default_rng(0).normal(size=len(free))
    slope = response._loss(theta, free)[1]
    for k in np.flatnonzero(free):
        step = 1e-5 * np.eye(len(free))[k]
        ends = [response._loss(theta + sign * step, free)[0] for sign in (1, -1)]
        assert slope[k] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-4, abs=1e-5)


def test_the_process_has_the_likelihood_of_the_textbook() -> None:
    """Up to a constant, without the means: of differences from the first value."""
    factors = narrowing(2, trials=30)[0]
    assert factors.chosen is not None
    one: Mapping[str, Any] = vars(factors.chosen)
    rows = factors.chosen.budget < factors.chosen.budget.max()
    rows &= factors.chosen.budget == factors.chosen.budget.min()
    values = Values(**{name: array[rows] for name, array in one.items()})
    response = Response(factors.design.columns, values)
    found, expected = [], []
    for length in (0.3, 1.0, 3.0):
        process = Process(response, response.fit().with_length(0, length))
        whole = process.kernel + process.rest
        differences = np.eye(len(whole))[1:] - np.eye(len(whole))[0]
        covariance, d = differences @ whole @ differences.T, differences @ values.y
        square = d @ np.linalg.solve(covariance, d)
        n = len(d)
        expected.append(-0.5 * np.linalg.slogdet(covariance)[1] - 0.5 * n * np.log(square / n))
        found.append(float(process.likelihood(values.y[:, None])[0]))
    np.testing.assert_allclose(np.diff(found), np.diff(expected), rtol=1e-6)
