"""The clip of the winner."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from rltune.agents.errors import UserError
from rltune.agents.loop.agent import Agent
from rltune.cli import main
from rltune.reporting import clip
from rltune.reporting.report import report, report_quietly
from rltune.runs.directory import RunDir


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """A search whose winner plays CartPole."""
    spec = {"agent": "ppo", "env": "CartPole-v1,Acrobot-v1", "budget": 900, "space": {"space": {}}}
    run = RunDir.create(tmp_path / "run", spec)
    agent = Agent("ppo", "CartPole-v1", {"n_envs": 1}, total_timesteps=100, device="cpu")
    run.best_dir.mkdir()
    agent.save(run.best_dir / "checkpoint.pt")
    agent.close()
    return run


def clips(run: RunDir) -> list[str]:
    return sorted(path.name for path in run.best_dir.glob("clip.*"))


@pytest.mark.slow
def test_the_page_of_a_search_shows_its_winner(
    run: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    (run.best_dir / "clip.gif").write_bytes(b"of an earlier winner")
    assert "index.html" in report_quietly(run.path)
    assert clips(run) == ["clip.mp4"]
    page = (run.path / "report" / "index.html").read_text()
    assert 'src="data:video/mp4;base64,AAAA' in html.unescape(page)
    assert main(["report", str(run.path), "--clip", "--no-pictures"]) == 0
    capsys.readouterr()


def test_without_ffmpeg_it_is_a_gif_that_waits(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clip, "find_spec", lambda name: None)
    clip.record(run.path)
    page = report(run.path, pictures=False).read_text()
    assert re.search(r'<details><summary>Show it</summary><img src="data:image/gif;base64,', page)


def test_a_report_alone_runs_no_code_that_the_run_names(run: RunDir) -> None:
    report(run.path, pictures=False)
    assert clips(run) == []


@pytest.mark.slow
def test_no_clip_is_no_failure(run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    (run.best_dir / "checkpoint.pt").unlink()
    (run.best_dir / "clip.mp4").write_bytes(b"of an earlier winner")
    with pytest.raises(UserError, match="has no winner yet"):
        clip.record(run.path)
    assert clips(run) == []
    assert "index.html" in report_quietly(run.path)
    assert main(["report", str(run.path), "--clip"]) == 2
    assert "has no winner yet" in capsys.readouterr().err


def test_a_clip_that_hangs_is_given_up(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clip, "PATIENCE", 0.01)
    with pytest.raises(UserError, match="took longer than"):
        clip.record(run.path)


def test_a_page_does_not_carry_a_large_clip(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    (run.best_dir / "clip.mp4").write_bytes(b"0" * 100)
    assert clip.embedded(run.path) is not None
    monkeypatch.setattr(clip, "LARGEST", 99)
    assert clip.embedded(run.path) is None


def test_what_is_missing_for_a_clip_is_said(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def record(run: Path) -> Path:
        raise UserError('needs pygame: pip install "rltune[video]"')

    monkeypatch.setattr(clip, "record", record)
    said = report_quietly(run.path).splitlines()
    assert said[-1] == 'No clip of the winner: needs pygame: pip install "rltune[video]"'
