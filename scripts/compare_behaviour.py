#!/usr/bin/env python
"""Regression test of behaviour: record small searches and trainings, and compare two recordings.

    python scripts/compare_behaviour.py record DIR             # with the rltune that is installed
    python scripts/compare_behaviour.py compare BEFORE AFTER   # exit 1 where they differ
    python scripts/compare_behaviour.py list                   # what is recorded

Run it before and after a change that must not change behaviour. It uses only rltune's command line
and `rltune.open`. Each search has one worker and a fixed seed. Proposals, decisions, values,
episodes and the answer are compared bit for bit; times, paths, machines and versions are not.
Recorded cases are skipped, so an interrupted recording can be continued. It takes about five
minutes on two cores.

The cost-aware sampler weighs proposals by measured seconds, so only the first three trials
are compared.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

QUICK = "--wandb off --no-report --concurrency 1 --evaluations 3 --eval-episodes 2 --seed 3"
FEW = "--trials 6 --finalists 2 --test-seeds 2"
CARTPOLE = "--env CartPole-v1 --budget 600 --n-envs 2 --n-steps 32 --batch-size 32"
PPO = f"run ppo {CARTPOLE} --net-arch [16] {FEW} {QUICK}"
SPREAD = "-s learning_rate=1e-4..1e-2:log -s gamma=0.9..0.999 -s ent_coef=0..0.01:uniform"
SEARCHES = {
    "agent-ppo": f"{PPO} {SPREAD}",
    "agent-a2c": f"run a2c --env CartPole-v1 --budget 600 --n-envs 2 {FEW} {QUICK}",
    "agent-dqn": f"run dqn --env CartPole-v1 --budget 600 --learning-starts 100 {FEW} {QUICK}",
    "agent-sac": f"run sac --env Pendulum-v1 --budget 500 --learning-starts 100 --net-arch [16] "
    f"--trials 4 --finalists 2 --test-seeds 2 {QUICK}",
    **{
        f"sampler-{name}": f"{PPO} {SPREAD} --sampler {name}"
        for name in ("random", "qmc", "gp", "nsgaii", "grid")
    },
    "sampler-tpe": f"{PPO} {SPREAD} --sampler tpe --sampler-options {{n_startup_trials:\xa02}}",
    "sampler-cmaes": f"{PPO} {SPREAD} --sampler cmaes --sampler-options {{popsize:\xa04}}",
    "sampler-cost-aware": f"{PPO} {SPREAD} --trials 3 --sampler cost-aware",
    **{
        f"scheduler-{name}": f"{PPO} {SPREAD} --trials 9 --no-tournament --scheduler {name} "
        f"--scheduler-options {options}"
        for name, options in {
            "none": "{}",
            "asha": "{min_population:\xa02,\xa0margin:\xa00}",
            "hyperband": "{min_population:\xa02,\xa0margin:\xa00}",
            "median": "{min_population:\xa02,\xa0margin:\xa00,\xa0n_rungs:\xa02}",
        }.items()
    },
    **{
        f"scheduler-{name}": f"{PPO} {SPREAD} --scheduler {name} "
        "--trials 4 --scheduler-options {interval:\xa0200}"
        for name in ("pbt", "pb2")
    },
    "racing": f"{PPO} {SPREAD} --seeds racing "
    "--scheduler-options {min_population:\xa02,\xa0margin:\xa00}",
    "two-objectives": f"{PPO} {SPREAD} --against=-eval_length",
}
SHORT = "-n 1200 --wandb off --eval-freq 400 --eval-episodes 2 --seed 5"
TRAININGS = {
    f"train-{agent}": f"train {agent} --env {env} {SHORT} {more}"
    for agent, env, more in (
        ("a2c", "CartPole-v1", ""),
        ("acer", "CartPole-v1", ""),
        ("dqn", "CartPole-v1", "--learning-starts 200"),
        ("ppo", "CartPole-v1", "--n-steps 64 --n-envs 2"),
        ("trpo", "CartPole-v1", "--n-steps 64 --n-envs 2"),
        ("ddpg", "Pendulum-v1", "--learning-starts 200"),
        ("sac", "Pendulum-v1", "--learning-starts 200"),
        ("td3", "Pendulum-v1", "--learning-starts 200"),
    )
}
CASES = {**TRAININGS, **SEARCHES}
# Columns and keys that measure the machine, or name it.
MEASURED = re.compile(
    r"(.*_)?(time|timestamp|seconds|cpu_time|memory|memory_in_use|node|started|finished|per_second)"
    r"|env_steps_per_second|traceback|checkpoint|warnings"
)


def plain(value: Any) -> Any:
    """Return the value as JSON, with exact floats and without measurements of the machine."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items() if not MEASURED.fullmatch(str(k))}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value.hex() if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return re.sub(r"\d+(\.\d+)? ?(s|min|h)\b|\d+:\d\d(:\d\d)?", "TIME", value)
    return value if value is None or isinstance(value, bool | int) else str(value)


