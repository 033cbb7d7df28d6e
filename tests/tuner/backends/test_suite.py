"""Several environments at once."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import rltune
import yaml
from rltune.agents.envs.suite import completed, environments, parse_suite
from rltune.agents.errors import UserError
from rltune.agents.loop.agent import Agent
from rltune.backends.suite import SuiteAgent
from rltune.cli import main
from rltune.planning.measure import measure
from rltune.runs.search_spec import SearchSpec
from searching import SPACE, check_history

BOTH = "CartPole-v1=0:500,Acrobot-v1=-500:-100"
SMALL = {"n_envs": 2, "n_steps": 32, "batch_size": 64, "n_epochs": 1, "net_arch": [8]}
TOYS = "toy:ToyEnv=0:1,toy:SteepEnv=0:3"


def test_scales_are_what_random_actions_get_and_what_solves_it() -> None:
    cart, acrobot = parse_suite(completed("CartPole-v1, Acrobot-v1"))
    assert (cart.env, cart.high) == ("CartPole-v1", 475)
    assert 15 < cart.low < 30
    assert (acrobot.env, acrobot.high) == ("Acrobot-v1", -100)
    assert -500 <= acrobot.low < -450
    assert completed("Acrobot-v1=-500:-80") == "Acrobot-v1=-500:-80"
    assert completed("CartPole-v1") == "CartPole-v1"
    again = completed("CartPole-v1,Acrobot-v1")
    assert completed(again) == again
    assert environments(again) == ["CartPole-v1", "Acrobot-v1"]


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ("CartPole-v1,Pendulum-v1", r"which return solves Pendulum-v1\?.*=-1\d\d\d\S*:HIGH"),
        ("CartPole-v1=5:5", "ENV=LOW:HIGH"),
        ("CartPole-v1=high", "ENV=LOW:HIGH"),
        ("CartPole-v1=0:inf", "ENV=LOW:HIGH"),
        ("CartPole-v1,CartPole-v1=0:500", "comes twice"),
        ("CartPole-v1,CartPole-v7", "CartPole-v7"),
        ("CartPole-v1,", "''"),
    ],
)
def test_mistakes_are_told(env: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        completed(env)


def test_each_member_trains_as_it_would_alone(tmp_path: Path) -> None:
    suite = SuiteAgent("ppo", BOTH, SMALL, total_timesteps=512, seed=3)
    for until in (100, 200, 512):
        chunk = suite.learn(until)
        assert chunk.env_steps >= until
        if until == 200:  # go on from a file
            suite.save(tmp_path / "suite.pt")
            suite.close()
            suite = SuiteAgent.load(tmp_path / "suite.pt", env=BOTH, algorithm="ppo")
    assert suite.finished
    assert suite.env_steps == 512
    together = suite.evaluate(4, seed=1)
    parts = suite.evaluate(1, seed=1).and_then(suite.evaluate(3, seed=1, first=1))
    assert parts.returns == together.returns
    assert parts.metrics == pytest.approx(together.metrics)

    scores = []
    for env, low, high in (("CartPole-v1", 0, 500), ("Acrobot-v1", -500, -100)):
        alone = Agent("ppo", env, SMALL, total_timesteps=256, seed=3)
        alone.learn(256)
        result = alone.evaluate(4, seed=1)
        assert together.metrics[f"eval_return/{env}"] == result.mean
        scores.append([(value - low) / (high - low) for value in result.returns])
        assert suite.member(env).evaluate(4, seed=1).returns == result.returns
    assert together.returns == [sum(pair) / 2 for pair in zip(*scores, strict=True)]
    with pytest.raises(UserError, match="'Pendulum-v1'"):
        suite.member("Pendulum-v1")
    with pytest.raises(UserError, match="not of 'CartPole-v1'"):
        SuiteAgent.load(tmp_path / "suite.pt", env="CartPole-v1")


def test_hyperparameters_change_for_all_of_them() -> None:
    suite = SuiteAgent("ppo", BOTH, SMALL, total_timesteps=512)
    suite.learn(100)
    steps = suite.env_steps
    suite = suite.with_config({**SMALL, "learning_rate": 0.5})
    assert {member.config.learning_rate for member in suite.members} == {0.5}
    assert suite.env_steps == steps
    suite.total_timesteps = 1001
    assert [member.total_timesteps for member in suite.members] == [500, 501]


def test_what_needs_one_environment_is_refused(tmp_path: Path) -> None:
    for options, words in (
        ({"controls": {"target_reward": 1.0}}, "--target-reward"),
        ({"env_kwargs": {"continuous": True}}, "--env-kwargs"),
    ):
        with pytest.raises(UserError, match=words):
            rltune.Search("ppo", BOTH, budget=100, trials=1, storage_path=tmp_path, **options)


@pytest.mark.usefixtures("toy_ray", "toy")
def test_a_search_on_two_environments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    search = rltune.Search(
        "toy:ToyAgent", TOYS, SPACE, budget=1800, trials=5, storage_path=tmp_path, name="run",
        wandb="off", report=False, screen="none", test_seeds=2, finalists=2, objective="last",
    )  # fmt: skip
    result = search.run()
    check_history(result.history())
    evaluated = result.history().dropna(subset=["eval_return"])
    one, three = evaluated["eval_return/toy:ToyEnv"], evaluated["eval_return/toy:SteepEnv"]
    assert evaluated["eval_return"].to_numpy() == pytest.approx((one + three / 3) / 2)
    trials = result.trials()
    assert trials["objective"].max() == pytest.approx(trials["config.quality"].max(), abs=0.1)
    assert set(trials.loc[trials["state"] == "COMPLETE", "budget_reached"]) == {1800}

    # The answer is repeated by its command, on both environments.
    assert result.answer is not None
    winner, ranking = result.answer["winner"], result.answer["ranking"]
    scores = next(ranked["scores"] for ranked in ranking if ranked["trial"] == winner)
    seed = max(scores, key=lambda seed: scores[seed])
    command = shlex.split((result.path / "best" / "command.txt").read_text())[1:]
    assert TOYS in command
    more = ["--storage-path", str(tmp_path), "--name", "again", "--wandb", "off", "--plain"]
    assert main([*command, *more]) == 0
    again = rltune.open(tmp_path / "again").history()
    assert again["eval_return"].dropna().iloc[-1] == scores[seed]

    capsys.readouterr()
    assert main(["eval", str(result.path), "--episodes", "3"]) == 0
    assert main(["eval", str(result.path), "--episodes", "3", "--env", "toy:SteepEnv"]) == 0
    assert main(["play", str(result.path), "--video", str(tmp_path / "a.gif")]) == 2
    assert "toy:ToyEnv, toy:SteepEnv" in capsys.readouterr().err
    assert yaml.safe_load((result.path / "run.yaml").read_text())["spec"]["env"] == TOYS


def test_the_price_of_a_trial_counts_all_environments() -> None:
    spec = SearchSpec(agent="ppo", env=BOTH, space={}, budget=2000, trials=1)
    found = measure(spec, SMALL, 1.0)
    assert found.env_steps > 0
    assert found.budget == 2000
