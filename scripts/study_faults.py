"""Fault injection on a real cluster: break it during a search, and count what was lost.

    sudo scripts/study_faults.py one worker          # one fault, into docs/benchmarks/faults.jsonl
    sudo scripts/study_faults.py one                 # each of them once
    sudo scripts/study_faults.py soak --minutes 120  # a random one every minute

The cluster is that of scripts/namespace_cluster, three nodes with one CPU each, which this script
starts and removes. A search of ten trials, none of which is stopped early, must end with these ten,
each with every row of its history exactly once. It may repeat only the work after a trial's last
checkpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "benchmarks" / "faults.jsonl"
CLUSTER = ROOT / "scripts" / "namespace_cluster"
STATE = Path(os.environ.get("STATE", "/var/tmp/rltune-namespaces"))
SHARED = STATE / "shared"
WORKERS = (2, 3)
AWAY = 60  # seconds that a link or a storage is gone


def cluster(*words: str, check: bool = True) -> str:
    """Call the script, and return its output."""
    done = subprocess.run([CLUSTER, *words], capture_output=True, text=True, check=False)
    if check and done.returncode:
        sys.exit(f"namespace_cluster {' '.join(words)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def on(node: int, script: str, check: bool = True) -> str:
    """Run a shell script on a node."""
    return cluster("exec", str(node), "bash", "-c", script, check=check)


# --------------------------------------------------------------------------------------- faults


def worker(node: int) -> None:
    """A trial's process is killed."""
    on(node, "pkill -9 -o -f '^ray::.*Trainable'", check=False)


def raylet(node: int) -> None:
    """All of Ray on a node is killed."""
    cluster("kill-raylet", str(node), check=False)


def link(node: int) -> None:
    """A node's network is cut for a minute."""
    cluster("cut", str(node))
    time.sleep(AWAY)
    cluster("mend", str(node))


def spot(node: int) -> None:
    """A node gets a notice that it will be taken away, and is, some seconds later."""
    find = (
        "import ray; ray.init(address='auto', log_to_driver=False, logging_level='error'); "
        f"print(*[n['NodeID'] for n in ray.nodes() if n['Alive'] and "
        f"n['NodeManagerAddress'] == '10.42.0.{node}'])"
    )
    name = on(1, f'python -c "{find}"', check=False).split()
    if name:
        reason = "--reason DRAIN_NODE_REASON_PREEMPTION --reason-message spot"
        on(1, f"ray drain-node --node-id {name[-1]} {reason} --deadline-remaining-seconds 10",
           check=False)  # fmt: skip
        time.sleep(10)
    raylet(node)


def storage(node: int) -> None:
    """A node does not see the shared storage for a minute."""
    on(node, f"mount -t tmpfs -o ro,size=4k tmpfs {SHARED}")
    time.sleep(AWAY)
    on(node, f"umount -l {SHARED}")


def full(node: int) -> None:
    """A node can't write checkpoints for a minute, because the disk is full."""
    trials = f"{newest_run()}/trials"
    on(node, f"mount -t tmpfs -o size=64k tmpfs {trials}")
    on(node, f"head -c 1M /dev/zero > {trials}/ballast", check=False)
    time.sleep(AWAY)
    on(node, f"umount -l {trials}")


def newest_run() -> Path:
    """Return the directory of the latest run."""
    return max((SHARED / "runs").iterdir(), key=lambda run: run.stat().st_ctime)


def head(node: int) -> None:
    """The head's control process is killed, which ends the search; then Ray is started again."""
    cluster("restart-head")


FAULTS: dict[str, Callable[[int], None]] = {
    fault.__name__: fault for fault in (worker, raylet, link, spot, storage, full, head)
}


# --------------------------------------------------------------------------------------- searches


