"""Benchmark what a search costs beside its trainings.

    python scripts/benchmark_driver.py           # 100 trivial trials, and resuming 500 trials
    python scripts/benchmark_driver.py --scale   # 2,000 trials: does the overhead grow?
    python scripts/benchmark_driver.py --against-tune   # and 50 trivial trials of plain Ray Tune
    python scripts/benchmark_driver.py --simulate 500   # so many workers, by computation

The trials of the first three train nothing (tests/tuner/toy.py), so the time is that of Ray Tune,
the study and the history. Ray is started before the clock.

The simulation is a search without Ray: the driver, the study, TPE, ASHA and the history are those
of a search, workers and their results are computed. Each worker reports once a second by the clock
of the simulation. What the driver takes for a second of it has to be less than a second.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import math
import os
import platform
import resource
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

if TYPE_CHECKING:
    from rltune.execution.messages import Result, Task

TOYS = Path(__file__).resolve().parent.parent / "tests" / "tuner"
# Two dimensions: with one, thousands of trials would soon have tried every good value.
SPACE = {"space": {"quality": {"uniform": [0.0, 1.0]}, "at": {"int": [1, 1000]}}}
OPTIONS = {"wandb": "off", "report": False, "screen": "none", "tournament": False}
SECONDS = 60  # of a simulated trial that runs its whole budget
BLOCK = int(
    os.environ.get("BLOCK", "1000")
)  # trials of the simulation that a line of its table is about


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", action="store_true", help="run 2,000 trials instead")
    parser.add_argument("--against-tune", action="store_true", help="plain Ray Tune as well")
    parser.add_argument("--simulate", type=int, metavar="WORKERS", help="simulate so many workers")
    parser.add_argument("--trials", type=int, default=10_000, help="of the simulation")
    args = parser.parse_args()
    names = ("rltune", "ray", "optuna")
    print(f"{time.strftime('%Y-%m-%d')}; " + ", ".join(f"{n} {version(n)}" for n in names))
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}", flush=True)
    if args.simulate:
        simulate(args.simulate, args.trials)
    else:
        trivial(args.scale, args.against_tune)


# ------------------------------------------------------------------------------------- on Ray Tune


def trivial(scale: bool, against_tune: bool) -> None:
    """Run trivial trials on Ray."""
    os.chdir(TOYS)
    sys.path.insert(0, str(TOYS))
    import rltune
    from rltune.cluster.session import ray_session

    with tempfile.TemporaryDirectory() as folder, ray_session():

        def search(name: str, trials: int) -> float:
            started = time.time()
            rltune.Search(
                "toy:ToyAgent", "toy:ToyEnv", SPACE, trials=trials, name=name, budget=90,
                storage_path=folder, **OPTIONS,
            ).run()  # fmt: skip
            return time.time() - started

        search("warm-up", 4)
        if scale:
            search("scale", 2000)
            ends = sorted(rltune.open(Path(folder) / "scale").trials()["finished"])
            print(f"the first 200 trials: {(ends[200] - ends[0]) / 200 * 1000:.0f} ms each")
            print(f"the last 200 trials: {(ends[-1] - ends[-201]) / 200 * 1000:.0f} ms each")
            return
        hundred = search("hundred", 100)
        print(f"100 trivial trials through the whole path: {hundred:.1f} s", flush=True)
        if against_tune:
            plain_tune(4)
            stock = 2 * plain_tune(50)
            print(f"plain Ray Tune, 100 trivial trials: {stock:.1f} s, {stock / hundred:.1f} times")
            return
        search("many", 500)
        started = time.time()
        first: list[float] = []
        from rltune.search.driver import Driver

        begin = Driver.on_result

        def on_result(driver: Driver, *args: Any) -> bool:
            first.append(time.time() - started)
            return begin(driver, *args)

        with mock.patch.object(Driver, "on_result", on_result):
            rltune.resume(Path(folder) / "many", screen="none", trials=502)
    print(f"resume of a 500-trial search, to its first new result: {first[0]:.1f} s")


def plain_tune(trials: int) -> float:
    """Return the seconds of as trivial trials of Tune's own, with its defaults."""
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler
    from ray.tune.search.optuna import OptunaSearch

    def train(config: dict[str, Any]) -> None:
        for i in range(4):
            tune.report({"score": config["quality"] * (i + 1)})

    with tempfile.TemporaryDirectory() as folder:
        started = time.time()
        tune.Tuner(
            train,
            param_space={"quality": tune.uniform(0, 1), "at": tune.randint(1, 1000)},
            tune_config=tune.TuneConfig(
                search_alg=OptunaSearch(), scheduler=ASHAScheduler(), metric="score", mode="max",
                num_samples=trials,
            ),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        ).fit()  # fmt: skip
        return time.time() - started


