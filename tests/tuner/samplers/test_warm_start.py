"""Warm starts: the use of earlier searches, and how soon they stop counting."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from optuna.trial import FrozenTrial, TrialState
from rltune.samplers.proposer import Proposer, open_study
from rltune.samplers.warm_start import MAX_SHOWN, Earlier, ranks
from rltune.space.space import Space
from rltune.study.records import StartConfig
from rltune.study.study import SearchStudy

SPACE = Space.from_dict(
    {
        "x": {"uniform": [0.0, 1.0]},
        "y": {"log": [1e-4, 1.0]},
        "kind": {"choice": ["a", "b"]},
        "z": {"uniform": [0.0, 1.0], "when": {"kind": "b"}},
    }
)


def hill(config: dict[str, Any]) -> float:
    """Return a value with its top at x = 0.8, y = 1e-3, kind a."""
    away = (config["x"] - 0.8) ** 2 + ((np.log10(config["y"]) + 3) / 4) ** 2
    return float(-away - 0.2 * (config["kind"] == "b"))


def earlier(sign: float = 1, n: int = 30, name: str = "earlier") -> Earlier:
    rng = np.random.default_rng(5)
    values = tuple(SPACE.sample(rng) for _ in range(n))
    return Earlier(name, values, tuple(ranks([sign * hill(value) for value in values])))


def trusts(study: SearchStudy) -> list[float]:
    warm_start = study._proposer._warm_start
    assert warm_start is not None
    judged = warm_start._judged(study._proposer.parameters.inside(study._database.trials))
    return [source.trust(*judged) for source in warm_start._sources]


def run(study: SearchStudy, trials: int, sign: float = 1) -> list[float]:
    found = []
    for _ in range(trials):
        trial = study.ask()
        assert trial is not None
        study.tell(trial.number, "COMPLETE", sign * hill(trial.config))
        found.append(hill(trial.config))
    return found


def test_trust_follows_what_is_foretold_rightly(tmp_path: Path) -> None:
    sources = [earlier(), earlier(-1)]
    study = open_study(tmp_path / "a.db", SPACE, sampler="random", earlier=sources)
    assert trusts(study) == [0, 0]  # before there is evidence
    run(study, 12)
    helpful, hostile = trusts(study)
    assert helpful > 0.6
    assert hostile == 0


def test_failures_and_early_stops_are_evidence_too(tmp_path: Path) -> None:
    study = open_study(tmp_path / "a.db", SPACE, sampler="random", earlier=[earlier()])
    for _ in range(10):
        trial = study.ask()
        assert trial is not None
        if trial.config["kind"] == "b":
            study.tell(trial.number, "FAIL", None, "diverged: x")
        else:
            study.report(trial.number, 10, hill(trial.config))
            study.tell(trial.number, "PRUNED")
    assert trusts(study)[0] > 0.4


def test_proposals_go_on_while_they_are_trusted(tmp_path: Path) -> None:
    def proposed(path: str, source: Earlier) -> int:
        study = open_study(tmp_path / path, SPACE, sampler="qmc", earlier=[source])
        run(study, 16)
        return sum(record.attrs["proposal"] == "warm start" for record in study.trials())

    assert proposed("a.db", earlier()) >= 3
    assert proposed("b.db", earlier(-1)) == 0


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_search_that_misleads_changes_nothing(sampler: str, tmp_path: Path) -> None:
    cold = open_study(tmp_path / "a.db", SPACE, sampler=sampler, seed=3)
    hot = open_study(tmp_path / "b.db", SPACE, sampler=sampler, seed=3, earlier=[earlier(-1)])
    run(cold, 6)
    run(hot, 6)
    assert [record.config for record in hot.trials()] == [record.config for record in cold.trials()]


def test_proposals_are_apart(tmp_path: Path) -> None:
    base = {"x": 0.8, "y": 1e-3, "kind": "a"}
    values = (*({**base, "x": 0.8 + i / 1000} for i in range(20)), {**base, "x": 0.2})
    source = Earlier("one", values, tuple(ranks([hill(value) for value in values])))
    proposer = Proposer(SPACE, "random", {}, 0, "maximize", [source])
    assert proposer._warm_start is not None
    start = [StartConfig("start:0", values[0])]
    study = open_study(tmp_path / "a.db", SPACE, starts=start)
    run(study, 1)
    second, *rest = proposer._warm_start._sources[0].best(study._database.trials)
    assert second == values[-1]
    assert rest == []


@pytest.mark.parametrize("sampler", ["tpe", "cost-aware"])
def test_a_helpful_search_saves_trials(sampler: str, tmp_path: Path) -> None:
    def mean(name: str, sources: list[Earlier]) -> float:
        values = []
        for seed in range(3):
            path = tmp_path / f"{name}{seed}.db"
            study = open_study(path, SPACE, sampler=sampler, seed=seed, earlier=sources)
            values += run(study, 8)
        return statistics.mean(values)

    assert mean("hot", [earlier()]) > 0.5 * mean("cold", [])  # both are below 0


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_samplers_see_ranks_and_the_trusted_part(direction: str, tmp_path: Path) -> None:
    sign = 1 if direction == "maximize" else -1
    study = open_study(
        tmp_path / "a.db", SPACE, seed=1, direction=direction, earlier=[earlier(n=200)]
    )
    run(study, 12, sign)
    assert trusts(study)[0] > 0.5
    running = study.ask()
    assert running is not None
    seen = study._proposer.known(study._database.trials)
    own = [trial for trial in seen if trial.number >= 0]
    theirs = [trial for trial in seen if trial.number < 0]
    assert [trial.number for trial in own] == list(range(13))
    assert own[-1].state == TrialState.RUNNING
    assert 0.5 * MAX_SHOWN < len(theirs) <= MAX_SHOWN

    def best(trials: list[FrozenTrial]) -> FrozenTrial:
        return max(trials, key=lambda trial: sign * (trial.value or -sign * 9))

    told = study._database.trials[:12]
    assert best(own[:12]).number == best(told).number
    assert hill(best(theirs).user_attrs["configuration"]) > -0.05  # the best one is among them
    assert all(0 <= sign * (trial.value or 0) <= 1 for trial in [*own[:12], *theirs])


def test_a_search_that_misleads_is_not_shown(tmp_path: Path) -> None:
    study = open_study(tmp_path / "a.db", SPACE, seed=1, earlier=[earlier(-1)])
    run(study, 8)
    assert all(trial.number >= 0 for trial in study._proposer.known(study._database.trials))