class Search:
    """A search on the cluster, whose driver runs on the head."""

    def __init__(self, name: str, trials: int, budget: int) -> None:
        self.name, self.trials = name, trials
        self.log = STATE / f"{name}.log"
        self.words = [
            "search", "--name", name, "--trials", str(trials), "--budget", str(budget),
            "--scheduler", "none", "--no-report", "--no-tournament", "--retries", "1000",
        ]  # fmt: skip
        self.resumes = 0
        self.process = self._start([CLUSTER, *self.words])

    def _start(self, command: list[Any]) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def wait_for(self, pattern: str, seconds: float) -> None:
        """Wait until a line of the log matches."""
        until = time.monotonic() + seconds
        while not re.search(pattern, self.log.read_text(errors="replace")):
            if time.monotonic() > until or not self.running:
                sys.exit(f"{self.name}: no {pattern!r} in {self.log.read_text()[-2000:]}")
            time.sleep(0.5)

    def goes_on(self) -> bool:
        """Return whether the search is unfinished; a search ended by a fault is resumed."""
        if not self.running and self.process.returncode:
            self.resume()
        return self.running

    def finish(self, seconds: float) -> None:
        """Wait for the end of the search; a search ended by a fault is resumed."""
        until = time.monotonic() + seconds
        while self.process.wait(max(1.0, until - time.monotonic())):
            self.resume()

    def resume(self) -> None:
        """Resume a search that has died."""
        self.resumes += 1
        if self.resumes > 100:  # twenty of a soak's faults take the head, and the search with it
            sys.exit(f"{self.name} does not end: {self.log.read_text()[-3000:]}")
        run = f"cd /tmp/mine && exec python -m rltune resume {SHARED}/runs/{self.name}"
        command = f"{run} --plain --no-report --address auto"
        self.process = self._start([CLUSTER, "exec", "1", "bash", "-c", command])

    def outcome(self) -> dict[str, Any]:
        """Return the outcome; everything that is not as it must be is listed under "wrong"."""
        import rltune

        run = rltune.open(SHARED / "runs" / self.name)
        trials, history = run.trials(), run.history()
        wrong = []
        if sorted(trials["trial"]) != list(range(self.trials)):
            wrong.append(f"trials {sorted(trials['trial'])}")
        if set(trials["state"]) != {"COMPLETE"}:
            wrong.append(f"states {trials['state'].value_counts().to_dict()}")
        for (trial, seed), rows in history.groupby(["trial", "seed"]):
            if list(rows["iteration"]) != [1, 2, 3, 4]:
                wrong.append(f"trial {trial} seed {seed}: {list(rows['iteration'])}")
        for trial in range(self.trials):
            if not (run.path / "trials" / str(trial) / "checkpoint.pt").exists():
                wrong.append(f"trial {trial} has no checkpoint")
        log = self.log.read_text(errors="replace")
        return {
            "trials": len(trials),
            "retries": int(trials["retries"].sum()),
            "resumes": self.resumes,
            "tracebacks": re.findall(r"Traceback \(most recent call last\):\n(?:\s.*\n)*(.*)", log),
            "wrong": wrong,
        }


def note(result: dict[str, Any]) -> None:
    result = {**result, "when": time.strftime("%Y-%m-%d")}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with RESULTS.open("a") as file:
        file.write(json.dumps(result) + "\n")
    print(json.dumps(result), flush=True)


def one(fault: str, rng: random.Random) -> None:
    """Inject one fault, some seconds after the trials have begun."""
    cluster("nodes", "3", "240")
    search = Search(f"{fault}-{time.time():.0f}", trials=10, budget=40_000)
    search.wait_for("env steps/s|trial .* finished", 180)
    time.sleep(rng.uniform(0, 15))
    started, node = time.monotonic(), rng.choice(WORKERS)
    FAULTS[fault](node)
    search.finish(900)
    took = round(time.monotonic() - started)
    note({"fault": fault, "node": node, "seconds_to_the_end": took, **search.outcome()})


def drivers(name: str) -> list[Any]:
    """Return the processes that drive a search: one, or none."""
    import psutil

    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if words[1:3] == ["-m", "rltune"] and any(name in word for word in words):
            found.append(process)
    return found


def soak(minutes: float, trials: int, rng: random.Random) -> None:
    """Inject a random fault every minute until the time is up, during one search after another."""
    cluster("nodes", "3", "240")
    until, faults, outcomes = time.monotonic() + 60 * minutes, [], []
    samples: dict[int, list[tuple[int, int]]] = {}  # each driver's MB and open files
    while time.monotonic() < until:
        search = Search(f"soak-{time.time():.0f}", trials=trials, budget=40_000)
        search.wait_for("env steps/s|trial .* finished", 180)
        while time.monotonic() < until and search.goes_on():
            fault, node, begun = rng.choice(list(FAULTS)), rng.choice(WORKERS), time.monotonic()
            FAULTS[fault](node)
            faults.append(fault)
            while time.monotonic() < begun + 60 and search.goes_on():
                time.sleep(5)
            for driver in drivers(search.name):
                sample = driver.memory_info().rss // 2**20, driver.num_fds()
                samples.setdefault(driver.pid, []).append(sample)
            print(f"{fault} on node {node}", list(samples.values())[-1:], flush=True)
        search.finish(3600)
        outcomes.append(search.outcome())
        print(outcomes[-1], flush=True)
    note({"fault": "soak", "minutes": minutes, "faults": faults, "searches": outcomes,
          "memory_mb_and_files": list(samples.values())})  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["one", "soak"])
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=", ".join(FAULTS))
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--trials", type=int, default=200, help="trials of each search of a soak")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    cluster("up")
    try:
        if args.what == "soak":
            soak(args.minutes, args.trials, rng)
        else:
            for fault in args.faults or FAULTS:
                one(fault, rng)
    finally:
        cluster("down", check=False)


if __name__ == "__main__":
    main()
