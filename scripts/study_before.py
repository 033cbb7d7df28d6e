"""What does a search of five minutes find, against an earlier state of rltune?

    pip install --no-deps --target FOLDER .     # in a checkout of the earlier state
    python scripts/study_before.py run FOLDER   # resumable; nothing else may run on the machine
    python scripts/study_before.py table

The settings are those that docs/benchmarks/held-out.md names for searches: seeds 40 to 42, winners
on seeds 900 to 909. The two states take turns. Both states' winners are trained by the present one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmark_tuners import (
    MINUTES,
    NEVER,
    SLOTS,
    Setting,
    found_by_rltune,
    in_process,
    search_rltune,
    seconds_to,
    shown_returns,
)
from json_lines import append, read
from markdown_tables import heading, line

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "before.jsonl"
SETTINGS = (
    Setting("a2c", "Acrobot-v1", 50_000, -100.0),
    Setting("td3", "Pendulum-v1", 5_000, -200.0),
)
STATES = ("before", "now")
SEARCH_SEEDS = (40, 41, 42)
TEST_SEEDS = range(900, 910)
KEYS = ("what", "state", "agent", "env", "repetition", "seed")


def jobs() -> Iterator[tuple[Setting, dict[str, Any]]]:
    """Yield the searches, everyone in turn."""
    for seed in SEARCH_SEEDS:
        for setting in SETTINGS:
            for state in STATES if seed % 2 == 0 else STATES[::-1]:
                yield setting, {
                    "tuner": "rltune", "state": state, "agent": setting.agent, "env": setting.env,
                    "budget": setting.budget, "repetition": seed,
                }  # fmt: skip


def run(results: Path, before: Path, minutes: float) -> None:
    """Do the searches that are missing, then the trainings of their winners."""
    for setting, job in jobs():
        key = {"what": "search", **job}
        if not is_done(results, key):
            store(results, {**key, **searched(setting, job, before, minutes)})
    for _, job in jobs():
        key = {"what": "search", **job}
        search = next(r for r in read(results) if all(r.get(k) == key.get(k) for k in KEYS))
        tests = [{**key, "what": "test", "seed": seed} for seed in TEST_SEEDS]
        asked = [json.dumps([search, test]) for test in tests if not is_done(results, test)]
        if search["config"] is None:
            continue
        with ThreadPoolExecutor(SLOTS) as pool:
            for row in pool.map(in_process, asked):
                store(results, row)


def searched(setting: Setting, job: dict[str, Any], before: Path, minutes: float) -> dict[str, Any]:
    """Search with one of the states."""
    with (
        tempfile.TemporaryDirectory() as name,
        path_of(before if job["state"] == "before" else None),
    ):
        folder, started = Path(name), time.time()
        search_rltune(setting, job["repetition"], folder, started + 60 * minutes)
        seconds = time.time() - started
        found = found_by_rltune(folder, started)
    return {"minutes": minutes, "seconds": round(seconds, 1), **found}


@contextlib.contextmanager
def path_of(state: Path | None) -> Iterator[None]:
    """Have Python processes import the earlier state."""
    own = os.environ.get("PYTHONPATH")
    if state is not None:
        os.environ["PYTHONPATH"] = str(state.absolute())
    try:
        yield
    finally:
        os.environ.pop("PYTHONPATH", None)
        if own is not None:
            os.environ["PYTHONPATH"] = own


def is_done(results: Path, wanted: dict[str, Any]) -> bool:
    return any(all(row.get(k) == wanted.get(k) for k in KEYS) for row in read(results))


def store(results: Path, row: dict[str, Any]) -> None:
    append(results, row)
    print(*(row.get(key) for key in KEYS), flush=True)


def table(results: Path) -> None:
    """Print a row a setting and state."""
    rows = read(results)
    found = ("trials", "seconds to the threshold", "best trial", "test return")
    heading(["setting", "state", "env steps a second", *found])
    for setting in SETTINGS:
        for state in STATES:
            mine = [
                r for r in rows if (r["agent"], r["env"]) == setting[:2] and r["state"] == state
            ]
            searches = [row for row in mine if row["what"] == "search"]
            scores: dict[int, list[float]] = {}
            for row in mine:
                if row["what"] == "test":
                    scores.setdefault(row["repetition"], []).append(row["score"])
            reached = [seconds_to(setting.threshold, row["trials"]) for row in searches]
            best = [
                max(t["value"] for t in r["trials"] if t["value"] is not None) for r in searches
            ]
            cells = [
                f"{setting.agent} on {setting.env}, {setting.budget:,}, {setting.threshold:g}",
                state,
                f"{median(row['env_steps'] / row['seconds'] for row in searches):,.0f}",
                ", ".join(str(len(row["trials"])) for row in searches),
                ", ".join(f"{at:.0f}" if at < NEVER else "never" for at in reached),
                ", ".join(f"{value:.1f}" for value in best),
                shown_returns([fmean(values) for values in scores.values()]),
            ]
            line(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("before", nargs="?", type=Path, help="folder with the earlier state")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--minutes", type=float, default=MINUTES)
    args = parser.parse_args()
    if args.what == "table":
        table(args.results)
    elif args.before is None or not (args.before / "rltune").is_dir():
        parser.error("name the folder that the earlier state is installed in")
    else:
        run(args.results, args.before, args.minutes)


if __name__ == "__main__":
    main()
