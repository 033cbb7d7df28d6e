"""Benchmark reward signals: how often is a task solved that hardly rewards anything?

    python scripts/benchmark_signals.py             # what is missing, then the table
    python scripts/benchmark_signals.py --report    # the table alone

PPO's defaults learn examples/sparse's rooms with a key, without signals and with each, on five
seeds. Every training is a row of docs/benchmarks/signals.jsonl; one that is there is not run again.
"""

from __future__ import annotations

import argparse
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from json_lines import append, read
from rltune.agents import Agent
from scipy.stats import binomtest

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "benchmarks" / "signals.jsonl"
ENV, ENV_STEPS = "sparse_envs:KeyRooms", 300_000
SIGNALS: dict[str, dict[str, Any]] = {
    "none": {},
    "curiosity": {"curiosity_strength": 0.1},
    "rnd": {"rnd_strength": 0.1},
}
SEEDS, EVALUATIONS, EPISODES = 5, 10, 100
SOLVED = 0.9  # of the episodes of the last evaluation, which explore as training does


def train(signal: str, seed: int) -> dict[str, Any]:
    """Return the success rates of one training, and the seconds that it took."""
    agent = Agent("ppo", ENV, SIGNALS[signal], total_timesteps=ENV_STEPS, seed=seed)
    started, rates = time.process_time(), list[float]()
    for k in range(1, EVALUATIONS + 1):
        agent.learn(ENV_STEPS * k // EVALUATIONS)
        # A success is rewarded with 1. A greedy policy may walk in circles.
        rates.append(agent.evaluate(EPISODES, mode="stochastic").mean)
    agent.close()
    return {"success": rates, "cpu_seconds": round(time.process_time() - started, 1)}


def run(results: Path) -> None:
    """Train what is missing, the first seed of all before the second."""
    done = {(row["signal"], row["seed"]) for row in read(results)}
    for seed in range(SEEDS):
        for signal, config in SIGNALS.items():
            if (signal, seed) in done:
                continue
            row = {"env": ENV, "agent": "ppo", "signal": signal, "config": config, "seed": seed}
            row |= {"env_steps": ENV_STEPS, **train(signal, seed), "when": time.strftime("%F")}
            append(
                results, {**row, "versions": {name: version(name) for name in ("rltune", "torch")}}
            )
            print(signal, seed, row["success"], flush=True)


def report(results: Path) -> None:
    """Print the table of docs/signals.md."""
    print("| signal | solved | solved after (env steps, median) | CPU s |\n|---|---|---|---|")
    for signal in SIGNALS:
        found = [row for row in read(results) if row["signal"] == signal]
        if not found:
            continue
        solved = [row for row in found if row["success"][-1] >= SOLVED]
        first = sorted(
            next(i for i, rate in enumerate(row["success"], 1) if rate >= SOLVED) for row in solved
        )
        after = f"{first[len(first) // 2] * ENV_STEPS // EVALUATIONS:,}" if first else ""
        low, high = binomtest(len(solved), len(found)).proportion_ci(method="wilson")
        seconds = sorted(row["cpu_seconds"] for row in found)[len(found) // 2]
        share = f"{len(solved)} of {len(found)} [{low:.2f}, {high:.2f}]"
        print(f"| {signal} | {share} | {after} | {seconds:.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--report", action="store_true", help="print the table alone")
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT / "examples" / "sparse"))
    if not args.report:
        run(args.results)
    report(args.results)


if __name__ == "__main__":
    main()
