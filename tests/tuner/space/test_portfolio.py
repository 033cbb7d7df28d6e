"""Portfolios: configurations that a search tries early, and with which it compares nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import rltune
from rltune.agents.errors import UserError
from rltune.space.space import Space
from rltune.training.presets import presets
from searching import search

MEMBERS = [{"quality": q} for q in (0.9, 0.8, 0.7, 0.6)]
SPACE: dict[str, Any] = {
    "space": {"quality": {"uniform": [0.0, 1.0]}},
    "start": [{"name": "known", "quality": 0.4}],
    "portfolio": MEMBERS,
}


def make(**options: Any) -> rltune.Search:
    values: dict[str, Any] = {"budget": 900, "trials": 12, "space": SPACE, **options}
    return rltune.Search("toy:ToyAgent", "toy:ToyEnv", **values)


def tried(search: rltune.Search) -> list[tuple[str, float]]:
    return [(start.origin, start.config["quality"]) for start in search.starts]


COMPARED = [("default", 0.5), ("start:0", 0.4)]


def test_a_search_begins_with_the_portfolio(toy: None) -> None:
    members = [(f"portfolio:{i}", member["quality"]) for i, member in enumerate(MEMBERS)]
    assert tried(make()) == [*members, *COMPARED]
    assert tried(make(trials=None, time_limit=60)) == [*members, *COMPARED]
    assert tried(make(portfolio=False)) == COMPARED


def test_a_member_that_is_known_to_be_good_here_stays_a_point_of_comparison(
    tmp_path: Path, no_ray: None
) -> None:
    space = {**SPACE, "portfolio": [{"quality": 0.4}, {"quality": 0.9}]}
    found = search(tmp_path, space, trials=6, finalists=1, test_seeds=2, concurrency=1)
    trials = found.trials()
    assert trials["config.quality"].tolist()[:3] == [0.4, 0.9, 0.5]  # each once
    assert trials["origin"].tolist()[:3] == ["start:0", "portfolio:1", "default"]
    assert 0 in found.history().query("role == 'test'")["trial"].unique()


def test_a_population_may_change_the_portfolio(toy: None) -> None:
    assert len(make(scheduler="pbt", trials=5).starts) == 3
    with pytest.raises(UserError, match="the defaults and 1 known-good settings belong to it"):
        make(scheduler="pbt", trials=3)


def test_a_member_that_would_learn_nothing_is_left_out() -> None:
    space = {
        "space": {"learning_rate": {"log": [1e-4, 1e-2]}},
        "portfolio": [{"learning_starts": 5_000}, {"learning_starts": 100}],
    }
    found = rltune.Search("dqn", "CartPole-v1", space, budget=2_000, trials=9)
    assert [start.origin for start in found.starts] == ["portfolio:1", "default"]
    found = rltune.Search("dqn", "CartPole-v1", space, budget=20_000, trials=9)
    assert [start.origin for start in found.starts] == ["portfolio:0", "portfolio:1", "default"]


def test_a_third_of_the_trials_is_for_the_portfolio(toy: None) -> None:
    assert [origin for origin, _ in tried(make(trials=7))][:2] == ["portfolio:0", "portfolio:1"]
    assert len(tried(make(trials=2))) == 2
    assert len(make(trials=7).space.starts) == 3  # a resumed search has the same ones


def test_a_member_may_be_for_some_environments(toy: None) -> None:
    members = [{"quality": 0.9, "env": "toy:SteepEnv"}, {"quality": 0.8, "env": ["toy:ToyEnv"]}]
    found = tried(make(space={**SPACE, "portfolio": members}))
    assert found == [("portfolio:0", 0.8), *COMPARED]


def test_what_is_fixed_holds_for_the_portfolio_too() -> None:
    data = {
        "agent": "ppo",
        "space": {"gamma": {"uniform": [0.9, 1.0]}, "n_steps": {"pow2": [8, 64]}},
    }
    data["portfolio"] = [{"gamma": 0.95, "n_steps": 16}, {"n_steps": 32}]
    space = Space.from_dict(data).with_overrides({"n_steps": 64})
    assert [(start.part, start.values) for start in space.starts] == [
        ("portfolio", {"gamma": 0.95})
    ]


def test_a_portfolio_is_written_as_it_was_read() -> None:
    space = Space.from_dict(SPACE)
    assert space.to_dict() == SPACE
    assert Space.from_dict(space.to_dict()) == space
    assert [start.values for start in space.starts_for(None, "portfolio")] == MEMBERS
    assert [start.values for start in space.starts_for(None)] == [{"quality": 0.4}]


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"gamma": 0.9}, "portfolio: needs a list"),
        ([{"gama": 0.9}], r"portfolio\[0\]\.gama: unknown hyperparameter"),
        ([{"gamma": 0.9}, {"gamma": "high"}], r"portfolio\[1\]\.gamma: "),
    ],
)
def test_a_mistake_in_a_portfolio_is_named(members: Any, said: str) -> None:
    space = {"space": {"gamma": {"uniform": [0.9, 1.0]}}, "portfolio": members}
    with pytest.raises(UserError, match=said):
        rltune.Search("ppo", "CartPole-v1", space, budget=1000)


def test_members_are_no_presets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "ppo.yaml"
    file.write_text(
        "agent: ppo\nspace: {gamma: {uniform: [0.9, 1.0]}}\n"
        "start: [{name: zoo, gamma: 0.95}]\nportfolio: [{name: quick, gamma: 0.99}]\n"
    )
    monkeypatch.setattr("rltune.space.space.shipped_spaces", lambda: {"ppo": file})
    assert [preset.name for preset in presets("ppo")] == ["zoo"]


def test_members_are_finalists_by_their_merit_alone(tmp_path: Path, no_ray: None) -> None:
    space = {**SPACE, "portfolio": [{"quality": 0.01}, {"quality": 0.02}, {"quality": 1.0}]}
    found = search(tmp_path, space, trials=9, finalists=1, test_seeds=2, concurrency=1)
    trials = found.trials().set_index("origin")
    assert found.best["quality"] == 1.0
    tested = found.history().query("role == 'test'")["trial"].unique()
    origins = {"default", "start:0", "portfolio:2"}
    assert set(tested) == {trials.loc[origin, "trial"] for origin in origins}
