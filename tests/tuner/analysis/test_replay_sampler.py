"""Replays with another sampler: whole recorded searches, without Ray."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rltune
from rltune.analysis.replay_sampler import BEST, proposed_again
from rltune.cli import main
from searching import search
from serial_jobs import run_here

from tests.parameters import quick

HERE = Path(__file__).parents[1]

MIXED: dict[str, Any] = {
    "space": {
        "quality": {"uniform": [0.0, 1.0]},
        "at": {"int": [1, 1000]},
        "luck": {"choice": [0.0, 0.1]},
    }
}


SAMPLERS = ("tpe", "cost-aware", "qmc", "nsgaii", "cmaes", "grid")


@pytest.mark.parametrize("sampler", quick(SAMPLERS[:2], SAMPLERS))
def test_the_own_sampler_proposes_what_it_did(tmp_path: Path, no_ray: None, sampler: str) -> None:
    path = search(tmp_path, MIXED, sampler=sampler, trials=20, tournament=False).path
    again, of = proposed_again(path)
    assert again == of > 15


def test_a_changed_result_changes_the_proposals(tmp_path: Path, no_ray: None) -> None:
    path = search(tmp_path, MIXED, trials=20, tournament=False).path
    with sqlite3.connect(path / "study.db") as study:
        study.execute("UPDATE trial_values SET value = -value")
        study.execute("UPDATE trial_intermediate_values SET intermediate_value = 1")
    again, of = proposed_again(path)
    assert again < of


@pytest.fixture(scope="module")
def forty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty proposals by chance, of which those with the highest quality are the best."""
    options = {"sampler": "random", "scheduler": "none", "trials": 40, "eval_episodes": 1}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE))
        run_here(patch)
        return search(tmp_path_factory.mktemp("forty"), tournament=False, **options).path


@pytest.fixture
def recorded(tmp_path: Path, forty: Path) -> Path:
    """A copy of that search."""
    return shutil.copytree(forty, tmp_path / "run")


@pytest.mark.slow
def test_a_sampler_that_learns_comes_to_the_best_sooner(recorded: Path) -> None:
    trials = rltune.open(recorded).trials()
    proposals = trials[trials["origin"] == "sampler"]
    best = proposals.sort_values("objective", ascending=False)["trial"].tolist()

    found = rltune.replay_sampler(recorded, "tpe")
    assert list(found.good) == best[:BEST]
    assert found.proposals == len(proposals)
    starts = len(trials) - len(proposals)
    # In the recorded order, it is where it was; by chance, in the middle.
    assert found.recorded.best == ((best[0] + 1, (best[0] + 1) * 900),)
    chance = [n - starts for n, _ in found.by_chance.best]
    middle = (len(proposals) + 1) / 2
    assert np.mean(chance) == pytest.approx(middle, abs=4 * np.std(chance) / len(chance) ** 0.5)
    learned = [n for n, _ in found.sampled.best]
    assert len(learned) == 20
    assert np.median(learned) < 0.7 * np.median([n for n, _ in found.by_chance.best])
    assert all(a <= b for a, b in zip(found.sampled.first_good, found.sampled.best, strict=True))
    assert 0 < found.distance < found.apart

    strict = rltune.replay_sampler(recorded, "tpe", scheduler="asha")
    spent = [[steps for _, steps in replay.sampled.best] for replay in (strict, found)]
    assert np.mean(spent[0]) < 0.9 * np.mean(spent[1])
    assert rltune.replay_sampler(recorded, "tpe") == found


def test_the_command(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in recorded.rglob("*")}
    command = ["replay", str(recorded), "--sampler", "tpe", "--repetitions", "3"]
    options = ["--sampler-options", "{n_startup_trials: 4}", "--scheduler", "median"]
    assert main([*command, *options]) == 0
    text = capsys.readouterr().out
    assert "with median" in text
    assert "median [10 %, 90 %] of 3 searches" in text
    assert main([*command, *options, "--json"]) == 0
    kept = json.loads(capsys.readouterr().out)
    assert kept["options"]["n_startup_trials"] == 4
    assert len(kept["sampled"]["best"]) == 3
    assert {path: path.stat().st_mtime_ns for path in recorded.rglob("*")} == before


def test_what_cannot_be_replayed_is_said(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for flags, said in (
        (["--sampler", "tp"], "did you mean 'tpe'"),
        (["--sampler", "tpe", "--repetitions", "0"], "at least 1"),
        (["--sampler", "tpe", "--sampler-options", "{x: 1}"], "n_startup_trials"),
        (["--sampler", "cmaes"], "at least two numeric dimensions"),
        (["--sampler", "tpe", "--scheduler", "pbt"], "can't be replayed"),
        (["--repetitions", "3"], "need a --sampler"),
        (["--sampler-options", "{}"], "need a --sampler"),
    ):
        assert main(["replay", str(recorded), *flags]) == 2
        assert said in capsys.readouterr().err


def test_without_a_study_it_says_so(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = recorded / "study.db"
    study.write_bytes(study.read_bytes()[:5000])
    assert main(["replay", str(recorded), "--sampler", "tpe"]) == 2
    assert "study.db is damaged" in capsys.readouterr().err
    study.unlink()
    assert main(["replay", str(recorded), "--sampler", "tpe"]) == 2
    assert "without the study" in capsys.readouterr().err
    assert main(["replay", str(recorded), "--scheduler", "median"]) == 0
