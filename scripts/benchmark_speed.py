"""Benchmark speed: trainings against other libraries', whole searches, and where the time goes.

    pip install stable-baselines3==2.9.2 sb3-contrib==2.9.2 rl_zoo3==2.9.2
    python scripts/benchmark_speed.py run        # trainings; resumable: continues where it stopped
    python scripts/benchmark_speed.py held-out   # those of docs/benchmarks/held-out.md: once
    python scripts/benchmark_speed.py profile    # where rltune's CPU time goes, and the floor
    python scripts/benchmark_speed.py searches   # five minutes each; nothing else may run
    python scripts/benchmark_speed.py thresholds # until a trial has the threshold's return
    python scripts/benchmark_speed.py trials     # trials that train nothing; nothing else may run
    python scripts/benchmark_speed.py table      # ratios, nothing but ratios

A slice is a part of a training with rl-zoo3's settings, in a process of its own with one thread,
pinned to a core: env steps per CPU-second, stepping, acting, memory, updates and bookkeeping
included, without imports. The sides take turns, and begin in turn; both have the same seed. A ratio
is the median of the pairs', with the interval that the sign test gives (the range, of five pairs).
`--blas` chooses the kernels of the products, which decide much on some processors; each figure says
which it was. Slices are stored in docs/benchmarks/speed.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from json_lines import append, read
from speed import machine
from speed.rows import HELD_OUT, ROWS, Row, row_named
from speed.tables import Record, print_profiles, print_tables, ratio

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "benchmarks" / "speed.jsonl"
SLICES = 5
MINUTES = 5.0
# What makes a measurement the same one; "engine" is what was asked for, "took" what was used.
KEYS = (
    *("what", "row", "window", "tuner", "agent", "env", "minutes", "repetition"),
    *("blas", "engine", "state"),
)


class Store:
    """The file of measurements: asks for those that it does not have."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.results: Path = args.results
        self.about = {"blas": args.blas, "engine": args.engine, "state": args.state}

    def has(self, key: Record) -> bool:
        wanted = {**self.about, **key}
        return any(all(row.get(k) == wanted.get(k) for k in KEYS) for row in read(self.results))

    def add(self, key: Record, found: Record) -> None:
        record = {
            **self.about, **key, **found, "when": time.strftime("%Y-%m-%d"),
            "processor": machine.processor(), "versions": machine.versions(),
        }  # fmt: skip
        append(self.results, record)


