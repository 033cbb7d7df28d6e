"""How much of a demonstrator's return does a policy reach that saw ten episodes of it?

    python scripts/benchmark_imitation.py demonstrate  # resumable: trains, records ten episodes
    python scripts/benchmark_imitation.py clone        # resumable: `bc` on them, five seeds each
    python scripts/benchmark_imitation.py others       # resumable: GAIL, and SAC with cloning
    python scripts/benchmark_imitation.py table

A demonstrator is trained with `rltune train`, its best checkpoint is recorded with `rltune play
--record`. Clones are trained with the defaults of `bc`. Everyone is scored by the same 100 greedy
episodes, which are none of those that were recorded; clones by their last policy, not by their
best. The part reached is a clone's mean return divided by the demonstrator's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from json_lines import append, read
from markdown_tables import heading, line
from winners import EPISODES, EVALUATION_SEED, in_process, scored

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "benchmarks" / "imitation.jsonl"
FOLDER = Path("runs") / "imitation"  # of the demonstrators
RECORDED = 10  # episodes
SEEDS = range(5)
NEEDED = 0.9  # of the demonstrator's return


class Task(NamedTuple):
    """An environment, its demonstrator, and the env steps of both trainings."""

    env: str
    agent: str
    preset: str  # of the demonstrator; empty: its defaults
    budget: int
    cloned: int  # demonstrated steps that a clone learns from


TASKS = (
    Task("CartPole-v1", "ppo", "zoo", 100_000, 500_000),
    Task("LunarLander-v3", "ppo", "zoo", 1_000_000, 500_000),
    Task("InvertedDoublePendulum-v5", "sac", "", 30_000, 500_000),
    Task("Pendulum-v1", "sac", "", 20_000, 500_000),
)


class Other(NamedTuple):
    """Another way to learn from the recordings of an environment."""

    name: str
    env: str
    agent: str
    preset: str  # empty: its defaults
    budget: int
    config: dict[str, Any]


_GAIL = {"gail_strength": 1.0, "extrinsic_strength": 0.0, "shared_value": True}
_WARM = {"cloning": 3.0, "cloning_steps": 200_000, "cloning_updates": 300}
# Small networks take a quarter of the time; a high temperature drives policies from what they know.
_SMALL = {"net_arch": [64, 64], "ent_coef": "auto_0.1"}
OTHERS = (
    Other("GAIL", "InvertedDoublePendulum-v5", "ppo", "", 200_000, _GAIL),
    Other(
        "GAIL with cloning", "LunarLander-v3", "ppo", "zoo", 400_000,
        {**_GAIL, **_WARM, "gail_use_actions": True},
    ),
    Other(
        "GAIL", "LunarLander-v3", "ppo", "zoo", 400_000, {**_GAIL, "gail_use_actions": True}
    ),
    Other("SAC alone", "Pendulum-v1", "sac", "", 10_000, _SMALL),
    Other(
        "SAC with cloning, half the env steps",
        "Pendulum-v1",
        "sac",
        "",
        5_000,
        {**_SMALL, "cloning": 3.0, "cloning_updates": 4, "cloning_steps": 10_000},
    ),
)  # fmt: skip


def store(results: Path, row: dict[str, Any]) -> None:
    names = ("rltune", "torch", "gymnasium", "numpy")
    about = {"when": time.strftime("%Y-%m-%d"), "versions": {name: version(name) for name in names}}
    append(results, {**row, **about})


def rows(results: Path, what: str, task: Task) -> list[dict[str, Any]]:
    """Return what was measured of a task as it is now."""
    return [
        row
        for row in read(results)
        if row["what"] == what and all(row[k] == v for k, v in task._asdict().items())
    ]


def recording(folder: Path, task: Task) -> Path:
    return folder / f"{task.env}-{task.agent}-{task.budget}.parquet"


def demonstrate(results: Path, folder: Path, tasks: list[Task]) -> None:
    """Train the demonstrators that are missing, record and score them."""
    from rltune.agents.loop.agent import Agent

    for task in tasks:
        file = recording(folder, task)
        if rows(results, "demonstrator", task) and file.exists():
            continue
        run = folder / f"{file.stem}-{os.getpid()}"
        train = ["train", task.agent, "--env", task.env, "-n", str(task.budget), "--seed", "0"]
        train += ["--preset", task.preset] if task.preset else []
        train += ["--storage-path", str(folder), "--name", run.name, "--wandb", "off", "--plain"]
        before = os.times().children_user
        rltune(train)
        seconds = os.times().children_user - before
        best = run / "checkpoints" / "best.pt"
        rltune(["play", str(best), "--episodes", str(RECORDED), "--record", str(file)])
        acting = Agent.load(best, acts_only=True)
        score = acting.evaluate(EPISODES, seed=EVALUATION_SEED).mean
        acting.close()
        row = {"what": "demonstrator", **task._asdict(), "score": score}
        store(results, {**row, "cpu_seconds": round(seconds, 1), **recorded(file)})
        print(task.env, f"{score:.1f}", flush=True)


def rltune(words: list[str]) -> None:
    command = [sys.executable, "-m", "rltune", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def recorded(file: Path) -> dict[str, Any]:
    from rltune.agents.demonstrations.files import read as read_demonstrations

    found = read_demonstrations(file)
    returns = [episode.episode_return for episode in found.episodes]
    return {"steps": found.steps, "recorded": sum(returns) / len(returns)}


def clones(results: Path, folder: Path, tasks: list[Task]) -> Iterator[dict[str, Any]]:
    """Yield the trainings that are missing: the first seed of every task, then the second."""
    for seed in SEEDS:
        for task in tasks:
            file = recording(folder, task)
            done = {row["seed"] for row in rows(results, "clone", task)}
            if seed not in done and file.exists() and rows(results, "demonstrator", task):
                yield {"what": "clone", **task._asdict(), "seed": seed, "file": str(file)}


def clone(results: Path, folder: Path, tasks: list[Task]) -> None:
    for job in clones(results, folder, tasks):
        row = in_process(__file__, job)
        row.pop("file")
        store(results, row)
        print(row["env"], row["seed"], row["score"], flush=True)


def others(results: Path, folder: Path, tasks: list[Task]) -> None:
    """Train what is missing of the other ways, the first seed of all of them first."""
    for seed in SEEDS:
        for other in OTHERS:
            files = [recording(folder, task) for task in tasks if task.env == other.env]
            about = {"what": "other", **other._asdict(), "seed": seed}
            if not files or any(about.items() <= row.items() for row in read(results)):
                continue
            row = in_process(__file__, {**about, "file": str(files[0])})
            row.pop("file")
            store(results, row)
            print(row["name"], row["env"], seed, row["score"], flush=True)


def one(job: dict[str, Any]) -> dict[str, Any]:
    """Train a clone, or another learner, on one seed."""
    if job["what"] == "other":
        from rltune.training.presets import preset

        known = preset(job["agent"], job["env"], job["preset"], {}) if job["preset"] else {}
        shown = {"demonstrations": job["file"]} if "alone" not in job["name"] else {}
        return {**job, **scored(job, {**known, **shown, **job["config"]})}
    training = {**job, "agent": "bc", "budget": job["cloned"]}
    return {**job, **scored(training, {"demonstrations": job["file"]})}


def table(results: Path) -> None:
    """Print a row a task."""
    from rltune.stats.estimates import bootstrap_interval, iqm

    clones = ("clones' return, 95 %", "part reached, 95 %", "seeds")
    heading(["environment", "demonstrator", "its return", "steps shown", *clones])
    for task in TASKS:
        shown, found = (rows(results, what, task) for what in ("demonstrator", "clone"))
        if not shown or not found:
            continue
        best, returns = shown[-1]["score"], [row["score"] for row in found]
        low, high = bootstrap_interval(returns)
        parts = [score / best for score in (iqm(returns), low, high)]
        verdict = "" if parts[0] >= NEEDED else " (too little)"
        cells = [task.env, f"{task.agent}, {task.budget:,} env steps", f"{best:.1f}"]
        cells += [f"{shown[-1]['steps']:,}", f"{iqm(returns):.1f} [{low:.1f}, {high:.1f}]"]
        cells += ["{:.1%} [{:.1%}, {:.1%}]".format(*parts) + verdict, str(len(returns))]
        line(cells)
    print()
    heading(["learner", "environment", "env steps", "return, 95 %", "part of the demonstrator's"])
    for other in OTHERS:
        returns = [
            row["score"]
            for row in read(results)
            if row["what"] == "other" and (row["name"], row["env"]) == (other.name, other.env)
        ]
        best = [
            row["score"]
            for row in read(results)
            if row["what"] == "demonstrator" and row["env"] == other.env
        ]
        if returns and best:
            (low, high), middle = bootstrap_interval(returns), iqm(returns)
            about = [f"{other.agent}, {other.name}", other.env, f"{other.budget:,}"]
            interval = f"{middle:.1f} [{low:.1f}, {high:.1f}]"
            part = f"{middle / best[-1]:.1%}" if best[-1] > 0 else f"it has {best[-1]:.1f}"
            line([*about, interval, part])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("demonstrate", "clone", "others", "table", "one"))
    parser.add_argument("job", nargs="?", type=json.loads)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of demonstrators' runs")
    parser.add_argument("--env", nargs="+", default=[], help="only these")
    args = parser.parse_args()
    tasks = [task for task in TASKS if not args.env or task.env in args.env]
    folder = args.folder.resolve()
    if args.what == "demonstrate":
        demonstrate(args.results, folder, tasks)
    elif args.what == "clone":
        clone(args.results, folder, tasks)
    elif args.what == "others":
        others(args.results, folder, tasks)
    elif args.what == "table":
        table(args.results)
    else:
        print(json.dumps(one(args.job)))


if __name__ == "__main__":
    main()
