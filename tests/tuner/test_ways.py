"""The ways to bring a training: on CartPole, killed once, and on to the answer.

That of a plug-in is in tests/test_plugin_example.py, that of Ray Tune in tune/test_in_ray_tune.py.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import rltune
import yaml
from rltune.cli import main
from searching import HERE, check_resumed, kill_when_saved

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("toy")]
NOISE = {"noise": {"log": [0.01, 1.0]}}
OPTIONS = "--trials 4 --test-seeds 2 --finalists 2 --wandb off --plain --no-report --name run"


def killed(agent: str, folder: Path, options: str) -> Path:
    """Return the run directory of a search that was killed with all that it had started."""
    words = ["-m", "rltune", "run", agent, *options.split(), *OPTIONS.split()]
    environ = {**os.environ, "PYTHONPATH": str(HERE)}
    run = folder / "run"
    kill_when_saved([*words, "--storage-path", str(folder)], run, env=environ)
    return run


def space_file(folder: Path, space: dict[str, object]) -> Path:
    path = folder / "space.yaml"
    path.write_text(yaml.safe_dump(space))
    return path


def check_tools(run: Path) -> None:
    """What a finished search is good for: its report, its importances, other searches."""
    assert main(["report", str(run)]) == 0
    assert main(["importances", str(run)]) == 0
    assert (run / "report/index.html").exists()
    assert main(["compare", str(run), str(run)]) == 0


def test_a_function(tmp_path: Path) -> None:
    space = space_file(tmp_path, {"space": NOISE})
    run = killed("climb:train", tmp_path, f"--space {space} -n 200000 --metric return")
    assert check_resumed(run).answer is not None
    check_tools(run)


def test_a_script(tmp_path: Path) -> None:
    section = {"results": {"json": True, "step": "step"}, "resume": "--resume"}
    space = space_file(
        tmp_path, {"space": NOISE, "script": {**section, "checkpoint": "state.json"}}
    )
    agent = f"script:{HERE / 'climb.py'}"
    run = killed(agent, tmp_path, f"--space {space} -n 200000 --metric return")
    assert check_resumed(run).answer is not None
    check_tools(run)


@pytest.mark.parametrize("library", ["sb3", "sbx"])
def test_stable_baselines3(tmp_path: Path, library: str) -> None:
    pytest.importorskip({"sb3": "stable_baselines3"}.get(library, library))
    space = {"learning_rate": {"log": [1e-4, 1e-2]}, "ent_coef": {"uniform": [0.0, 0.02]}}
    fixed = {"n_steps": 128, "n_epochs": 4}
    file = space_file(tmp_path, {"space": space, "fixed": fixed})
    run = killed(f"{library}:PPO", tmp_path, f"--space {file} --env CartPole-v1 -n 2560")
    check_resumed(run)
    check_tools(run)
    best = rltune.load(run)
    assert best(np.zeros(4, np.float32)) in (0, 1)
    best.close()
