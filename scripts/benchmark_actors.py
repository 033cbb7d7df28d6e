"""Benchmark actors: how collection scales, what messages cost, and where it would saturate.

    python scripts/benchmark_actors.py steps      # env steps per second with 0 to 4 actors
    python scripts/benchmark_actors.py messages   # what a call of the replay server costs
    python scripts/benchmark_actors.py server     # what one replay server moves in a second
    python scripts/benchmark_actors.py simulate   # 1 to 64 actors, from the costs measured above
    python scripts/benchmark_actors.py table      # the tables of docs/benchmarks/actors.md
    python scripts/benchmark_actors.py picture    # docs/images/actors.png
    python scripts/benchmark_actors.py all        # all of these

Each measurement is a row of docs/benchmarks/actors.jsonl; one that is there is not taken again.
With --shared, rows say that other programs ran meanwhile; without it, they are taken anew, and
count instead. A quiet machine needs about seven minutes for all.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from json_lines import append, read
from speed import machine

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "benchmarks" / "actors.jsonl"
PICTURE = ROOT / "docs" / "images" / "actors.png"
# What makes a measurement the same one.
KEYS = ("what", "setting", "kind", "actors", "call", "size", "n_envs", "floats", "rows", "clients")
Row = dict[str, Any]
Job = tuple[Row, Callable[[], Row]]


def key_of(row: Row) -> tuple[Any, ...]:
    """Return what a measurement is of, whenever it was taken."""
    return tuple(row.get(name) for name in KEYS)


def best(rows: list[Row]) -> list[Row]:
    """Return one row for each measurement: the last of a quiet machine, or else the last."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        before = found.get(key_of(row))
        if before is None or before["shared"] or not row["shared"]:
            found[key_of(row)] = row
    return list(found.values())


def steps_jobs() -> Iterator[Job]:
    """Yield the trainings; before them, what they take where steps take no time."""
    from scaling import steps

    yield {"what": "slept"}, steps.slept
    yield {"what": "free"}, steps.free_cores
    for name in steps.SETTINGS:
        for n_envs in (1, 4):
            key = {"what": "costs", "setting": name, "n_envs": n_envs}
            yield key, lambda n=name, k=n_envs: steps.costs(n, k)  # type: ignore[misc]
    for kind in ("waiting", "computing"):
        for name, setting in steps.SETTINGS.items():
            for actors in setting.computing if kind == "computing" else setting.counts:
                key = {"what": "steps", "setting": name, "kind": kind, "actors": actors}
                yield (
                    key,
                    lambda n=name, a=actors, k=kind: steps.measure(n, a, k == "computing"),  # type: ignore[misc]
                )


def messages_jobs() -> Iterator[Job]:
    """Yield the calls of a server."""
    from scaling import messages

    for name, size, shape, rows, call in messages.calls():
        key = {"what": "message", "call": name, "size": size, "rows": rows}
        yield key, lambda s=shape, c=call: messages.message(s, c)  # type: ignore[misc]


def server_jobs() -> Iterator[Job]:
    """Yield item sizes, rows of a fragment and numbers of clients."""
    from scaling import messages

    for floats in messages.ITEMS:
        for rows in (1, 64) if floats < 100_000 else (1, 8):
            for clients in (1, 2):
                key = {"what": "server", "floats": floats, "rows": rows, "clients": clients}
                yield (
                    key,
                    lambda f=floats, r=rows, c=clients: messages.throughput(f, r, c),  # type: ignore[misc]
                )


JOBS = {"steps": steps_jobs, "messages": messages_jobs, "server": server_jobs}


def run(what: str, results: Path, shared: bool, only: list[str]) -> None:
    """Take the measurements that the file does not have."""
    from rltune.cluster.session import ray_session

    done = {key_of(row) for row in read(results) if shared or not row["shared"]}
    with ray_session():
        for key, measure in JOBS[what]():
            words = " ".join(str(value) for value in key.values())
            if key_of(key) in done or (only and not any(word in words for word in only)):
                continue
            load, began = os.getloadavg()[0], time.perf_counter()
            row = {**key, **measure(), "shared": shared, "load": round(load, 1)}
            row |= {"took_s": round(time.perf_counter() - began, 1), "when": time.strftime("%F")}
            row |= {"processor": machine.processor(), "cores": os.cpu_count()}
            append(results, {**row, "versions": machine.versions()})
            print(words, {k: v for k, v in row.items() if k not in key}, flush=True)


def simulate(results: Path) -> None:
    """Print how simulated trainings compare with measured ones, and how they saturate."""
    from scaling import tables

    rows = best(read(results))
    print(tables.errors(rows))
    print(tables.saturation(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=(*JOBS, "simulate", "table", "picture", "all"))
    parser.add_argument("--shared", action="store_true", help="other programs run on this machine")
    parser.add_argument("--only", nargs="+", default=[], help="those whose name has one of these")
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    for what in JOBS:
        if args.what in (what, "all"):
            run(what, args.results, args.shared, args.only)
    if args.what in ("simulate", "all"):
        simulate(args.results)
    if args.what in ("table", "all"):
        from scaling import tables

        print(tables.measured(best(read(args.results))))
    if args.what in ("picture", "all"):
        from scaling import tables

        tables.picture(best(read(args.results)), PICTURE)


if __name__ == "__main__":
    main()
