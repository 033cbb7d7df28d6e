"""The Gaussian process of PB2, and the changes that it chooses."""

from __future__ import annotations

import numpy as np
import pytest
from rltune.agents.config import hyperparameters
from rltune.backends.registry import config_class
from rltune.schedulers.bandit_explorer import PB2Explorer, Points, TimeVaryingGP, unit
from rltune.schedulers.explorers import Observation, PopulationMember
from rltune.search.search import Search
from rltune.space.dimensions import parse_dimension
from rltune.space.yaml_lines import SourceText


def points(x: list[float], segment: float = 1.0) -> Points:
    return Points(np.array(x)[:, None], np.zeros(len(x)), np.full(len(x), segment))


def test_the_process_goes_through_what_it_has_seen() -> None:
    x = np.linspace(0, 1, 15)
    gains = 3 + np.sin(5 * x)
    gp = TimeVaryingGP(points(x.tolist()), gains)
    assert gp.expect(points(x.tolist())) == pytest.approx(gains, abs=0.1)
    assert gp.expect(points([0.32])) == pytest.approx(3 + np.sin(1.6), abs=0.1)
    far, near = gp.deviation(points([3.0])), gp.deviation(points([0.5]))
    assert far > 5 * near


def test_who_was_sent_somewhere_makes_others_go_elsewhere() -> None:
    gp = TimeVaryingGP(points([0.0, 0.1, 0.9]), np.array([0.0, 1.0, 0.5]))
    here = points([0.5])
    assert gp.deviation(here, pending=here) < 0.7 * gp.deviation(here)


def test_the_latest_gains_count_most() -> None:
    """The best place has moved from 0 to 1 since."""
    x = np.tile(np.linspace(0, 1, 6), 8)
    segment = np.repeat(np.arange(8.0), 6)
    seen = Points(x[:, None], np.zeros(48), segment)
    gp = TimeVaryingGP(seen, -np.abs(x - segment / 7))
    now = Points(np.array([[0.0], [1.0]]), np.zeros(2), np.full(2, 8.0))
    first, last = gp.expect(now)
    assert gp.hyper[3] > 0  # it has noticed
    assert last > first


@pytest.mark.parametrize(
    ("spec", "value", "place"),
    [
        ({"log": [1e-4, 1e-2]}, 1e-3, 0.5),
        ({"log": [1e-4, 1e-2]}, "lin_1e-3", 0.5),
        ({"log": [1e-4, 1e-2]}, 0.0, 0.0),
        ({"one_minus_log": [0.9, 0.999]}, 0.99, 0.5),
        ({"uniform": [1.0, 3.0]}, 4.0, 1.0),
        ({"int": [0, 4]}, 1, 0.25),
        ({"pow2": [32, 512]}, 128, 0.5),
    ],
)
def test_values_have_a_place_on_their_own_scale(spec: dict, value: object, place: float) -> None:
    assert unit(parse_dimension("x", spec, SourceText("test"), ("x",)), value) == pytest.approx(
        place
    )


def test_the_change_goes_where_the_gains_are() -> None:
    space = {
        "space": {
            "learning_rate": {"log": [1e-5, 1e-1]},
            "n_steps": {"pow2": [8, 64]},
            "optimizer": {"choice": ["adam", "rmsprop"]},
        },
        "constraints": ["n_steps <= 32"],
    }
    search = Search("ppo", "CartPole-v1", space, budget=100)
    explorer = PB2Explorer(search.space, hyperparameters(config_class("ppo")), 0.25)
    rng = np.random.default_rng(0)
    config = {**search.starts[0].config, "n_steps": 16}
    parent = PopulationMember(0, config, 5.0, False)
    seen = []
    for i in range(40):
        new = explorer.changed(config, lambda dimension, _: dimension.sample(rng))
        distance = abs(np.log10(new["learning_rate"]) + 2.5)
        seen.append(Observation(1 + i // 8, new, 5.0, None if distance > 2 else -distance))
    explorer.learn(seen)
    chosen = [explorer.explore(parent, 6, rng) for _ in range(4)]
    for new in chosen:
        assert abs(np.log10(new["learning_rate"]) + 2.5) < 0.8
        assert new["n_steps"] <= 32
        assert new["optimizer"] == "adam"
    assert len({new["learning_rate"] for new in chosen}) == 4
    explorer.learn([])
    assert explorer.explore(parent, 1, rng)["learning_rate"] != config["learning_rate"]  # as PBT
