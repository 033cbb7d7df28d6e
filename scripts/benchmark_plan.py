"""Benchmark `rltune plan`: the predicted and the actual cost of five small searches.

    python scripts/benchmark_plan.py            # all of them: some minutes on two cores
    python scripts/benchmark_plan.py ppo td3    # some

Prints a row per search as soon as it has ended: the prediction, the actual cost, and the ratio. CPU
seconds are those of training and evaluation, which hardly depend on other load; wall time does.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import rltune

SHORT = ["--finalists", "2", "--test-seeds", "2"]
SEARCHES = {
    "ppo": ["ppo", "--env", "CartPole-v1", "--budget", "1e4", "--trials", "12", *SHORT],
    "a2c": ["a2c", "--env", "CartPole-v1", "--budget", "1e4", "--trials", "12", *SHORT],
    "dqn": ["dqn", "--env", "CartPole-v1", "--budget", "5e3", "--trials", "10", *SHORT],
    "td3": ["td3", "--env", "Pendulum-v1", "--budget", "3e3", "--trials", "8", *SHORT],
    "sac": ["sac", "--env", "Pendulum-v1", "--budget", "2e3", "--trials", "8", *SHORT],
}


def rltune_command(*words: str) -> str:
    """Run a command of rltune and return what it prints."""
    command = [sys.executable, "-m", "rltune", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def actual(folder: str) -> dict[str, float]:
    """Return the cost of a search: env steps, CPU and wall seconds."""
    history = rltune.open(folder).history()
    runs = history.groupby(["trial", "seed"])[["env_steps", "cpu_time"]].max()
    return {"env_steps": float(runs["env_steps"].sum()), "cpu": float(runs["cpu_time"].sum())}


def compare(name: str) -> list[str]:
    """Plan a search, run it, and return its rows of the table."""
    words = SEARCHES[name]
    plan: dict[str, Any] = json.loads(rltune_command("plan", *words, "--json"))
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--storage-path", folder, "--name", name, "--wandb", "off", "--plain"]
        started = time.time()
        rltune_command("run", *words, *flags)
        found = actual(str(Path(folder) / name)) | {"wall": time.time() - started}
    rows = []
    for what, value in found.items():
        about = plan[what]
        within = about["low"] <= value <= about["high"]
        rows.append(
            f"| {name}, {words[2]} | {what} | {about['value']:,.0f} | {about['low']:,.0f} to "
            f"{about['high']:,.0f} | {value:,.0f} | {about['value'] / value:.2f} | "
            f"{'yes' if within else 'no'} |"
        )
    return rows


def main() -> None:
    """Print the table."""
    print("| search | what | foreseen | range | was | foreseen / was | in the range |")
    print("|---|---|---|---|---|---|---|")
    for name in sys.argv[1:] or SEARCHES:
        print("\n".join(compare(name)), flush=True)


if __name__ == "__main__":
    main()
