"""Runs for readers."""

from __future__ import annotations

from pathlib import Path

from rltune.results import open_run
from rltune.runs.directory import RunDir


def test_a_reader_of_a_run_that_has_only_begun(tmp_path: Path) -> None:
    spec = {"agent": "ppo", "env": "CartPole-v1"}
    run = RunDir.create(tmp_path / "mine", spec)
    reader = open_run(run.path)
    assert repr(reader).startswith("<search 'mine': ppo on CartPole-v1, ")
    assert (len(reader.trials()), len(reader.history()), len(reader.episodes())) == (0, 0, 0)
    assert reader.best is None
    assert reader.answer is None
    run.write_yaml("best/config.yaml", {"learning_rate": 0.1})
    assert reader.best == {"learning_rate": 0.1}
