"""The study of portfolios: what is chosen, and what it is judged by."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"


@pytest.fixture
def portfolios(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    from portfolios import choose, judge, record, suites

    return SimpleNamespace(choose=choose, judge=judge, record=record, suites=suites)


KNOWN = {
    "a": {"good on a": 1.0, "fair": 0.7, "good on b": 0.0},
    "b": {"good on a": 0.0, "fair": 0.7, "good on b": 1.0},
}
FREE = {env: dict.fromkeys(names, 1.0) for env, names in KNOWN.items()}
ORIGINS = {"good on a": ["a"], "fair": [], "good on b": ["b"]}


def test_members_complement_each_other(portfolios: SimpleNamespace) -> None:
    choose = portfolios.choose.choose
    assert choose(KNOWN, FREE, ORIGINS)[0] == "fair"
    assert set(choose(KNOWN, FREE, ORIGINS)) == set(ORIGINS)
    assert choose(KNOWN, FREE, ORIGINS, size=1) == ["fair"]


def test_a_cheap_member_comes_before_one_that_is_hardly_better(portfolios: SimpleNamespace) -> None:
    dear = {env: {**costs, "fair": 4.0} for env, costs in FREE.items()}
    assert portfolios.choose.choose(KNOWN, dear, ORIGINS)[0] != "fair"
    assert portfolios.choose.choose(KNOWN, dear, ORIGINS, per_cost=False)[0] == "fair"


def test_what_is_known_from_an_environment_is_left_out_with_it(portfolios: SimpleNamespace) -> None:
    chosen = portfolios.choose.choose(KNOWN, FREE, ORIGINS, without="a")
    assert "good on a" not in chosen
    assert chosen[0] == "good on b"


def test_scores_are_the_ends_of_whole_trainings(
    portfolios: SimpleNamespace, tmp_path: Path
) -> None:
    file = tmp_path / "ppo.jsonl"
    rows = [
        {"name": name, "env": "a", "seed": 0, "returns": returns, "seconds": seconds}
        for name, returns, seconds in (
            ("best", [0.0] * 6 + [10.0] * 3, 2.0),
            ("half", [0.0] * 6 + [5.0] * 3, 1.0),
            ("worst", [0.0] * 9, 1.0),
            ("stopped", [9.0] * 3, 1.0),
        )
    ]
    file.write_text("".join(json.dumps({"what": "training", **row}) + "\n" for row in rows))
    scores, costs = portfolios.choose.scores(file)
    assert scores == {"a": {"best": 1.0, "half": 0.5, "worst": 0.0, "stopped": 0.0}}
    assert costs["a"]["best"] == 2.0


def trial(portfolios: SimpleNamespace, end: float, seconds: float = 9.0) -> Any:
    return portfolios.judge.Trial([end] * 9, seconds)


def test_a_replay_runs_two_trials_at_once_and_judges_them(portfolios: SimpleNamespace) -> None:
    poor = [trial(portfolios, float(n)) for n in range(5, 0, -1)]
    ended = portfolios.judge.replay(poor)
    assert [at for at, _ in ended[:2]] == [9.0, 9.0]
    assert len(ended) == 5
    assert ended[-1][0] < 27  # stopped at its first rung


def test_a_good_member_brings_the_threshold_nearer(portfolios: SimpleNamespace) -> None:
    replay, outcome = portfolios.judge.replay, portfolios.judge.outcome
    plain = [trial(portfolios, end) for end in (1.0, 2.0, 3.0, 4.0, 10.0)]
    without = outcome(replay(plain), 0.0, 10.0, 30.0)
    helped = outcome(replay([trial(portfolios, 10.0), *plain]), 0.0, 10.0, 30.0)
    assert helped.seconds < without.seconds
    assert helped.area > without.area


def test_the_portfolio_of_the_others_is_judged_on_the_environment_left_out(
    portfolios: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portfolios.record, "RESULTS", tmp_path)
    monkeypatch.setattr(portfolios.record, "presets", lambda agent: [])
    rows: list[dict[str, Any]] = []
    for number, env in enumerate("abc"):
        tried = [("default", 1.0), *(("sampler", value) for value in (3.0, 2.0, 10.0))]
        rows.append(
            {
                "what": "search", "env": env, "sampler": "tpe",
                "trials": [
                    {
                        "origin": origin, "values": {"gamma": value + number / 8},
                        "returns": [value] * 9,
                        "seconds": 9.0, "state": "COMPLETE",
                    }
                    for origin, value in tried
                ],
            }
        )  # fmt: skip
        for name in (f"search {origin} {i}" for origin in "abc" for i in range(2)):
            row = {"what": "training", "name": name, "env": env, "seed": 0, "seconds": 9.0}
            rows.append({**row, "returns": [10.0 if name == "search c 0" else 0.0] * 9})
    file = portfolios.record.file_of("ppo")
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    variant = portfolios.judge.Variant
    variants = {"first": variant(), "after": variant(order=("default", "start", "portfolio"))}
    found = portfolios.judge.compare("ppo", variants)
    assert found["c"]["first"] == found["c"][portfolios.judge.WITHOUT]  # it had the good one itself
    for by_name in (found["a"], found["b"]):
        seconds = [by_name[name].seconds for name in ("first", "after", portfolios.judge.WITHOUT)]
        assert seconds[0] == 0.5  # of two rounds: the first
        assert seconds == sorted(seconds)
        assert by_name["first"].area > by_name[portfolios.judge.WITHOUT].area


def test_held_out_environments_are_in_no_suite(portfolios: SimpleNamespace) -> None:
    text = (SCRIPTS.parent / "docs" / "benchmarks" / "held-out.md").read_text()
    for agent, env in portfolios.suites.HELD_OUT.items():
        assert env not in [task.env for task in portfolios.suites.suite(agent)]
        assert f"{agent.upper()} on {env}" in text
    for agent in portfolios.suites.SUITES:
        assert len(portfolios.suites.suite(agent)) >= 8


@pytest.mark.parametrize("name", ["LevelsPendulum", "SwingUp", "Windy"])
def test_variants_are_environments(portfolios: SimpleNamespace, name: str) -> None:
    from portfolios import variants

    if name == "Windy":
        pytest.importorskip("Box2D")
    env = getattr(variants, name)()
    obs, _ = env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(300):
        assert env.observation_space.contains(obs)
        obs, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        assert -400 < float(reward) < 200
        if terminated or truncated:
            return
    pytest.fail("no end")


def test_a_training_among_the_lower_half_ends_at_a_third(portfolios: SimpleNamespace) -> None:
    task = portfolios.suites.Task("CartPole-v1", 900)
    record, values = portfolios.record, {"n_steps": 32, "batch_size": 64, "gamma": 0.99}
    early = [1e9] * record.ENOUGH
    found = record.train("ppo", task, values, 0, early)
    assert len(found["returns"]) == record.JUDGED_AFTER
    assert len(early) == record.ENOUGH + 1
    whole = record.train("ppo", task, values, 0, [])
    assert len(whole["returns"]) == 9
    assert whole["returns"][:3] == found["returns"]


def test_the_best_of_the_latest_space_are_measured_first_and_once(
    portfolios: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portfolios.record, "RESULTS", tmp_path)
    trial = {"origin": "sampler", "state": "COMPLETE", "seconds": 1.0}
    for env, space, gamma in (("a", 0, 0.9), ("a", 1, 0.95), ("b", 1, 0.95), ("b", 0, 0.99)):
        found = [{**trial, "values": {"gamma": gamma}, "returns": [float(i)]} for i in range(3)]
        row = {"what": "search", "env": env, "space": space, "trials": found}
        with portfolios.record.file_of("td3").open("a") as file:
            file.write(json.dumps(row) + "\n")
    searched = [c for c in portfolios.record.candidates("td3") if c["name"].startswith("search")]
    assert [(c["name"], c["of"], c["config"]["gamma"]) for c in searched] == [
        ("search a 1", ["a", "b"], 0.95),
        ("search a 0", ["a"], 0.9),
        ("search b 0", ["b"], 0.99),
    ]
