#!/usr/bin/env python
"""Benchmark hindsight experience replay: success rates with it and without.

    python scripts/benchmark_hindsight.py             # what is missing, then the table
    python scripts/benchmark_hindsight.py --report    # the table alone
    python scripts/benchmark_hindsight.py --tasks fetch    # needs gymnasium-robotics and mujoco 3

Every training is a row of docs/benchmarks/hindsight.jsonl; one that is there is not run again. The
environments are those of examples/goals: DQN flips 15 bits, SAC leads a point to a place of a
square. The table is for docs/hindsight.md.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.stats
from json_lines import append, read
from rltune.agents import Agent

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "benchmarks" / "hindsight.jsonl"
SEEDS = 5
EPISODES = 100  # of an evaluation


class Task(NamedTuple):
    """An agent, an environment, the length of a training, and its evaluations."""

    agent: str
    env: str
    env_kwargs: dict[str, Any]
    config: dict[str, Any]
    env_steps: int
    evaluations: int = 10


_SMALL = {
    **{"gamma": 0.95, "net_arch": [64, 64], "learning_rate": 1e-3},
    **{"learning_starts": 1000, "train_freq": 2},
}
TASKS = {
    "flip": Task(
        "dqn",
        "goal_envs:BitFlip",
        {"n": 15},
        {
            **{"gamma": 0.98, "net_arch": [256], "batch_size": 128},
            **{"exploration_fraction": 0.5, "learning_starts": 1000},
        },
        10_000,
    ),
    "reach": Task("sac", "goal_envs:Reach", {"near": 0.05}, _SMALL, 10_000),
    "fetch": Task(
        "td3",
        "gymnasium_robotics:FetchReach-v4",
        {},
        {**_SMALL, "train_freq": 1, "noise_std": 0.2},
        10_000,
        evaluations=1,
    ),
}
BY_DEFAULT = ("flip", "reach")
COUNTS = (0, 4)  # of n_sampled_goal


def train(task: Task, n_sampled_goal: int, seed: int) -> dict[str, Any]:
    """Return the success rates of one training, and the seconds that it took."""
    agent = Agent(
        task.agent,
        task.env,
        {**task.config, "n_sampled_goal": n_sampled_goal},
        total_timesteps=task.env_steps,
        seed=seed,
        device="cpu",
        env_kwargs=task.env_kwargs,
    )
    curve, seconds = [], 0.0
    for i in range(1, task.evaluations + 1):
        begun = time.process_time()
        agent.learn(task.env_steps * i // task.evaluations)
        seconds += time.process_time() - begun
        curve.append([agent.env_steps, agent.evaluate(EPISODES).success_rate])
    agent.close()
    return {"success": curve[-1][1], "curve": curve, "cpu_seconds": round(seconds, 1)}


def run(names: Sequence[str], seeds: int) -> None:
    """Train what has no row yet."""
    sys.path.insert(0, str(ROOT / "examples" / "goals"))
    done = {(row["task"], row["n_sampled_goal"], row["seed"]) for row in read(RESULTS)}
    for seed in range(seeds):
        for name in names:
            for count in COUNTS:
                if (name, count, seed) in done:
                    continue
                key = {"task": name, "n_sampled_goal": count, "seed": seed}
                row = {**key, **train(TASKS[name], count, seed)}
                print(row, flush=True)
                append(RESULTS, row)


def interval(rates: Sequence[float]) -> str:
    """Return the mean of some trainings' success rates and its 95 % interval (Student's t)."""
    mean = float(np.mean(rates))
    if len(set(rates)) == 1:
        return f"{mean:.2f} (all {len(rates)} alike)"
    half = scipy.stats.t.ppf(0.975, len(rates) - 1) * scipy.stats.sem(rates)
    return f"{mean:.2f} ({max(0.0, mean - half):.2f} to {min(1.0, mean + half):.2f})"


def report() -> None:
    """Print the table."""
    rows = read(RESULTS)
    print(
        "| agent, environment | env steps | without | `n_sampled_goal` 4 | CPU s: without, with |"
    )
    print("|---|---:|---:|---:|---:|")
    for name, task in TASKS.items():
        found = [
            [row for row in rows if row["task"] == name and row["n_sampled_goal"] == count]
            for count in COUNTS
        ]
        if not all(found):
            continue
        rates = [interval([row["success"] for row in of_count]) for of_count in found]
        seconds = [f"{np.mean([row['cpu_seconds'] for row in of]):.0f}" for of in found]
        what = ", ".join(f"{key} {value}" for key, value in task.env_kwargs.items())
        env = f"{task.env.partition(':')[2]}{f' ({what})' if what else ''}"
        print(
            f"| {task.agent}, {env} | {task.env_steps:,} | {' | '.join(rates)} | "
            f"{', '.join(seconds)} |"
        )
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy", "gymnasium"))
    print(f"\n{time.strftime('%Y-%m-%d')}, {platform.machine()}, {versions}")


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(BY_DEFAULT))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--report", action="store_true", help="print the table alone")
    args = parser.parse_args()
    if not args.report:
        run(args.tasks, args.seeds)
    report()


if __name__ == "__main__":
    main()
