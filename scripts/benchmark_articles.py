#!/usr/bin/env python
"""Benchmark trainings that articles show: SAC on Minitaur (TF-Agents), DQN on Pong (xagents).

    python scripts/benchmark_articles.py minitaur --folder runs     # goes on where it was stopped
    python scripts/benchmark_articles.py pong --folder runs
    python scripts/benchmark_articles.py report                     # table and picture alone

Each training is a run directory, which the same command goes on with, and a row of
docs/benchmarks/articles.jsonl with its curve, each time that it stops: the last one counts.
Minitaur takes half an hour a seed beside other work on two cores, Pong some three hours on one.
"""

from __future__ import annotations

import argparse
import platform
import time
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import rltune
from json_lines import append, read

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "benchmarks" / "articles.jsonl"
PICTURE = ROOT / "docs" / "benchmarks" / "articles.svg"


class Row(NamedTuple):
    """A training of an article, and the figure that it has there.

    Attributes:
        seeds: how many trainings
        column: of the history, that the figure is of
    """

    agent: str
    env: str
    env_steps: int
    config: dict[str, Any]
    options: dict[str, Any]
    seeds: int
    column: str
    figure: float
    source: str


ROWS = {
    # 10,000 env steps without updates, then one update for each: 100,000 of them. TF-Agents' target
    # entropy is half of Stable-Baselines3's: -dim / 2, for eight joints.
    "minitaur": Row(
        "sac",
        "MinitaurBulletEnv-v0",
        110_000,
        {
            **{"net_arch": (256, 256), "batch_size": 256, "learning_starts": 10_000},
            **{"learning_rate": 3e-4, "tau": 0.005, "reward_scale": 1.0, "buffer_size": 10_000},
            **{"train_freq": 1, "gradient_steps": 1, "target_entropy": "-4"},
            **{"num_actors": 1, "max_policy_lag": 16},
        },
        {"eval_freq": 10_000, "eval_episodes": 20, "eval_at_start": True},
        3,
        "eval_return",
        0.84,
        "TF-Agents' tutorial of SAC on Minitaur",
    ),
    # xagents' environment, without sticky actions. With smaller images, and neither a second value
    # of the next state nor two streams, an update takes half the time.
    "pong": Row(
        "dqn",
        "PongNoFrameskip-v4",
        1_600_000,
        {
            **{"n_envs": 4, "encoder": "small_cnn", "net_arch": (), "learning_rate": 1e-4},
            **{"batch_size": 32, "train_freq": 8, "gradient_steps": 4, "n_step": 10},
            **{"prioritised": True, "buffer_size": 100_000, "learning_starts": 10_000},
            **{"target_update_interval": 1000, "max_grad_norm": 10.0},
            **{"exploration_decay_steps": 50_000, "exploration_final_eps": 0.01},
        },
        {
            **{"env_kwargs": {"screen_size": 64}, "target_reward": 19.0, "reward_buffer_size": 10},
            **{"eval_freq": 50_000, "eval_episodes": 3},
        },
        1,
        "mean_reward",
        19.0,
        "xagents' DQN, mean of ten training episodes",
    ),
}


def train(name: str, seed: int, folder: Path) -> None:
    """Train, or go on with it, and store its row, also where it was interrupted."""
    row, run = ROWS[name], folder / f"{name}-{seed}"
    if run.exists():
        result = rltune.resume_training(run, plain=True)
    else:
        result = rltune.train(
            row.agent,
            row.env,
            config=row.config,
            total_timesteps=row.env_steps,
            seed=seed,
            name=run.name,
            storage_path=folder,
            wandb="off",
            plain=True,
            **row.options,
        )
    history = rltune.open(run).history()
    curve = history[["env_steps", row.column]].dropna()
    append(
        RESULTS,
        {
            "row": name,
            "seed": seed,
            "ended": not result.interrupted,
            "env_steps": result.env_steps,
            "curve": [[int(x), round(float(y), 4)] for x, y in curve.to_numpy().tolist()],
            "value": round(float(curve[row.column].iloc[-1]), 4),
            "hours": round(result.seconds / 3600, 2),
            "versions": {n: version(n) for n in ("torch", "numpy", "gymnasium", "ray")},
            "machine": platform.processor() or platform.machine(),
            "when": time.strftime("%Y-%m-%d"),
        },
    )


def report() -> str:
    """Return the table, and draw the curves."""
    lines = ["| training | article | here | env steps | hours |", "|---|---:|---:|---:|---:|"]
    found = list({(one["row"], one["seed"]): one for one in read(RESULTS)}.values())
    for name, row in ROWS.items():
        own = [one for one in found if one["row"] == name]
        if not own:
            continue
        values = [one["value"] for one in own]
        each = f" ({', '.join(f'{value:.2f}' for value in values)})" if len(values) > 1 else ""
        lines.append(
            f"| {row.agent.upper()} on {row.env} | {row.figure:g} | {fmean(values):.2f}{each} "
            f"| {max(one['env_steps'] for one in own):,} | {sum(one['hours'] for one in own):.1f} |"
        )
    if found:
        draw(found)
    return "\n".join(lines)


def draw(found: list[dict[str, Any]]) -> None:
    """Draw a panel for each row: a curve for each seed, and the article's figure."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    names = [name for name in ROWS if any(one["row"] == name for one in found)]
    figure, panels = pyplot.subplots(1, len(names), figsize=(5 * len(names), 3.2), squeeze=False)
    for name, panel in zip(names, panels[0], strict=True):
        row = ROWS[name]
        for one in found:
            if one["row"] == name:
                x, y = zip(*one["curve"], strict=True)
                panel.plot(x, y, color="#1f77b4", alpha=0.8)
        panel.axhline(row.figure, color="#888888", linestyle="--", label="the article")
        panel.legend(frameon=False)
        panel.set(title=f"{row.agent.upper()} on {row.env}", xlabel="env steps", ylabel=row.column)
    figure.tight_layout()
    figure.savefig(PICTURE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=(*ROWS, "report"))
    parser.add_argument("--folder", type=Path, default=Path("runs"), help="of the run directories")
    args = parser.parse_args()
    if args.what != "report":
        done = {(row["row"], row["seed"]) for row in read(RESULTS) if row["ended"]}
        for seed in range(ROWS[args.what].seeds):
            if (args.what, seed) not in done:
                train(args.what, seed, args.folder)
    print(report())


if __name__ == "__main__":
    main()
