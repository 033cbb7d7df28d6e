"""The scripts that measure a GPU, in miniature and on the CPU."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch
from rltune.agents.algorithms.ppo import ppo_loss

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))


def test_updates_are_timed_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = importlib.import_module("benchmark_gpu")
    monkeypatch.setattr(script, "CASES", script.CASES[:1])
    monkeypatch.setattr(script, "SECONDS", 0.01)
    file = tmp_path / "gpu.jsonl"
    monkeypatch.setattr("sys.argv", ["benchmark_gpu.py", "updates", "--results", str(file)])
    script.main()
    assert script.read(file)[0]["ms"]["CPU, 1"] > 0
    script.table(file)
    assert "| PPO, 64-64, 64 |" in capsys.readouterr().out


def test_several_agents_in_one_program_step_as_one_does() -> None:
    script = importlib.import_module("study_cuda_graphs")
    agent, batch, scalars = script.agent_and_batch(script.CASES[0], "cpu")
    several = script.Several(agent, batch, scalars, 2)
    before = several.flat[0].clone()
    several.step()
    agent.learner.step(ppo_loss(agent.nets, batch, scalars)[0], script.RATE)
    assert (several.flat[0] - before).abs().max() > 1e-5
    for row in several.flat:
        torch.testing.assert_close(row, agent.learner.flat, rtol=0, atol=1e-6)