def rows(frame: Any, order: list[str]) -> Any:
    """Return a table's rows in a fixed order; workers may write them in any order."""
    frame = frame[sorted(frame.columns)]
    return plain(frame.sort_values(order, kind="stable").to_dict("records"))


def record_case(case: str, file: Path) -> None:
    """Run one case, and write its decisions."""
    import rltune

    arguments = [word.replace("\xa0", " ") for word in CASES[case].split(" ") if word]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "rltune", *arguments, "--name", "case"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode not in (0, 1):
            raise SystemExit(f"{case}: {' '.join(command)}\n{done.stdout}\n{done.stderr}")
        run = rltune.open(Path(folder) / "runs" / "case")
        found: dict[str, Any] = {
            "history": rows(run.history(), ["trial", "role", "seed", "iteration"]),
            "episodes": rows(run.episodes(), ["trial", "role", "seed", "env_steps"]),
        }
        if case in SEARCHES:
            best = run.path / "best" / "command.txt"
            found |= {
                "trials": rows(run.trials(), ["trial"]),
                "best": plain(run.best),
                "answer": plain(run.answer),
                "command": best.read_text() if best.exists() else None,
            }
    temporary = file.with_suffix(".part")
    temporary.write_text(json.dumps(found, indent=1, sort_keys=True))
    temporary.rename(file)


def difference(before: Any, after: Any, where: str = "") -> str:
    """Return the first difference between the two; empty if there is none."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            if key not in before or key not in after:
                return f"{where}.{key} is only {'after' if key in after else 'before'}"
            if found := difference(before[key], after[key], f"{where}.{key}"):
                return found
        return ""
    if isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            return f"{where} has {len(before)} entries before, {len(after)} after"
        found = (
            difference(a, b, f"{where}[{i}]")
            for i, (a, b) in enumerate(zip(before, after, strict=True))
        )
        return next(filter(None, found), "")
    return "" if before == after else f"{where}: {before!r} before, {after!r} after"


def compare(before: Path, after: Path) -> bool:
    """Print a line per case; return whether all are equal."""
    same = True
    for case in CASES:
        files = before / f"{case}.json", after / f"{case}.json"
        if missing := [str(file) for file in files if not file.exists()]:
            found = f"not recorded: {missing[0]}"
        else:
            found = difference(*(json.loads(file.read_text()) for file in files))
        same = same and not found
        print(f"{case:<22}{found or 'the same'}", flush=True)
    return same


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, folders in (("record", ["folder"]), ("compare", ["before", "after"]), ("list", [])):
        command = commands.add_parser(name)
        for folder in folders:
            command.add_argument(folder, type=Path)
    args = parser.parse_args()
    if args.command == "list":
        print("\n".join(f"{case:<22}rltune {line}" for case, line in CASES.items()))
        return 0
    if args.command == "compare":
        return 0 if compare(args.before, args.after) else 1
    args.folder.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        file = args.folder / f"{case}.json"
        if not file.exists():
            print(case, flush=True)
            record_case(case, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
