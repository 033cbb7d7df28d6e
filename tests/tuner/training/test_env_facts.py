"""`rltune env`: what an environment is, what agents see of it, and which fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rltune.cli import main


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "agents"))


def test_facts_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "CartPole-v1"]) == 0
    said = capsys.readouterr().out
    for line in (
        "  actions         Discrete(2)",
        "  time limit      500 steps",
        "  solved at       a return of 475",
        "  agents see      a vector of 4 numbers",
        "agents that fit: a2c, acer, bc, dqn, ppo, sac, trpo",
        "  not ddpg, td3: it acts in Box spaces, but the action space is Discrete(2); ",
        "known-good settings, for rltune train AGENT --preset NAME: a2c zoo, dqn zoo, ",
    ):
        assert line in said
    assert "rllib:PPO" in said


def test_facts_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    kwargs = "{where: dict, counts: [3, 2], length: 5}"
    assert main(["env", "toy_envs:Fenced", "--env-kwargs", kwargs, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["seen"] == "a vector of 2 numbers, and which of 5 actions are allowed"
    assert "action masks are heeded: a forbidden action is never taken" in facts["notes"]
    # A forbidden action would be an error: random actions heed the masks.
    assert facts["random"]["lengths"] == [5] * 20
    assert (facts["time_limit"], facts["solved_at"]) == (None, None)
    assert facts["agents"]["ppo"] == ""
    assert "MultiDiscrete" in facts["agents"]["td3"]


def test_pictures_and_no_limit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "rltune.training.env_facts.agent_names", lambda: ["ppo"]
    )  # each takes a second
    assert main(["env", "toy_envs:Picture"]) == 0
    said = capsys.readouterr().out
    assert "agents see      an image of 1x36x36 (channels, height, width)" in said
    assert "no time limit: episodes of evaluations are cut off after 27,000 steps" in said
    assert "sees only vectors here" in said  # RLlib's


def test_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "CartPole-v7"]) == 2
    assert "write 'CartPole-v1'" in capsys.readouterr().err
    assert main(["env", "CartPole-v1", "--budget", "3"]) == 2
    assert "does not know '--budget'" in capsys.readouterr().err
