"""Behavioural cloning from the command line: train, play, eval, resume, report, export, search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import rltune
from rltune.agents.demonstrations.files import read, write
from rltune.agents.demonstrations.recorder import Recorder
from rltune.agents.envs.vector import Envs
from rltune.cli import main
from rltune.exporting.registry import TEXTS
from searching import check_history, search

ENV = "CartPole-v1"
ALWAYS = ["--wandb", "off", "--plain"]


def demonstrate(file: Path) -> str:
    """Write ten episodes of a controller by hand, which balances the pole to the end."""
    envs = Envs(ENV, 1, seed=3, training=False, autoreset=False)
    recorder = Recorder(ENV, {}, {}, envs.single_action_space, "a controller")
    for _ in range(10):
        obs = envs.reset()
        recorder.begin(obs[0])
        ended = False
        while not ended:
            push = obs[0] @ np.array([0.2, 0.5, 5.0, 1.0])
            action = np.array([int(push > 0)])
            step = envs.step(action)
            recorder.step(
                action[0], step.reward[0], step.next_obs[0], step.terminated[0], step.truncated[0]
            )
            obs, ended = step.obs, bool(step.episodes)
    envs.close()
    write(recorder.demonstrations, file, "--record")
    return str(file)


@pytest.fixture
def demos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return demonstrate(tmp_path / "demos.parquet")


def test_a_run_does_what_runs_of_others_do(
    demos: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = np.mean([episode.episode_return for episode in read(demos).episodes])
    words = ["train", "bc", "--env", ENV, "--demonstrations", "demos.parquet", "-n", "20000"]
    assert main([*words, "--learning-rate", "3e-3", "--name", "b", *ALWAYS]) == 0
    history = pd.read_parquet(tmp_path / "runs" / "b" / "history")
    assert history["env_steps"].max() == 20_000
    assert history["eval_return"].max() > 0.9 * shown
    assert history["validation_loss"].notna().all()
    assert history["loss"].iloc[-1] < 0.5 * history["loss"].iloc[0]
    assert history["mean_reward"].isna().all()

    assert main(["resume", "runs/b", "-n", "22000", "--plain"]) == 0
    assert rltune.open("runs/b").history()["env_steps"].max() == 22_000
    assert main(["eval", "runs/b", "--episodes", "5"]) == 0
    assert main(["play", "runs/b", "--episodes", "2", "--record", "again.parquet"]) == 0
    assert read("again.parquet").source.startswith("bc")
    assert main(["report", "runs/b"]) == 0

    capsys.readouterr()
    for name in TEXTS:
        done = main(["export", "runs/b", "--to", name])
        found = capsys.readouterr()
        if name in ("rltune", "yaml", "json"):
            assert done == 0
            assert str(tmp_path / "demos.parquet") in found.out
        else:
            assert done == 2
            (line,) = found.err.splitlines()
            assert "has no 'bc'" in line

    Path(demos).unlink()  # to act, they are not needed
    assert main(["eval", "runs/b", "--episodes", "1"]) == 0
    assert main(["resume", "runs/b", "-n", "30000", "--plain"]) == 2
    assert "there is no file" in capsys.readouterr().err


def test_the_same_in_python(demos: str) -> None:
    result = rltune.train(
        "bc", ENV, total_timesteps=9600, demonstrations=demos, wandb="offline", plain=True
    )
    assert result.env_steps == 9600
    assert result.best_return is not None
    assert result.best_return > 100
    assert result.policy(best=True)(np.zeros(4, np.float32)) in (0, 1)
    (folder,) = (result.path / "wandb").glob("offline-run-*")
    assert folder.is_dir()


def test_what_is_wrong_is_said_in_a_sentence(
    demos: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("no demonstrations")
    for words, said in (
        (
            "train bc --env CartPole-v1",
            "agent bc needs demonstrations; name a file: --demonstrations FILE",
        ),
        (
            "run bc --env CartPole-v1",
            "agent bc needs demonstrations; name a file: --demonstrations FILE",
        ),
        ("train bc --env CartPole-v1 --demonstrations notes.txt", "notes.txt has no demonstratio"),
        ("run bc --env CartPole-v1 --demonstrations notes.txt", "notes.txt has no demonstrations"),
        ("run bc --env Acrobot-v1 --demonstrations demos.parquet", "the shape (4,), but here"),
        ("train bc --env CartPole-v1 --demonstrations demos.parquet --gamma 0.9", "no such hyper"),
    ):
        assert main(words.split()) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line
    assert not (tmp_path / "runs").exists()
    assert main(["space", "check", "bc"]) == 0


def test_a_search_finds_settings(demos: str, tmp_path: Path, no_ray: None) -> None:
    space: dict[str, Any] = rltune.Space.load("bc").to_dict()
    space["fixed"] = {"demonstrations": demos}
    options = {"budget": 2000, "trials": 2, "finalists": 1, "test_seeds": 1, "evaluations": 4}
    found = search(tmp_path / "runs", space, agent="bc", env=ENV, eval_episodes=2, **options)
    assert found.answer is not None
    assert found.best is not None
    assert found.best["demonstrations"] == demos
    check_history(found.history())
    assert found.history()["validation_loss"].notna().all()
    assert set(found.trials()["state"]) <= {"COMPLETE", "PRUNED"}
