"""The peers' proposals in the tuners' comparison, moved into what the search space allows."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import optuna
import pytest
from rltune.agents.config import make_config
from rltune.agents.registry import agent_class

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"


@pytest.mark.parametrize("agent", ["sac", "td3", "ddpg"])
@pytest.mark.parametrize(
    ("net_arch", "train_freq", "asked", "taken"),
    [
        ([256, 256], 1, 16, 1),
        ([256, 256], 8, 16, 8),
        ([64, 64], 1, 16, 4),
        ([64, 64], 8, 16, 16),  # allowed
        ([256, 256], 8, 2, 2),  # allowed
    ],
)
def test_more_updates_than_the_space_allows_become_the_most_it_allows(
    agent: str,
    net_arch: list[int],
    train_freq: int,
    asked: int,
    taken: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    tuners = importlib.import_module("benchmark_tuners")
    space = tuners.space_of(agent)
    kinds = space.to_dict()["space"]

    def drawn(name: str, value: int) -> int:
        return value.bit_length() - 1 if "pow2" in kinds[name] else value

    parameters = {
        "net_arch": net_arch,
        "train_freq": drawn("train_freq", train_freq),
        "gradient_steps": drawn("gradient_steps", asked),
    }
    assert tuners.decode(parameters, space)["gradient_steps"] == taken


def test_a_minibatch_is_no_longer_than_its_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    tuners = importlib.import_module("benchmark_tuners")
    drawn = {"n_steps": 5, "batch_size": 12}  # powers of two: 32 env steps, minibatches of 4,096
    config = tuners.decode(drawn, tuners.space_of("ppo"))
    assert config["batch_size"] == 32 * 8  # the environments of PPO's defaults


def test_what_another_tuner_proposes_lies_in_the_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    tuners = importlib.import_module("benchmark_tuners")
    for agent in {setting.agent for setting in tuners.SETTINGS}:
        space = tuners.space_of(agent)
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
        for _ in range(20):
            trial = study.ask()
            tuners.declare(trial, space)
            config = tuners.decode(dict(trial.params), space)
            assert not space.violations(config), agent
            make_config(agent_class(agent).Config, config)


def test_the_front_tables_have_the_settings_that_everyone_has_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    tuners = importlib.import_module("benchmark_tuners")
    rows = []
    for number, tuner in enumerate(tuners.TUNERS):
        for repetition in range(5):
            about = {"tuner": tuner, "agent": "sac", "env": "Pendulum-v1", "repetition": repetition}
            at = 20.0 + 10 * number + repetition if tuner != "zoo" else None
            value = -150.0 if at else -300.0
            trial = {"at": at or 1.0, "value": value, "state": "COMPLETE"}
            rows.append({"what": "search", **about, "trials": [trial]})
            score = -150.0 - 20 * number + repetition
            rows += [{"what": "test", **about, "seed": s, "score": score} for s in tuners.SEEDS]
    rows.append({**rows[0], "env": "CartPole-v1", "agent": "dqn"})  # the others haven't searched it
    file = tmp_path / "tuners.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    tuners.front(file)
    lines = capsys.readouterr().out.splitlines()
    assert "| SAC, Pendulum-v1, -200 | **22** | 32 | 42 | never |" in lines
    (returns,) = (line for line in lines if line.startswith("| SAC, Pendulum-v1 |"))
    assert returns.startswith("| SAC, Pendulum-v1 | **-148 [-150, -146]** |")
    assert returns.count("**") == 2  # of the others, none is better than everyone
    assert not any("DQN" in line for line in lines)

    file.write_text("\n".join(json.dumps(row) for row in rows if row["repetition"] < 4))
    tuners.front(file)  # four are too few by the rule, though p is 0.03
    assert "| SAC, Pendulum-v1 | -148 [-150, -147] |" in capsys.readouterr().out

    file.write_text("\n".join(json.dumps(row) for row in rows if row["repetition"] < 2))
    tuners.front(file)  # a median of two says little: each search's own
    lines = capsys.readouterr().out.splitlines()
    assert "| SAC, Pendulum-v1, -200 | **20, 21** | 30, 31 | 40, 41 | never, never |" in lines
    # Two searches each are too few for a lead beyond chance, however large it is.
    assert "| SAC, Pendulum-v1 | -150, -149 | -170, -169 | -190, -189 | -210, -209 |" in lines


@pytest.mark.parametrize(
    ("ours", "theirs", "sooner"),
    [
        (20.0, 50.0, "+30 s"),
        (20.0, None, "at least +280 s"),
        (None, 100.0, "at most -200 s"),  # ours is later by 200 s or more
        (None, None, "neither"),
    ],
)
def test_a_search_that_never_reaches_the_threshold_bounds_the_lead(
    ours: float | None, theirs: float | None, sooner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    tuners = importlib.import_module("benchmark_tuners")
    found = [
        tuners.Found([10], [tuners.NEVER if at is None else at], [0.0], []) for at in (ours, theirs)
    ]
    assert tuners.compared(*found)[1] == sooner
