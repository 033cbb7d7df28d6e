"""Searches whose trials start from weights, and what their checkpoints hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import rltune
import torch
from rltune.agents import Agent
from rltune.agents.loop import checkpoint
from rltune.runs.directory import RunDir

SMALL: dict[str, Any] = {"net_arch": [8], "buffer_size": 500, "batch_size": 8}
SPACE: dict[str, Any] = {
    "space": {"gamma": {"uniform": [0.9, 0.99]}},
    # What a trial begins with is what it ends with.
    "fixed": {**SMALL, "learning_starts": 40, "learning_rate": 0.0},
}


def search(folder: Path, space: dict[str, Any] = SPACE, **options: Any) -> rltune.Search:
    values: dict[str, Any] = {"budget": 60, "trials": 2, "evaluations": 2, "eval_episodes": 1}
    values |= {"screen": "none", "report": False, "wandb": "off", "name": "run", **options}
    return rltune.Search("dqn", "CartPole-v1", space, storage_path=folder, **values)


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    agent = Agent("dqn", "CartPole-v1", SMALL, total_timesteps=64, seed=5)
    agent.learn(64)
    agent.save(tmp_path / "parent.pt")
    return tmp_path / "parent.pt"


def nets(file: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = checkpoint.read(file)["algorithm"]["nets"]
    return found


@pytest.mark.usefixtures("no_ray")
def test_every_trial_and_test_starts_from_the_weights(
    parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rltune.backends.checkpoints.STORAGE", str(tmp_path))
    found = search(tmp_path, weights=parent, test_seeds=1, eval_mode="stochastic").run()
    run = RunDir.open(found.path)
    assert run.spec["weights"] == str(parent)
    files = [*run.path.glob("trials/*/*.pt"), run.best_dir / "checkpoint.pt"]
    assert len(files) >= 4
    for file in files:
        for name, value in nets(parent).items():
            assert torch.equal(value, nets(file)[name])
        assert checkpoint.read(file)["memory"] is None  # nobody goes on from it
    command = (run.best_dir / "command.txt").read_text()
    assert "--weights run/weights.pt" in command
    exported = rltune.export(found.path)
    assert "--weights run/weights.pt" in exported
    assert "--eval-mode stochastic" in exported
    policy = found.policy()
    assert policy.env == "CartPole-v1"
    assert rltune.evaluate(found, 2, seed=1).returns == rltune.evaluate(policy, 2, seed=1).returns


def test_weights_that_no_trial_fits_are_refused(parent: Path, tmp_path: Path) -> None:
    wide = {**SPACE, "fixed": {**SPACE["fixed"], "net_arch": [9]}}
    with pytest.raises(rltune.UserError, match=r"nets\..* is \(8, 4\) there and \(9, 4\) here"):
        search(tmp_path, wide, weights=str(parent))
    with pytest.raises(rltune.UserError, match="no run 'nowhere'"):
        search(tmp_path, weights="nowhere")


def test_what_rllib_can_not_is_refused_at_once(parent: Path, tmp_path: Path) -> None:
    for option, said in (
        ({"weights": str(parent)}, "rllib:PPO can't start from weights"),
        ({"eval_mode": "stochastic"}, "rllib:PPO can only be evaluated greedily"),
    ):
        with pytest.raises(rltune.UserError, match=said):
            rltune.Search("rllib:PPO", "CartPole-v1", storage_path=tmp_path, **option)
