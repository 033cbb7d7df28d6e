"""Benchmark what a search costs beside its trainings.

    python scripts/benchmark_driver.py           # 100 trivial trials, and resuming 500 trials
    python scripts/benchmark_driver.py --scale   # 2,000 trials: does the overhead grow?
    python scripts/benchmark_driver.py --against-tune   # and 50 trivial trials of plain Ray Tune
    python scripts/benchmark_driver.py --simulate 500   # so many workers, by computation
    python scripts/benchmark_driver.py --proposals      # with up to 10,000 trials

The trials of the first three train nothing (tests/tuner/toy.py), so the time is that of Ray Tune,
the study and the history. Ray is started before the clock.

The simulation is a search without Ray: the driver, the study, TPE, ASHA and the history are those
of a search, workers and their results are computed. Each worker reports once a second by the clock
of the simulation. The driver keeps up if it takes less than a second for a second of it.
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
from optuna.trial import FrozenTrial, create_trial

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rltune.execution.messages import Result, Task

TOYS = Path(__file__).resolve().parent.parent / "tests" / "tuner"
# Two dimensions: with one, thousands of trials would soon have tried every good value.
SPACE = {"space": {"quality": {"uniform": [0.0, 1.0]}, "at": {"int": [1, 1000]}}}
OPTIONS = {"wandb": "off", "report": False, "screen": "none", "tournament": False}
WHOLE = 300  # reports of a simulated trial that runs its whole budget
ROW = 15  # seconds of the simulation that a row of its table is about
PROPOSALS = (500, 2000, 10_000)  # trials in the study; TPE looks at 500 of them


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", action="store_true", help="run 2,000 trials instead")
    parser.add_argument("--against-tune", action="store_true", help="plain Ray Tune as well")
    parser.add_argument("--simulate", type=int, metavar="WORKERS", help="simulate so many workers")
    parser.add_argument("--seconds", type=int, default=90, help="of the simulation")
    parser.add_argument("--proposals", action="store_true", help="time proposals instead")
    args = parser.parse_args()
    names = ("rltune", "ray", "optuna")
    print(f"{time.strftime('%Y-%m-%d')}; " + ", ".join(f"{n} {version(n)}" for n in names))
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}", flush=True)
    if args.proposals:
        propose()
    elif args.simulate:
        simulate(args.simulate, args.seconds)
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

    def __init__(self, number: int, until: float) -> None:
        self.number = number
        self.until = until
        self.seconds = 0.0  # of the simulation
        self.rng = np.random.default_rng(0)

    def run(self, source: Any, *args: Any, **options: Any) -> None:
        """Run the source's jobs as Tune does, for so many seconds."""
        reports: list[tuple[float, str]] = []  # when each job reports next
        jobs: dict[str, tuple[Task, int]] = {}
        table = Table(self)
        while not source.should_stop():
            with table.measured("a start"):
                task = source.next_job()
            if task is not None:
                source.on_start(task["job"])
                table.started()
                jobs[task["job"]] = task, 0
                # The first ones start one after the other.
                spread = self.rng.uniform(0, ROW if len(jobs) < self.number else 1)
                heapq.heappush(reports, (self.seconds + spread, task["job"]))
                continue
            self.seconds, name = heapq.heappop(reports)
            if self.seconds > self.until:
                source.request_stop()
                continue
            table.tick()
            with table.measured("a start"):
                source.use_the_time()
            task, done = jobs.pop(name)
            result = self._result(task, done)
            with table.measured("a report"):
                ends = source.on_result(name, result)
            if not ends:
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


class Table:
    """CPU time of the driver, a row for every few seconds of the simulation."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._due = 0.0
        self._times: dict[str, list[float]] = {}
        self._started = 0
        self._began = time.process_time()
        print("| second | reports | starts | a report | a start | CPU a second | memory |")
        print("|---|---|---|---|---|---|---|", flush=True)

    @contextlib.contextmanager
    def measured(self, what: str) -> Iterator[None]:
        """Measure a call; what is done while nothing starts belongs to the starts."""
        started = time.process_time()
        yield
        self._times.setdefault(what, []).append(time.process_time() - started)

    def started(self) -> None:
        """Count a job."""
        self._started += 1

    def tick(self) -> None:
        """Print a row when it is time, of what was measured since the last one."""
        if self._workers.seconds < self._due:
            return
        if self._due:
            reports, starts = self._times["a report"], self._times["a start"]
            started = self._started
            load = (time.process_time() - self._began) / ROW
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"| {self._due:.0f} | {len(reports):,} | {started:,} "
                f"| {1000 * sum(reports) / len(reports):.2f} ms "
                f"| {f'{1000 * sum(starts) / started:.1f} ms' if started else '-'} "
                f"| {load:.2f} s | {peak:.0f} MiB |",
                flush=True,
            )
        self._due += ROW
        self._times.clear()
        self._started = 0
        self._began = time.process_time()


def simulate(workers: int, seconds: int) -> None:
    """Run a search on computed workers."""
    import rltune
    from rltune.cluster import session
    from rltune.cluster.capacity import Room
    from rltune.execution import tune

    pool = Workers(workers, seconds)
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(session, "ray_session", return_value=contextlib.nullcontext()),
        mock.patch.object(Room, "__init__", return_value=None),
        mock.patch.object(Room, "slots", return_value=workers),
        mock.patch.object(tune, "run_jobs", pool.run),
    ):
        rltune.Search(
            "ppo", "CartPole-v1", trials=100_000, evaluations=WHOLE, name="simulated",
            storage_path=folder, **OPTIONS,
        ).run()  # fmt: skip


def propose() -> None:
    """Time TPE's proposals with more and more trials in the study, all of them ended."""
    from rltune.agents.config import config_hash
    from rltune.samplers.proposer import Proposer
    from rltune.space.space import Space
    from rltune.study.optuna_log import silent_log

    root = Path(__file__).resolve().parent.parent
    space = Space.load(root / "search_spaces" / "ppo.yaml")
    proposer, rng = Proposer(space, "tpe", {}, 0, "maximize"), np.random.default_rng(0)
    trials: list[FrozenTrial] = []
    with silent_log():
        for most in PROPOSALS:
            while len(trials) < most:
                values = space.sample(rng)
                parameters, distributions = proposer.as_parameters(values)
                config = space.resolve(values)
                about = {"configuration": config, "hash": config_hash(config), "origin": "sampler"}
                trial = create_trial(
                    params=parameters, distributions=distributions, user_attrs=about,
                    value=float(rng.normal()),
                )  # fmt: skip
                trial.number = len(trials)
                trials.append(trial)
            times = []
            for _ in range(11):
                started = time.process_time()
                proposer.propose(trials)
                times.append(time.process_time() - started)
            print(f"{most:,} trials: a proposal takes {1000 * np.median(times):.0f} ms of CPU")


if __name__ == "__main__":
    main()
