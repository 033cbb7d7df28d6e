"""The driver's process: what a search imports in it, and when."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


def test_a_driver_imports_nothing_heavy_but_its_agent(tmp_path: Path) -> None:
    # PyTorch comes with the agent's class: its networks are tried out before workers start.
    flags = "ppo --env CartPole-v1 --budget 600 --trials 2 --concurrency 1 --name small"
    quiet = "--no-tournament --no-report --wandb off --plain"
    done = subprocess.run(
        [sys.executable, "-c", PROBE, "run", *flags.split(), *quiet.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "2 trials" in done.stdout
    found = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("IMPORTED")]
    assert [name for name, *_ in found] == ["torch"]
    assert "rltune.agents.algorithms.ppo" in found[0]
