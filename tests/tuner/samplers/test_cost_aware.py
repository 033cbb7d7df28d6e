"""The sampler that weighs what a configuration promises against what it costs."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rltune.samplers.cost_aware import _front, _parts, _values
from rltune.samplers.proposer import Proposer, open_study
from rltune.samplers.surrogate import (
    Encoder,
    GaussianProcess,
    _negative_log_posterior,
    normal_scores,
)
from rltune.space.space import Space
from scipy.optimize import check_grad

SPACE = Space.from_dict(
    {
        "n_epochs": {"int": [1, 30], "log": True},
        "learning_rate": {"log": [1e-5, 1e-2]},
        "optimizer": {"choice": ["adam", "rmsprop"]},
        "rms_alpha": {"uniform": [0.9, 0.999], "when": {"optimizer": "rmsprop"}},
    }
)


def value(config: dict[str, Any]) -> float:
    """Return a value on which n_epochs has no influence."""
    return -abs(math.log10(config["learning_rate"]) + 3) - (config["optimizer"] == "rmsprop")


def search(path: Path, trials: int, price: Any, **options: Any) -> list[dict[str, Any]]:
    study = open_study(path, SPACE, sampler="cost-aware", sampler_options=options, seed=2)
    configs = []
    for _ in range(trials):
        trial = study.ask()
        assert trial is not None
        attrs = {"seconds": price(trial.config), "budget_reached": 1000}
        study.tell(trial.number, "COMPLETE", value(trial.config), attrs=attrs)
        configs.append(trial.config)
    return configs


def test_what_is_as_good_is_had_cheaply(tmp_path: Path) -> None:
    dear = search(tmp_path / "a.db", 24, lambda config: 1.0 * config["n_epochs"])
    same = search(tmp_path / "b.db", 24, lambda config: 1.0)
    epochs = [statistics.mean(c["n_epochs"] for c in entry[8:]) for entry in (dear, same)]
    assert epochs[0] < 0.6 * epochs[1], epochs
    assert statistics.mean(value(config) for config in dear[-8:]) > -0.6  # random: about -1.5


def test_trials_that_were_stopped_and_that_failed_teach(tmp_path: Path) -> None:
    study = open_study(tmp_path / "a.db", SPACE, sampler="cost-aware")
    for i in range(30):
        trial = study.ask()
        assert trial is not None
        if trial.config["optimizer"] == "rmsprop":
            study.tell(trial.number, "FAIL", None, "diverged: x")
            continue
        study.report(trial.number, 100, value(trial.config) - 1)
        if i % 3:
            study.tell(trial.number, "PRUNED")
        else:
            study.report(trial.number, 900, value(trial.config))
            study.tell(trial.number, "COMPLETE", value(trial.config))
    seen = study._proposer.known(study._database.trials)
    failed = [t for t in seen if t.state.name == "FAIL"]
    assert set(_values(failed, 1.0)) == {0.0}  # there is no worse one among them
    worst = min(t.value for t in seen if t.value is not None)
    assert _values([*seen], 1.0)[seen.index(failed[0])] == worst
    pruned = [t for t in seen if t.state.name == "PRUNED"]
    part = 1 + math.log(1 / 9) / math.log(100)
    assert _parts(seen)[[seen.index(t) for t in pruned]] == pytest.approx(part)
    late = [record.config for record in study.trials()[-8:]]
    assert sum(config["optimizer"] == "rmsprop" for config in late) <= 2


def test_the_front_has_the_best_of_every_price(tmp_path: Path) -> None:
    study = open_study(tmp_path / "a.db", SPACE, sampler="random")
    for price in (5.0, 9.0, 9.0, 1.0, 7.0):
        trial = study.ask()
        assert trial is not None
        study.tell(trial.number, "COMPLETE", price)
    trials = study._database.trials
    front = _front(trials, 1.0, np.array([1.0, 4.0, 3.0, 2.0, 2.0]))
    assert [trial.number for trial in front] == [2, 4, 0]


def test_the_encoding_keeps_choices_and_inactive_ones_apart() -> None:
    proposer = Proposer(SPACE, "random", {}, 0, "maximize")
    encoder = Encoder(proposer.parameters.distributions)
    base = {"n_epochs": 30, "learning_rate": 1e-5}
    configs: list[dict[str, Any]] = [
        {**base, "optimizer": "adam"},
        {**base, "optimizer": "rmsprop", "rms_alpha": 0.9},
    ]
    rows = encoder.rows([proposer.as_parameters(config)[0] for config in configs])
    assert list(encoder.owner) == [0, 1, 2, 2, 3]
    assert rows[0, [1, 4]] == pytest.approx([0.0, 0.5])
    assert rows[0, 0] > 0.98
    assert rows[1, 4] == 0
    assert np.linalg.norm(rows[0, 2:4] - rows[1, 2:4]) == pytest.approx(1)


def test_the_gaussian_process_finds_what_matters() -> None:
    rng = np.random.default_rng(0)
    x = rng.random((60, 5))
    y = normal_scores(-((x[:, 1] - 0.7) ** 2) + 0.01 * rng.normal(size=60))
    squares = ((x[:, None] - x[None]) ** 2).transpose(2, 0, 1).reshape(5, -1)
    theta = 0.3 * rng.normal(size=7)
    wrong = check_grad(
        lambda t: _negative_log_posterior(t, squares, y)[0],
        lambda t: _negative_log_posterior(t, squares, y)[1],
        theta,
    )
    assert wrong < 1e-4 * np.linalg.norm(_negative_log_posterior(theta, squares, y)[1])
    model = GaussianProcess(np.arange(5)).fit(x, y)
    mean, deviation = model.predict(np.vstack([np.full((1, 5), 0.7), x[:1]]))
    assert mean[0] > 1
    assert mean[1] == pytest.approx(y[0], abs=0.5)
    assert (deviation < 1).all()
    assert np.argmin(model._theta[:5]) == 1  # the shortest length scale
