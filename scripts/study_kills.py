"""Crash testing on one machine: kill rltune at random moments, and check whether anything is lost.

    python scripts/study_kills.py run --kills 200   # resumable: docs/benchmarks/kills.jsonl

Each kill is a SIGKILL to the process, or to all of its processes, at a random time during a
command: run, resume, train, report, export. After each kill every file of the run is read: tables,
study, checkpoints, answers, pages. A search or a training that was killed is resumed, and killed
again, until it ends; then its decisions and results must equal those of an undisturbed one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from json_lines import append, read

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "benchmarks" / "kills.jsonl"
RLTUNE = [sys.executable, "-m", "rltune"]
QUIET = ["--plain", "--wandb", "off"]
SMALL = ["--n-envs", "4", "--n-steps", "64", "--batch-size", "128"]
# With one trial at a time, a search on a CPU makes the same decisions in every run.
RUN = ["run", "ppo", "--env", "CartPole-v1", "--trials", "8", "--budget", "4096", "--seed", "3",
       "--evaluations", "4", "--eval-episodes", "3", "--finalists", "2", "--test-seeds", "2",
       "--concurrency", "1", "--no-report", *QUIET]  # fmt: skip
TRAIN = ["train", "ppo", "--env", "CartPole-v1", "-n", "40960", "--eval-freq", "4096",
         "--eval-episodes", "3", *SMALL, *QUIET]  # fmt: skip
ENDS = {".html": b"</html>", ".png": b"IEND\xaeB`\x82"}
DECIDED = ["trial", "state", "objective", "env_steps"]
LEARNED = ["trial", "seed", "iteration", "env_steps", "mean_reward", "eval_return"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("--kills", type=int, default=200)
    args = parser.parse_args()
    if args.what == "table":
        table()
        return
    rows = read(RESULTS)
    with tempfile.TemporaryDirectory(prefix="rltune-kills-") as folder:
        study = Study(Path(folder))
        while sum(row["killed"] for row in rows) < args.kills:
            number = len(rows)
            rows.append({"start": number, **study.kill(random.Random(number))})
            append(RESULTS, rows[-1])
            print(rows[-1], flush=True)


class Study:
    """An undisturbed search and training, and those that are killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.whole: dict[str, Path] = {}
        self.seconds: dict[str, float] = {}
        for kind, command in (("run", RUN), ("train", TRAIN)):
            started = time.monotonic()
            self._call([*command, "--name", "whole", "--storage-path", str(folder / kind)])
            self.seconds[kind] = time.monotonic() - started
            self.whole[kind] = folder / kind / "whole"
        started = time.monotonic()
        self._call(["report", str(self.whole["run"])])
        self.seconds["report"] = time.monotonic() - started
        self.seconds["export"] = self.seconds["report"] / 2
        self.underway: dict[str, Path] = {}
        self.killed: Counter[str] = Counter()  # of those underway

    def _call(self, words: list[str]) -> None:
        subprocess.run([*RLTUNE, *words], check=True, capture_output=True, cwd=self.folder)

    def kill(self, rng: random.Random) -> dict[str, Any]:
        """Start a command, kill it, and return the errors found afterwards."""
        what = rng.choices(["run", "train", "report", "export"], [5, 3, 1, 1])[0]
        words, path, did = self._command(what)
        process = subprocess.Popen(
            [*RLTUNE, *words], cwd=self.folder, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        # From the beginning on, and often near the end, where files are put in place.
        after = rng.uniform(0, 1.05) * self.seconds[what]
        everything = rng.random() < 0.5
        try:
            output, _ = process.communicate(timeout=after)
            killed = False
        except subprocess.TimeoutExpired:
            send = os.killpg if everything else os.kill
            send(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            killed = True
        wrong = list(check(path)) if path.exists() else []
        if not killed and process.returncode:
            wrong.append(f"{did} ended with {process.returncode}: {output.decode()[-1500:]}")
        row = {"did": did, "after": round(after, 2), "killed": killed, "all": everything}
        if what in ("run", "train"):
            wrong += self._go_on(what, path, killed)
        return {**row, "wrong": wrong}

    def _command(self, what: str) -> tuple[list[str], Path, str]:
        if what == "report":
            return ["report", str(self.whole["run"])], self.whole["run"], what
        if what == "export":
            target = ["--to", "zoo"]
            return ["export", str(self.whole["run"]), *target], self.whole["run"], what
        path = self.underway.get(what)
        if path is not None and (path / "run.yaml").exists():
            report = ["--no-report"] if what == "run" else []
            return ["resume", str(path), "--plain", *report], path, f"resume ({what})"
        name = f"{what}-{time.time():.0f}"
        self.underway[what] = self.folder / what / name
        command = RUN if what == "run" else TRAIN
        storage = ["--name", name, "--storage-path", str(self.folder / what)]
        return [*command, *storage], self.underway[what], what

    def _go_on(self, what: str, path: Path, killed: bool) -> Iterator[str]:
        """Check a run that has ended; forget one that wrote nothing."""
        if killed:
            self.killed[what] += 1
            return
        del self.underway[what]
        yield from differences(what, path, self.whole[what])
        print(f"{what} ended after {self.killed.pop(what, 0)} kills", flush=True)
        shutil.rmtree(path)


def check(run: Path) -> Iterator[str]:
    """Yield the files of a run directory that can't be read."""
    import rltune
    import torch
    import yaml

    for file in sorted(run.rglob("*")):
        if not file.is_file() or file.name.startswith("."):
            continue
        try:
            if file.suffix == ".yaml":
                yaml.safe_load(file.read_text())
            elif file.suffix == ".json":
                json.loads(file.read_text())
            elif file.suffix == ".pt":
                torch.load(file, weights_only=True)
            elif file.suffix in ENDS and not file.read_bytes().rstrip().endswith(ENDS[file.suffix]):
                yield f"{file.relative_to(run)} is cut off"
            elif file.name == "study.db":
                with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as database:
                    (said,) = database.execute("PRAGMA integrity_check").fetchone()
                    if said != "ok":
                        yield f"study.db: {said}"
        except Exception as error:
            yield f"{file.relative_to(run)}: {type(error).__name__}: {error}"
    if not (run / "run.yaml").exists():
        return
    try:
        opened = rltune.open(run)
        opened.trials()
        opened.episodes()
        for (trial, seed), rows in opened.history().groupby(["trial", "seed"]):
            if list(rows["iteration"]) != list(range(1, len(rows) + 1)):
                yield f"history of trial {trial}, seed {seed}: {list(rows['iteration'])}"
    except Exception as error:
        yield f"the run: {type(error).__name__}: {error}"


def differences(what: str, path: Path, whole: Path) -> Iterator[str]:
    """Yield the differences between a run and the undisturbed one."""
    import pandas as pd
    import rltune

    one, other = rltune.open(path), rltune.open(whole)
    tables = [("history", one.history()[LEARNED], other.history()[LEARNED])]
    if what == "run":
        tables.append(("trials", one.trials()[DECIDED], other.trials()[DECIDED]))
    for name, mine, theirs in tables:
        try:
            pd.testing.assert_frame_equal(mine, theirs)
        except AssertionError as error:
            yield f"{name} differs: {str(error).splitlines()[0]}"


def table() -> None:
    """Print how often each command was killed, and the errors found."""
    rows = read(RESULTS)
    for did in sorted({row["did"] for row in rows}):
        these = [row for row in rows if row["did"] == did]
        wrong = [fault for row in these for fault in row["wrong"]]
        killed = sum(row["killed"] for row in these)
        print(f"| `{did}` | {len(these)} | {killed} | {len(wrong)} |", *wrong[:3])


if __name__ == "__main__":
    main()
