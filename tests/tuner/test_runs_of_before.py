"""Runs of 0.1, made before rltune was put into packages: what they hold stays readable.

`tests/data/runs_of_0_1.tar.xz` has a search of each kind (ASHA, a population, two objectives,
racing, one whose agent is given as a class, one that was killed) and two trainings.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
import rltune
from rltune.cli import main

DATA = Path(__file__).parents[1] / "data" / "runs_of_0_1.tar.xz"
SEARCHES = ("asha", "class", "pbt", "racing", "two-objectives")
TRAININGS = ("train-dqn", "train-lstm")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(DATA) as archive:
        # Python before 3.10.12 and 3.11.4 has no filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder / "runs")
    return folder


@pytest.fixture
def runs(unpacked: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(unpacked)
    return unpacked / "runs"


@pytest.mark.parametrize("name", [*SEARCHES, *TRAININGS, "interrupted"])
def test_they_open_and_show(name: str, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = rltune.open(runs / name)
    assert len(run.history())
    assert main(["show", name]) == 0
    assert "CartPole-v1" in capsys.readouterr().out
    if name in SEARCHES:
        assert len(run.trials())
        assert run.answer is not None or name == "two-objectives"


@pytest.mark.parametrize("name", [*SEARCHES, *TRAININGS])
@pytest.mark.parametrize("to", ["rltune", "yaml", "sb3"])
def test_they_are_exported(
    name: str, to: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if (name, to) == ("train-lstm", "sb3"):
        pytest.skip("Stable-Baselines3's PPO has no LSTM")
    more = ["--trial", "0"] if name == "two-objectives" else []
    code = main(["export", name, "--to", to, *more])
    out = capsys.readouterr()
    assert code == 0, out.err
    assert "gamma" in out.out or "rltune train" in out.out


@pytest.mark.parametrize("name", [*SEARCHES, *TRAININGS])
def test_their_agents_act(name: str, runs: Path) -> None:
    trial = 0 if name == "two-objectives" else None
    assert rltune.evaluate(runs / name, episodes=1, trial=trial).returns


def test_they_are_reported(runs: Path) -> None:
    rltune.report(runs / "asha")
    assert (runs / "asha" / "report" / "index.html").exists()


def test_a_training_goes_on(runs: Path) -> None:
    result = rltune.resume_training(runs / "train-dqn", total_timesteps=400)
    assert result.env_steps == 400


def test_a_search_goes_on(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Its table lags behind its study, where seven trials have begun: it was killed.
    assert main(["resume", "interrupted", "--trials", "8"]) == 0
    assert len(rltune.open(runs / "interrupted").trials()) == 8
    assert (runs / "interrupted" / "best" / "answer.yaml").exists()


@pytest.mark.slow
def test_a_search_with_a_class_goes_on(runs: Path) -> None:
    assert main(["resume", "class", "--trials", "3"]) == 0
    assert len(rltune.open(runs / "class").trials()) == 3
