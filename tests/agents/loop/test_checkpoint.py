from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from rltune.agents import Agent, UserError
from rltune.agents.loop import checkpoint

TINY = {"n_envs": 1, "n_steps": 8, "batch_size": 8, "n_epochs": 1, "net_arch": [4]}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    agent = Agent("ppo", "CartPole-v1", TINY, total_timesteps=100, env_kwargs={})
    agent.learn(20)
    agent.save(tmp_path / "folder" / "agent.pt")
    return tmp_path / "folder" / "agent.pt"


def test_the_file_says_what_it_is(saved: Path) -> None:
    state = torch.load(saved, weights_only=True)
    assert (state["format"], state["version"]) == ("rltune-agent", 1)
    assert (state["agent"], state["env"]) == ("ppo", "CartPole-v1")
    assert state["config"]["n_steps"] == 8
    assert os.listdir(saved.parent) == ["agent.pt"]


def test_a_failed_write_leaves_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(UserError, match="disk is full"):
        checkpoint.write(saved, {})
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == ["agent.pt"]


def test_foreign_files_are_refused(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        Agent.load(tmp_path / "none.pt")
    (tmp_path / "text.pt").write_text("hello")
    (tmp_path / "empty.pt").write_bytes(b"")
    (tmp_path / "half.pt").write_bytes(saved.read_bytes()[:1000])
    torch.save({"weights": torch.ones(3)}, tmp_path / "other.pt")
    torch.save(torch.nn.Linear(2, 2), tmp_path / "pickled.pt")
    for name in ("text", "empty", "half", "other", "pickled"):
        with pytest.raises(UserError, match=r"is not a checkpoint of rltune"):
            Agent.load(tmp_path / f"{name}.pt")


def test_newer_versions_are_refused(saved: Path) -> None:
    state = torch.load(saved, weights_only=True)
    torch.save({**state, "version": 99}, saved)
    with pytest.raises(UserError, match="format 99, newer than"):
        Agent.load(saved)


def test_another_agent_or_environment_is_refused(saved: Path) -> None:
    with pytest.raises(UserError, match="of env 'CartPole-v1', not of 'Acrobot-v1'"):
        Agent.load(saved, env="Acrobot-v1")
    with pytest.raises(UserError, match="of agent 'ppo', not of 'dqn'"):
        Agent.load(saved, algorithm="dqn")
    state = torch.load(saved, weights_only=True)
    torch.save({**state, "env": "Acrobot-v1"}, saved)
    with pytest.raises(UserError, match="does not fit agent 'ppo' on 'Acrobot-v1'"):
        Agent.load(saved)