# ----------------------------------------------------------------------------------- by simulation


class Workers:
    """Workers of a simulated search, in place of `rltune.execution.tune.run_jobs`."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.seconds = 0.0  # of the simulation
        self.rng = np.random.default_rng(0)

    def run(self, source: Any, *args: Any, **options: Any) -> None:
        """Run the source's jobs to their end, as Tune does."""
        reports: list[tuple[float, str]] = []  # when each job reports next
        jobs: dict[str, tuple[Task, int]] = {}
        block = Block(self)
        while not source.should_stop():
            while not source.exhausted():
                with block.measured("starts"):
                    task = source.next_job()
                if task is None:
                    break
                source.on_start(task["job"])
                jobs[task["job"]] = task, 0
                heapq.heappush(reports, (self.seconds + self.rng.uniform(0.8, 1.2), task["job"]))
            if not reports:
                return
            self.seconds, name = heapq.heappop(reports)
            task, done = jobs.pop(name)
            result = self._result(task, done)
            with block.measured("reports"):
                ends = source.on_result(name, result)
            if ends:
                block.ended()
                continue
            jobs[name] = task, done + 1
            heapq.heappush(reports, (self.seconds + self.rng.uniform(0.8, 1.2), name))

    def _result(self, task: Task, done: int) -> Result:
        """Return the result of a job's next second: the nearer its learning rate, the better."""
        from rltune.agents.schedules import parse_schedule
        from rltune.execution.messages import Result

        config, steps, points = task["config"], task["points"][done], task["points"]
        off = abs(math.log10(parse_schedule(config["learning_rate"]).initial) + 3)
        score = 500 * steps / points[-1] / (1 + off) + 20 * self.rng.normal()
        episodes = [{"env_steps": steps, "episode_return": score, "length": 200} for _ in range(3)]
        row = {
            **dict.fromkeys((f"metric_{i}" for i in range(8)), score),
            **{
                "iteration": done + 1,
                "env_steps": steps,
                "mean_reward": score,
                "best_reward": score,
            },
            **{"episode_reward": score, "time": done + 1.0, "cpu_time": done + 1.0},
            **{"eval_return": score, "eval_std": 1.0, "eval_episodes": 10.0},
            "env_steps_per_second": 1000.0,
            "timestamp": time.time(),
        }
        is_last = steps == points[-1]
        return Result(done + 1, row, episodes, score, score, finished=is_last)


class Block:
    """CPU time of the driver for a block of trials; prints it as a row of a table."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._trials = 0
        self._begin()
        print("| trials | a report | a start | a second of the simulation | memory |")
        print("|---|---|---|---|---|", flush=True)

    def _begin(self) -> None:
        self._began, self._cpu = self._workers.seconds, time.process_time()
        self._spent: dict[str, list[float]] = {"reports": [], "starts": []}

    @contextlib.contextmanager
    def measured(self, what: str) -> Any:
        """Measure a call."""
        started = time.process_time()
        yield
        self._spent[what].append(time.process_time() - started)

    def ended(self) -> None:
        """Count a trial that has ended."""
        self._trials += 1
        if self._trials % BLOCK:
            return
        report, start = (1000 * sum(times) / max(1, len(times)) for times in self._spent.values())
        load = (time.process_time() - self._cpu) / (self._workers.seconds - self._began)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"| {self._trials:,} | {report:.2f} ms | {start:.2f} ms | {load:.2f} s of CPU "
            f"| {peak:.0f} MiB |",
            flush=True,
        )
        self._begin()


def simulate(workers: int, trials: int) -> None:
    """Run a search on computed workers."""
    import rltune
    from rltune.cluster import session
    from rltune.cluster.capacity import Room
    from rltune.execution import tune

    pool = Workers(workers)
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(session, "ray_session", return_value=contextlib.nullcontext()),
        mock.patch.object(Room, "__init__", return_value=None),
        mock.patch.object(Room, "slots", return_value=workers),
        mock.patch.object(tune, "run_jobs", pool.run),
    ):
        rltune.Search(
            "ppo", "CartPole-v1", trials=trials, evaluations=SECONDS, name="simulated",
            storage_path=folder, **OPTIONS,
        ).run()  # fmt: skip


if __name__ == "__main__":
    main()
