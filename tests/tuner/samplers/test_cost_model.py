"""The cost model: the seconds of a configuration."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest
from rltune.samplers.cost_model import MAX_TRIALS, CostModel
from rltune.space.space import Space

SPACE = Space.from_dict(
    {
        "learning_rate": {"log": [1e-5, 1e-2]},
        "gamma": {"one_minus_log": [0.9, 0.9999]},
        "n_epochs": {"int": [1, 20]},
        "batch_size": {"pow2": [32, 1024]},
        "net_arch": {"choice": [[64, 64], [256, 256]]},
        "optimizer": {"choice": ["adam", "rmsprop"]},
        "rms_alpha": {"uniform": [0.9, 0.999], "when": {"optimizer": "rmsprop"}},
    }
)


def price(config: dict[str, Any]) -> float:
    """A price as PPO's: environments, minibatches, and samples through the network."""
    minibatches = config["n_epochs"] / config["batch_size"]
    wide = 4.0 if config["net_arch"] == [256, 256] else 1.0
    return 5e-5 + 2e-3 * minibatches + 4e-6 * wide * config["n_epochs"]


def draws(n: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [SPACE.sample(rng) for _ in range(n)]


def errors(n: int, noise: float = 0.0) -> float:
    """The median relative error of predictions, learned from n trials."""
    found = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        known, unknown = draws(n, seed), draws(40, 100 + seed)
        model = CostModel(SPACE).fit(
            known, [price(c) * math.exp(noise * rng.normal()) for c in known]
        )
        found.append(np.abs(model.predict(unknown) / [price(c) for c in unknown] - 1))
    return float(np.median(np.concatenate(found)))


def test_a_few_trials_say_what_the_others_cost() -> None:
    prices = [price(config) for config in draws(200)]
    assert max(prices) / min(prices) > 25
    assert errors(5) < 0.35
    assert errors(40) < 0.05
    assert errors(40, noise=0.1) < 0.12


def test_it_knows_its_own_error() -> None:
    known, unknown = draws(40), draws(100, 1)
    model = CostModel(SPACE).fit(known, [price(c) for c in known])
    real = np.median(np.abs(model.predict(unknown) / [price(c) for c in unknown] - 1))
    assert model.error is not None
    assert real / 3 < model.error < real * 3


def test_powers_are_extrapolated() -> None:
    space = Space.from_dict({"n_layers": {"int": [1, 64]}, "lr": {"log": [1e-5, 1e-2]}})
    known = [{"n_layers": n, "lr": 1e-3} for n in (1, 2, 3, 5, 8)]
    model = CostModel(space).fit(known, [1e-3 * c["n_layers"] for c in known])
    (dear,) = model.predict([{"n_layers": 32, "lr": 1e-3}])
    assert dear == pytest.approx(32e-3, rel=0.3)


def test_values_beyond_the_dimensions_count() -> None:
    """A start may differ in what the space holds fixed."""
    known = [{**config, "n_envs": 1 + i % 2 * 15} for i, config in enumerate(draws(20))]
    model = CostModel(SPACE).fit(known, [price(c) / c["n_envs"] for c in known])
    one, sixteen = model.predict([{**draws(1, 9)[0], "n_envs": n} for n in (1, 16)])
    assert one / sixteen == pytest.approx(16, rel=0.4)


def test_nothing_is_known_before_the_first_trial() -> None:
    model = CostModel(SPACE)
    assert np.isnan(model.predict(draws(3))).all()
    assert model.error is None
    assert model.fit([], []).error is None
    model.fit(draws(2), [0.001, math.nan])
    assert model.error is None
    assert np.allclose(model.predict(draws(1)), 0.001, rtol=0.2)
    assert model.predict([]).shape == (0,)


def test_it_is_quick_and_repeats_itself() -> None:
    known = draws(500)
    prices = [price(config) for config in known]
    model = CostModel(SPACE)
    seconds = []
    for _ in range(5):
        started = time.process_time()
        model.fit(known, prices)
        seconds.append(time.process_time() - started)
    assert min(seconds) < 0.03  # 10 ms on an idle core
    again = CostModel(SPACE).fit(known[-MAX_TRIALS:], prices[-MAX_TRIALS:])
    assert (again.predict(draws(5, 1)) == model.predict(draws(5, 1))).all()
