"""The processes of a search: what is imported in them, and when."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Runs the command and prints each heavy package with the modules of ours that led to its import.
PROBE = """
import sys, traceback

HEAVY = {"torch", "plotly", "matplotlib", "sklearn"}

class Probe:
    def find_spec(self, name, path=None, target=None):
        if name in HEAVY:
            HEAVY.remove(name)
            callers = [frame.f_globals["__name__"] for frame, _ in traceback.walk_stack(None)]
            ours = [caller for caller in callers if caller.startswith("rltune.")]
            print("IMPORTED", name, *ours, flush=True)

sys.meta_path.insert(0, Probe())
from rltune.cli import main
sys.exit(main(sys.argv[1:]))
"""

# An environment that says what its process has imported when its training ends.
TELLING = """
import os, sys
import gymnasium

class Telling(gymnasium.Wrapper):
    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))

    def close(self):
        with open(f"imported-{os.getpid()}", "w") as file:
            file.write("\\n".join(sys.modules))
        super().close()
"""
# What only the driver uses. (PyArrow is imported by every worker of Ray.)
NOT_IN_WORKERS = {
    *("wandb", "matplotlib", "plotly", "sklearn", "pandas", "scipy", "optuna", "rich"),
    *("sqlalchemy", "tensorboard", "ray.tune", "ray.train", "ray.data", "ray.rllib"),
}


@pytest.mark.slow
def test_driver_and_workers_import_nothing_heavy_but_the_agent(tmp_path: Path) -> None:
    (tmp_path / "telling.py").write_text(TELLING)
    # In the driver, PyTorch comes with the agent's class: its networks are tried out at first.
    flags = "ppo --env telling:Telling --budget 600 --trials 2 --concurrency 1 --name small"
    quiet = "--no-tournament --no-report --wandb off --plain"
    driver = subprocess.Popen(
        [sys.executable, "-c", PROBE, "run", *flags.split(), *quiet.split()],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    said, errors = driver.communicate(timeout=600)
    assert driver.returncode == 0, errors
    assert "2 trials" in said
    found = [line.split()[1:] for line in said.splitlines() if line.startswith("IMPORTED")]
    assert [name for name, *_ in found] == ["torch"]
    assert "rltune.agents.algorithms.ppo" in found[0]
    (tmp_path / f"imported-{driver.pid}").unlink()
    (worker,) = tmp_path.glob("imported-*")  # one, kept for both trials
    imported = set(worker.read_text().split())
    assert {"torch", "rltune.agents.algorithms.ppo"} <= imported
    assert sorted(imported & NOT_IN_WORKERS) == []