def measured(job: Record, args: argparse.Namespace) -> Record | None:
    """Do a job in a process of its own; None: it failed, and said why."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, __file__, "one", json.dumps(job)],
            env=machine.environment(args.blas, Path(folder)),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode:
        print(f"{job} failed:\n{done.stderr[-2000:]}", file=sys.stderr, flush=True)
        return None
    found: Record = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def one(job: Record) -> Record:
    """Do a job, in the environment that its parent made."""
    if job["what"] == "trials":
        from speed.searches import trivial

        return trivial(job["tuner"])
    row = row_named(job["row"])
    if job.get("env_steps"):
        row = row.shrunk(job["env_steps"])
    machine.pin(job["core"])
    if job["what"] == "profile":
        from speed.profiles import profile

        return profile(row, job["seed"], job["engine"])
    from speed.slices import TRAIN

    engine = job["engine"] if job["side"] == "rltune" else None
    return {**TRAIN[job["side"]](row, job["seed"], engine), "kernels": machine.kernels()}


# ------------------------------------------------------------------------------------- the commands


def chosen(rows: Iterable[Row], args: argparse.Namespace) -> list[Row]:
    return [row for row in rows if not args.only or any(word in row.name for word in args.only)]


def run(rows: Iterable[Row], args: argparse.Namespace) -> None:
    """Time the slices that the file does not have: a pair of each row, then the next of each."""
    store, rows = Store(args), chosen(rows, args)
    for number in range(args.slices):
        for row in rows:
            part = row.shrunk(args.env_steps) if args.env_steps else row
            window = [part.first, part.last]
            key = {"what": "slice", "row": row.name, "window": window, "repetition": number}
            if store.has(key):
                continue
            sides = ("rltune", row.against)
            job = {"what": "slice", "row": row.name, "seed": number, "engine": args.engine,
                   "core": args.core, "env_steps": args.env_steps}  # fmt: skip
            pair = {
                side: measured({**job, "side": side}, args)
                for side in (sides if number % 2 == 0 else sides[::-1])
            }
            ours, theirs = (pair[side] for side in sides)
            if ours is None or theirs is None:
                continue
            took = ours.pop("engine")
            found = {"took": took, "kernels": ours.pop("kernels"), "ours": ours, "theirs": theirs}
            theirs.pop("kernels")
            store.add(key, found)
            if not args.quiet:
                print(f"{row.name}, {took}, {args.blas}: {ratio(found):.2f} x", flush=True)


def profile(args: argparse.Namespace) -> None:
    store = Store(args)
    for row in chosen(ROWS, args):
        key = {"what": "profile", "row": row.name, "repetition": 0}
        if row.against == "sb3" and not store.has(key):
            job = {**key, "seed": 0, "engine": args.engine, "core": args.core,
                   "env_steps": args.env_steps}  # fmt: skip
            if found := measured(job, args):
                store.add(key, {"took": found.pop("engine"), **found})
    print_profiles(read(args.results))


def searches(args: argparse.Namespace) -> None:
    """Run whole searches, or with ``thresholds`` those that end at the threshold."""
    from speed import searches as whole

    jobs = whole.threshold_jobs if args.what == "thresholds" else whole.jobs
    store = Store(args)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(machine.environment(args.blas, Path(folder)))
        for job in jobs(args.slices):
            name = f"{job['tuner']} {job['agent']} {job['env']}"
            engine = args.engine if job["tuner"] == "rltune" else None
            key = {**job, "engine": engine, "minutes": args.minutes}
            if store.has(key) or (args.only and not any(word in name for word in args.only)):
                continue
            store.add(key, whole.search(key, args.minutes))
            print(f"{name}, repetition {job['repetition']}: done", flush=True)


def trials(args: argparse.Namespace) -> None:
    store = Store(args)
    for number in range(args.slices):
        for tuner in ("rltune", "tune"):
            key = {"what": "trials", "tuner": tuner, "engine": None, "repetition": number}
            if not store.has(key) and (found := measured(key, args)):
                store.add(key, found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = (
        "run", "held-out", "profile", "searches", "thresholds", "trials", "table", "one",
    )  # fmt: skip
    parser.add_argument("what", choices=commands)
    parser.add_argument("job", nargs="?")
    parser.add_argument("--only", nargs="+", help="rows or searches whose name has one of these")
    parser.add_argument("--slices", type=int, default=SLICES)
    parser.add_argument("--blas", choices=tuple(machine.BLAS), default="stock")
    parser.add_argument("--engine", help="of rltune: auto, torch or numpy; by default not said")
    parser.add_argument(
        "--state", default="after", help="a name of what is measured: before, after"
    )
    parser.add_argument("--core", type=int, default=(os.cpu_count() or 1) - 1)
    parser.add_argument("--env-steps", type=int, help="of a slice; for tests")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of a search")
    parser.add_argument("--quiet", action="store_true", help="print no ratio before the table")
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    if args.what == "one":
        print(json.dumps(one(json.loads(args.job))))
    elif args.what == "run":
        run(ROWS, args)
    elif args.what == "held-out":
        run(HELD_OUT, args)
    elif args.what == "table":
        print_tables(read(args.results))
    else:
        todo = {"profile": profile, "trials": trials}
        todo.update(searches=searches, thresholds=searches)
        todo[args.what](args)


if __name__ == "__main__":
    main()
