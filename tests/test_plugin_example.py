"""The example of plug-ins: installed into a folder of its own, and used."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import rltune

from tests.tuner.searching import check_resumed, kill_when_saved

ROOT = Path(__file__).parents[1]
NAMES = {
    "agents": "cautious",
    "backends": "hill",
    "samplers": "mutation",
    "schedulers": "follow",
    "exporters": "ini",
    "trackers": "lines",
    "reward_signals": "novelty",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example's package in lib/."""
    folder = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(ROOT / "examples" / "plugin", folder / "source")
    install = "install --quiet --no-deps --no-build-isolation --no-index --target"
    words = ["-m", "pip", *install.split(), str(folder / "lib"), str(source)]
    subprocess.run([sys.executable, *words], check=True)
    return folder


def run(folder: Path, command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "rltune", *shlex.split(command)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "lib")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def lines(run: Path, name: str) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "tracker" / "lines" / name).open()]


def test_all_are_listed(folder: Path) -> None:
    rows = json.loads(run(folder, "plugins --json"))
    assert {row["group"]: row["name"] for row in rows} == NAMES
    assert {(row["package"], row["version"], row["state"]) for row in rows} == {
        ("rltune-example", "1.0", "ok")
    }
    table = run(folder, "plugins").splitlines()
    assert table[0].split() == ["group", "name", "package", "version", "state"]
    assert table[1].split() == ["agents", "cautious", "rltune-example", "1.0", "ok"]


def test_a_search_uses_agent_sampler_scheduler_and_tracker(folder: Path) -> None:
    run(
        folder,
        "run cautious --env CartPole-v1 --sampler mutation --sampler-options '{keep: 0.7}' "
        "--scheduler follow --scheduler-options '{share: 1.0}' --tracker lines --trials 4 "
        "--budget 600 --no-tournament --no-report --wandb off --plain --name search",
    )
    found = rltune.open(folder / "runs" / "search")
    trials = found.trials()
    # No other sampler draws a number twice.
    drawn = ("config.learning_rate", "config.gamma", "config.gae_lambda")
    assert any(trials[column].duplicated().any() for column in drawn)
    stopped = trials[trials["state"] == "PRUNED"]
    assert stopped["reason"].str.startswith("behind the best at").all()
    assert trials["config.clip_range"].max() <= 0.1
    for number, rows in found.history().groupby("trial"):
        told = lines(found.path, f"trial-{number}.jsonl")
        assert [row["env_steps"] for row in told[:-1]] == list(rows["env_steps"])
        assert told[-1]["state"] == trials["state"][number]
    assert lines(found.path, "search.jsonl")[0]["best_config"] == found.best
    text = run(folder, "export search --to ini")
    assert "agent = cautious\n" in text
    assert f"clip_range = {found.best['clip_range']}\n" in text


@pytest.mark.slow
def test_a_backend_trains_and_goes_on(folder: Path) -> None:
    train = "train hill:linear --env CartPole-v1 --wandb off --plain"
    run(folder, f"{train} -n 3000 --eval-freq 1000 --name whole")
    run(folder, f"{train} -n 1500 --eval-freq 1000 --name parts")
    run(folder, "resume parts -n 3000 --plain")
    whole, parts = (rltune.open(folder / "runs" / name).history() for name in ("whole", "parts"))
    assert whole["eval_return"].iloc[-1] == parts["eval_return"].iloc[-1] > 100
    assert whole["env_steps"].iloc[-1] == parts["env_steps"].iloc[-1]
    assert "hill:linear" in run(folder, "env CartPole-v1 --json")


@pytest.mark.slow
def test_a_reward_signal_rewards_a_training(folder: Path) -> None:
    run(
        folder,
        "train ppo --env CartPole-v1 -n 1024 --reward-signals '{novelty: {strength: 0.1}}' "
        "--wandb off --plain --name signal",
    )
    found = rltune.open(folder / "runs" / "signal")
    assert found.spec["config"]["custom_signal"] == "novelty"
    row = found.history().iloc[-1]
    assert row["custom_reward"] > 0
    assert row["novelty_loss"] > 0


@pytest.mark.slow
def test_a_killed_search_over_a_backend_goes_on_to_its_answer(folder: Path) -> None:
    words = "-m rltune run hill:linear --env CartPole-v1 -n 60000 --sampler mutation "
    words += "--scheduler follow --trials 4 --test-seeds 2 --finalists 2 --wandb off --plain "
    words += "--no-report --name killed"
    found = folder / "runs" / "killed"
    environ = {**os.environ, "PYTHONPATH": str(folder / "lib")}
    kill_when_saved(words.split(), found, cwd=folder, env=environ)
    before = rltune.open(found).history()
    run(folder, "resume killed --plain")
    check_resumed(found, before)
    run(folder, "report killed")
    run(folder, "importances killed")
    assert "episode length" in run(folder, "eval killed --episodes 2")
