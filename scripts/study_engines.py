"""Do trainings come out the same, whichever engine computes them?

    python scripts/study_engines.py run dqn CartPole-v1 --preset zoo --env-steps 50000 --seeds 0-29
    python scripts/study_engines.py table

`run` trains each seed with each engine, in turn, and appends a line a training to
docs/benchmarks/engines.jsonl; called again, it does what is missing. `table` compares the engines:
means over seeds with 95 % intervals (Student's t), and the p of Mann and Whitney's test.

The score is the mean return of greedy episodes after the training, with the same starts for all.
The area is the mean return over the training's env steps: each step counts the return of its
episode. The late score is the mean return of greedy episodes of twenty policies: those at equal
distances in the training's last fifth. It varies less from seed to seed than the score, which an
agent that forgets and learns again leaves to its last update. CPU-seconds are those of the training
alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from json_lines import append, read

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "benchmarks" / "engines.jsonl"
ENGINES = ("torch", "numpy")
EPISODES = 100
LATE = 20  # policies of the last fifth
EVALUATION_SEED = 10_000
SETTING = ("agent", "env", "preset", "env_steps")
KEYS = (*SETTING, "engine", "seed")
COLUMNS = ("score", "late", "area", "cpu_seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    commands = parser.add_subparsers(dest="what", required=True)
    runs = commands.add_parser("run")
    runs.add_argument("agent")
    runs.add_argument("env")
    runs.add_argument("--preset", default="zoo", help="'defaults': the agent's own")
    runs.add_argument("--env-steps", type=int, required=True)
    runs.add_argument("--seeds", required=True, help="such as 0-29")
    runs.add_argument("--engines", nargs="+", default=ENGINES)
    runs.add_argument("--through", default="", help="words before each training's command")
    commands.add_parser("table")
    one = commands.add_parser("one")
    one.add_argument("job", type=json.loads)
    args = parser.parse_args()
    if args.what == "run":
        run(args)
    elif args.what == "one":
        print(json.dumps(train(args.job)))
    else:
        table(read(args.results))


def run(args: argparse.Namespace) -> None:
    """Do the trainings that are missing; a failed one is said, and the next one done."""
    done = {tuple(row[key] for key in KEYS) for row in read(args.results)}
    for job in jobs(args):
        if tuple(job[key] for key in KEYS) in done:
            continue
        command = [*shlex.split(args.through), sys.executable, __file__, "one", json.dumps(job)]
        result = subprocess.run(command, check=False, capture_output=True, text=True)
        if result.returncode:
            print(f"{job} failed:\n{result.stderr[-2000:]}", flush=True)
            continue
        row = json.loads(result.stdout.strip().splitlines()[-1])
        append(args.results, row)
        print(*(row[key] for key in (*KEYS, *COLUMNS)), flush=True)


def jobs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    first, _, last = args.seeds.partition("-")
    for seed in range(int(first), int(last or first) + 1):
        for engine in args.engines:
            setting = {key: getattr(args, key) for key in SETTING}
            yield {**setting, "engine": engine, "seed": seed}


def train(job: dict[str, Any]) -> dict[str, Any]:
    import rltune
    from rltune.agents.loop.agent import Agent

    agent_name, env, preset = job["agent"], job["env"], job["preset"]
    config = {} if preset == "defaults" else rltune.preset(agent_name, env, preset)
    agent = Agent(
        agent_name, env, config, total_timesteps=job["env_steps"], seed=job["seed"],
        device="cpu", engine=job["engine"],
    )  # fmt: skip
    budget, seconds, episodes, late = job["env_steps"], 0.0, [], []
    for number in range(LATE + 1):
        started = time.process_time()
        episodes += agent.learn(round(budget * (0.8 + 0.2 * number / LATE))).episodes
        seconds += time.process_time() - started
        if number:
            late.append(agent.evaluate(EPISODES // LATE, seed=EVALUATION_SEED).mean)
    steps = sum(episode.length for episode in episodes)
    gained = sum(episode.length * episode.episode_return for episode in episodes)
    names = ("rltune", "torch", "numpy", "gymnasium")
    return {
        **job,
        "score": agent.evaluate(EPISODES, seed=EVALUATION_SEED).mean,
        "late": round(sum(late) / len(late), 3),
        "area": round(gained / steps, 3) if steps else None,
        "cpu_seconds": round(seconds, 2),
        "diverged": agent.diverged,
        "when": time.strftime("%Y-%m-%d"),
        "versions": {name: version(name) for name in names},
    }


def table(rows: list[dict[str, Any]]) -> None:
    """Print a row a setting and column: what the engines reached, and whether that is chance."""
    from scipy.stats import mannwhitneyu

    settings: dict[tuple[Any, ...], dict[str, list[dict[str, Any]]]] = {}
    for row in rows:
        setting = settings.setdefault(tuple(row[key] for key in SETTING), {})
        setting.setdefault(row["engine"], []).append(row)
    print("| agent | environment | env steps | what | torch | numpy | p |")
    print("|---|---|---|---|---|---|---|")
    for (agent, env, preset, env_steps), engines in settings.items():
        for column in COLUMNS:
            found = [
                [row[column] for row in engines.get(engine, []) if row.get(column) is not None]
                for engine in ENGINES
            ]
            p = "" if not all(found) else f"{mannwhitneyu(*found).pvalue:.2f}"
            cells = " | ".join(estimate(values) for values in found)
            print(f"| {agent} {preset} | {env} | {env_steps:,} | {column} | {cells} | {p} |")


def estimate(values: list[float]) -> str:
    """Return the mean, its 95 % interval, and of how many."""
    from scipy.stats import sem, t

    if not values:
        return ""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return f"{mean:.1f} (1)"
    half = float(t.ppf(0.975, len(values) - 1) * sem(values))
    return f"{mean:.1f} ({mean - half:.1f} to {mean + half:.1f}; {len(values)})"


if __name__ == "__main__":
    main()
