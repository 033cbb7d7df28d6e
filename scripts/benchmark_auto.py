"""Does `rltune run auto` name the agent that long searches of each agent find best?

    python scripts/benchmark_auto.py search   # resumable; nothing else may run
    python scripts/benchmark_auto.py test     # resumable: on ten seeds that no search used
    python scripts/benchmark_auto.py table

The environments are those that docs/benchmarks/held-out.md names. `auto` has twice the time of a
search for one agent, and trials of `TRIAL_TIME`. Then every agent that can act there is searched
by itself, with the same env steps a trial. What each search names is trained for as many env steps
on the same seeds, and scored by 100 greedy episodes.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from json_lines import append, read
from markdown_tables import heading, line
from winners import in_process, named, scored

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "auto.jsonl"
ENVS = (
    "CartPole-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    "LunarLander-v3",
    "Pendulum-v1",
    "MountainCarContinuous-v0",
    "LunarLanderContinuous-v3",
    "Hopper-v5",
)
AUTO = "auto"
MINUTES = 10.0  # of a search for one agent; `auto` has twice as many
TRIAL_TIME = "10s"
SEARCH_SEED = 70
SEEDS = range(3000, 3010)


def rows(results: Path, what: str) -> list[dict[str, Any]]:
    return [row for row in read(results) if row["what"] == what]


# --------------------------------------------------------------------------------------- searches


def search(results: Path, minutes: float, envs: list[str]) -> None:
    """Run the searches that are missing: `auto` first, as it says the env steps of a trial."""
    for env in envs:
        if not (found := [row for row in rows(results, AUTO) if row["env"] == env]):
            arguments = ["--trial-time", TRIAL_TIME]
            append(results, searched(AUTO, env, arguments, 2 * minutes))
            found = [row for row in rows(results, AUTO) if row["env"] == env]
        done = {row["agent"] for row in rows(results, "search") if row["env"] == env}
        for agent, budget in found[0]["budgets"].items():
            if agent not in done:
                append(results, searched(agent, env, ["--budget", str(budget)], minutes))


def searched(agent: str, env: str, arguments: list[str], minutes: float) -> dict[str, Any]:
    """Run a search from the command line, and return what it named."""
    import rltune
    import yaml

    print(agent, env, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "rltune", "run", agent, "--env", env, *arguments]
        command += ["--time-limit", f"{60 * minutes:.0f}s", "--seed", str(SEARCH_SEED)]
        command += ["--storage-path", folder, "--name", "run"]
        command += ["--wandb", "off", "--no-report", "--plain"]
        started = time.time()
        subprocess.run(command, check=True)
        seconds = round(time.time() - started, 1)
        run = Path(folder) / "run"
        row = {"what": "search", "agent": agent, "env": env, "minutes": minutes, "seconds": seconds}
        if agent == AUTO:
            spec = yaml.safe_load((run / "run.yaml").read_text())["spec"]
            run = rltune.open(run).path
            row |= {"what": AUTO, "agent": run.name, "budgets": spec["budgets"]}
        return {**row, **named(run), "when": time.strftime("%Y-%m-%d")}


# ------------------------------------------------------------------------------------------ tests


def tests(results: Path) -> Iterator[dict[str, Any]]:
    """Yield the trainings that are missing: the first seed of everyone, then the second."""
    keys = ("by", "agent", "env", "seed")
    done = {tuple(row[key] for key in keys) for row in rows(results, "test")}
    budgets = {row["env"]: row["budgets"] for row in rows(results, AUTO)}
    for seed in SEEDS:
        for row in [*rows(results, AUTO), *rows(results, "search")]:
            agent, env = row["agent"], row["env"]
            job = {"what": "test", "by": row["what"], "agent": agent, "env": env, "seed": seed}
            if tuple(job[key] for key in keys) not in done:
                yield {**job, "budget": budgets[env][agent], "config": row["config"]}


def test(results: Path, at_once: int) -> None:
    """Train everyone on fresh seeds."""
    with ThreadPoolExecutor(at_once) as pool:
        for row in pool.map(partial(in_process, __file__), tests(results)):
            row.pop("config")
            append(results, row)
            print(*(row[key] for key in ("by", "agent", "env", "seed", "score")), flush=True)


# ----------------------------------------------------------------------------------------- tables


def tested(results: Path, env: str) -> dict[tuple[str, str], list[float]]:
    """Return the scores on fresh seeds by who named the configuration, and its agent."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows(results, "test"):
        if row["env"] == env:
            value = -math.inf if row["score"] is None else row["score"]
            found.setdefault((row["by"], row["agent"]), []).append(value)
    return found


def table(results: Path) -> None:
    """Print a row an environment: what `auto` named and the best search; then all searches."""
    from rltune.stats.estimates import bootstrap_interval, iqm

    scores = {env: tested(results, env) for env in ENVS}
    scores = {env: found for env, found in scores.items() if len({by for by, _ in found}) == 2}
    heading(
        ["environment", "auto names", "its return", "the best by itself", "its return", "right"]
    )
    for env, found in scores.items():
        ours = next(key for key in found if key[0] == AUTO)
        alone = {agent: values for (by, agent), values in found.items() if by == "search"}
        best = max(alone, key=lambda agent: iqm(alone[agent]))
        low, high = bootstrap_interval(alone[best])
        reached = iqm(found[ours])
        right = "yes" if ours[1] == best else "in its interval" if reached >= low else "no"
        cells = [env, ours[1], f"{reached:.1f}"]
        line([*cells, best, f"{iqm(alone[best]):.1f} [{low:.1f}, {high:.1f}]", right])
    print()
    agents = sorted({agent for found in scores.values() for by, agent in found if by == "search"})
    heading(["environment", *agents])
    for env, found in scores.items():
        cells = [env]
        for agent in agents:
            values = found.get(("search", agent))
            cells.append("" if values is None else f"{iqm(values):.1f}")
        line(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("search", "test", "table", "one"))
    parser.add_argument("job", nargs="?", type=json.loads)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of a search for one agent")
    parser.add_argument("--env", nargs="+", default=list(ENVS), help="search these alone")
    parser.add_argument("--at-once", type=int, default=2, help="trainings at a time")
    args = parser.parse_args()
    if args.what == "search":
        search(args.results, args.minutes, args.env)
    elif args.what == "test":
        test(args.results, args.at_once)
    elif args.what == "table":
        table(args.results)
    else:
        print(json.dumps({**args.job, **scored(args.job, args.job["config"])}))


if __name__ == "__main__":
    main()
