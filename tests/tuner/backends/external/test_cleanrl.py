"""The tutorial of docs/bring-your-own.md, with CleanRL's published file where it can be had."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import urllib.request
from pathlib import Path

import pytest
import rltune
from rltune.cli import main

SOURCE = "https://raw.githubusercontent.com/vwxyzjn/cleanrl/master/cleanrl/ppo.py"
ENOUGH = 60.0  # of CartPole, after 16,000 steps
SPACE = r"""
agent: script:ppo.py
env: CartPole-v1
budget: 16384
space:
  learning_rate: {log: [1e-4, 1e-2]}
  num_steps: {pow2: [32, 256]}
  update_epochs: {int: [2, 10]}
  ent_coef: {log: [1e-5, 1e-1]}
script:
  python: PYTHON
  env: --env-id
  args: [--no-cuda]
  results: {regex: 'global_step=(?P<step>\d+), episodic_return=\[?(?P<value>[-\d.]+)'}
  average: 20
"""


def obtain(folder: Path) -> str:
    """Put ppo.py there, and return the Python that can run it; skip where it can't be had."""
    try:
        with urllib.request.urlopen(os.environ.get("CLEANRL_PPO", SOURCE), timeout=20) as answer:
            (folder / "ppo.py").write_bytes(answer.read())
    except OSError as error:
        pytest.skip(f"CleanRL's ppo.py can't be had: {error}")
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    python = folder / "env" / "bin" / "python"
    needed = ["gymnasium==0.29.1", "tyro", "tensorboard"]
    install = [python, "-m", "pip", "install", "--quiet", *needed]
    if subprocess.run(install, capture_output=True, check=False).returncode:
        pytest.skip("what CleanRL's ppo.py needs can't be installed")
    # PyTorch is large: that of the tests will do, behind the packages above.
    (place,) = (folder / "env").glob("lib/python*/site-packages")
    (place / "zz_tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return str(python)


@pytest.mark.slow
def test_cleanrl_s_published_file_is_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = obtain(tmp_path)
    monkeypatch.chdir(tmp_path)
    Path("ppo.yaml").write_text(SPACE.replace("PYTHON", python))
    words = ["run", "--space", "ppo.yaml", "--metric", "charts/episodic_return", "--trials", "6"]
    words += ["--test-seeds", "2", "--wandb", "off", "--plain", "--name", "tuned", "--no-report"]
    assert main(words) == 0
    run = rltune.open("runs/tuned")
    trials = run.trials()
    assert len(trials) == 6
    assert set(trials["state"]) <= {"COMPLETE", "PRUNED"}
    assert trials.loc[0, "origin"] == "default"
    assert trials["objective"].max() > ENOUGH
    assert list(Path("runs/tuned/trials").rglob("events.out.tfevents*"))
