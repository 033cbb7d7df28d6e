"""Evaluations do not dwarf the training."""

from __future__ import annotations

from pathlib import Path

import pytest
import rltune
from rltune.cli import main
from rltune.planning.evaluations import SHARE, affordable, explained, longest_episode
from rltune.training.request import training_spec


@pytest.mark.parametrize("env_steps", [1, 300, 3_000, 20_000, 100_000, 1_000_000])
@pytest.mark.parametrize("longest", [1, 200, 500, 999, 27_000])
@pytest.mark.parametrize("usual", [(9, 10), (20, 10)])
def test_evaluations_are_bounded_but_never_gone(
    env_steps: int, longest: int, usual: tuple[int, int]
) -> None:
    times, episodes = affordable(env_steps, longest, *usual)
    assert 3 <= times <= usual[0]
    assert 3 <= episodes <= usual[1]
    assert times * episodes * longest <= max(SHARE * env_steps, 9 * longest)
    if usual[0] * usual[1] * longest <= SHARE * env_steps:
        assert (times, episodes) == usual


def test_what_is_said() -> None:
    usual = (20, 10)
    assert explained(3_000, None, usual, usual) == ""
    assert explained(100_000, 999, usual, usual) == ""
    dear = explained(3_000, 999, usual, usual)
    assert dear.startswith("evaluations take up to 199,800 env steps beside 3,000 of training")
    fewer = explained(3_000, 999, affordable(3_000, 999, *usual), usual)
    assert fewer.startswith("evaluated 3 times on 3 episodes, up to 8,991 env steps beside 3,000")


def test_the_longest_episode() -> None:
    assert longest_episode("CartPole-v1") == 500
    assert longest_episode("CartPole-v1", {"max_episode_steps": 70}) == 70
    assert longest_episode("CartPole-v1=9:475,Acrobot-v1=-500:-100") == 1000
    assert longest_episode("toy_envs:Bandit") is None
    assert longest_episode("NoSuchThing-v1") is None


def test_a_search_and_a_training_say_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = ["run", "sac", "--env", "MountainCarContinuous-v0", "--budget", "3000", "--dry-run"]
    assert main(flags) == 0
    told = capsys.readouterr()
    assert "evaluated 3 times on 3 episodes, up to 8,991 env steps beside 3,000" in told.err
    assert "3 greedy episodes every 1,000 env steps" in told.out
    assert main([*flags, "--evaluations", "20"]) == 0
    told = capsys.readouterr()
    assert "evaluations take up to 199,800 env steps beside 3,000" in told.err
    assert "10 greedy episodes every 150 env steps" in told.out
    population = rltune.Search(
        "ppo", "Acrobot-v1", budget=9_000, scheduler="pbt", trials=4, storage_path=tmp_path
    )
    assert (population.spec.evaluations, population.spec.eval_episodes) == (9, 6)

    spec = training_spec("sac", "MountainCarContinuous-v0", chosen={}, total_timesteps=3_000)
    assert (spec.eval_freq, spec.eval_episodes) == (1_000, 3)
    asked = training_spec(
        "sac", "MountainCarContinuous-v0", chosen={}, total_timesteps=3_000, eval_episodes=10
    )
    assert (asked.eval_freq, asked.eval_episodes) == (None, 10)
