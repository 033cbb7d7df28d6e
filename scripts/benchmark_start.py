"""Benchmark the start: from the command to the first env step, and the memory of a trial.

    python scripts/benchmark_start.py              # five times in turn
    python scripts/benchmark_start.py --times 1

The first step is that of a training, in a worker. In turn: `ray.init` and the start of one worker;
`rltune run`; plain Ray Tune with OptunaSearch and ASHA, whose trainable makes the environment and
takes a step; the same whose trainable trains Stable-Baselines3's PPO. A trial's memory is the
private memory of its processes, and its part of what they share (PSS), beside another trial: of
rltune's PPO, of RLlib's with its defaults, and of RLlib's without processes of its own.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

ENV = """
import os, time
import gymnasium

class Env(gymnasium.Wrapper):
    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))

    def step(self, action):
        path = os.path.join(os.environ["FIRST_STEPS"], str(os.getpid()))
        if not os.path.exists(path):
            with open(path, "w") as file:
                file.write(str(time.time()))
        return super().step(action)
"""
RAY = """
import os, time
from pathlib import Path
import ray

begun = time.time()
ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")

@ray.remote
class Worker:
    def began(self):
        (Path(os.environ["FIRST_STEPS"]) / str(os.getpid())).write_text(str(time.time()))

worker = Worker.remote()
ray.get(worker.began.remote())
Path("ray_alone").write_text(str(time.time() - begun))
"""
TUNE = """
import os, sys
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch

def step(config):
    import gymnasium, torch
    from env import Env
    env = Env()
    env.reset(seed=0)
    env.step(0)
    tune.report({"value": 0.0})

def sb3(config):
    from env import Env
    from stable_baselines3 import PPO
    PPO("MlpPolicy", Env(), learning_rate=config["learning_rate"], n_steps=64).learn(64)
    tune.report({"value": 0.0})

tune.Tuner(
    {"step": step, "sb3": sb3}[sys.argv[1]],
    param_space={"learning_rate": tune.loguniform(1e-5, 1e-2)},
    tune_config=tune.TuneConfig(
        metric="value", mode="max", num_samples=2, search_alg=OptunaSearch(),
        scheduler=ASHAScheduler(),
    ),
    run_config=tune.RunConfig(storage_path=os.path.abspath(sys.argv[2]), verbose=0),
).fit()
"""
RLLIB = """
import os, sys
import ray
from ray import tune
from ray.rllib.algorithms.ppo import PPOConfig

ray.init(num_cpus=4, include_dashboard=False)  # the defaults want three
config = PPOConfig().environment("CartPole-v1")
if sys.argv[1] == "alone":
    config = config.env_runners(num_env_runners=0)
tune.Tuner(
    "PPO", param_space=config,
    tune_config=tune.TuneConfig(num_samples=1),
    run_config=tune.RunConfig(storage_path=os.path.abspath(sys.argv[2]), verbose=0),
).fit()
"""
RUN = ["-m", "rltune", "run", "ppo", "--concurrency", "2", "--no-tournament", "--no-report",
       "--wandb", "off", "--plain", "--storage-path", "runs"]  # fmt: skip
STARTS = {
    "ray.init and a worker": ["ray_alone.py"],
    "rltune": [*RUN, "--env", "env:Env", "--budget", "600", "--trials", "2"],
    "plain Tune, one step": ["plain_tune.py", "step", "tune"],
    "plain Tune over SB3": ["plain_tune.py", "sb3", "tune"],
}
LONG = ["--env", "CartPole-v1", "--budget", "1e8", "--trials", "2"]
MEMORY: dict[str, tuple[list[str], int]] = {
    "rltune": ([*RUN, *LONG], 2),
    "RLlib, defaults": (["rllib_trial.py", "defaults", "tune"], 1),
    "RLlib, one process": (["rllib_trial.py", "alone", "tune"], 1),
}
SETTLED = 25.0  # seconds of training before the memory is read


def prepared(folder: Path) -> dict[str, str]:
    """Write the files that the commands need; return the environment that they run in."""
    (folder / "steps").mkdir()
    files = {"env": ENV, "ray_alone": RAY, "plain_tune": TUNE, "rllib_trial": RLLIB}
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    own = {"FIRST_STEPS": str(folder / "steps"), "PYTHONPATH": str(folder), "RAY_DEDUP_LOGS": "0"}
    return {**os.environ, **own, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def started(words: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    """Start a command of Python in a folder of its own."""
    environment = prepared(folder)
    with (folder / "output").open("w") as output:
        return subprocess.Popen(
            [sys.executable, *words], cwd=folder, env=environment, stdout=output, stderr=output
        )


def first_step(words: Sequence[str]) -> tuple[float, float | None]:
    """Return the seconds from a command to the first step of a worker, and those of Ray alone."""
    with tempfile.TemporaryDirectory() as name:
        folder, began = Path(name), time.time()
        process = started(words, folder)
        if process.wait():
            sys.exit((folder / "output").read_text())
        steps = {p.name: float(p.read_text()) for p in (folder / "steps").iterdir()}
        steps.pop(str(process.pid), None)  # the check before a search
        alone = folder / "ray_alone"
        return min(steps.values()) - began, float(alone.read_text()) if alone.exists() else None


def trial_memory(words: Sequence[str], trials: int) -> tuple[float, float]:
    """Return the PSS and the RSS of a trial's processes in MB, while it trains."""
    import psutil

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        process = started(words, Path(name))
        deadline = time.time() + 300
        pss = rss = 0.0
        while not (workers := _workers(process.pid)):
            if process.poll() is not None or time.time() > deadline:
                sys.exit(f"no trial began:\n{(Path(name) / 'output').read_text()}")
            time.sleep(0.5)
        time.sleep(SETTLED)
        for worker in workers | _workers(process.pid):
            try:
                memory = psutil.Process(worker).memory_full_info()
            except psutil.NoSuchProcess:
                continue
            pss, rss = pss + memory.pss / 1e6, rss + memory.rss / 1e6
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
    return pss / trials, rss / trials


def _workers(driver: int) -> set[int]:
    """Return the processes of Ray's actors below a driver: those of a trial."""
    import psutil

    found = set()
    for process in psutil.Process(driver).children(recursive=True):
        try:
            title = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if title.startswith("ray::") and not title.startswith(
            ("ray::IDLE", "ray::Dash", "ray::Run")
        ):
            found.add(process.pid)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=5, help="of the start; 0: only the memory")
    times = parser.parse_args().times
    seconds: dict[str, list[float]] = {name: [] for name in STARTS}
    alone: list[float] = []
    for _ in range(times):
        for name, words in STARTS.items():
            taken, ray_alone = first_step(words)
            seconds[name].append(taken)
            alone += [] if ray_alone is None else [ray_alone]
    memory = {name: trial_memory(*what) for name, what in MEMORY.items()}

    names = ("rltune", "ray", "optuna", "torch", "stable-baselines3")
    print(f"{time.strftime('%Y-%m-%d')}; " + ", ".join(f"{n} {version(n)}" for n in names))
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}")
    medians = {name: statistics.median(taken) for name, taken in seconds.items() if taken}
    for name, median in medians.items():
        print(f"{name}: {median:.1f} s, rltune's is {medians['rltune'] / median:.2f} of it")
    if alone:
        print(f"of the first, without Python and `import ray`: {statistics.median(alone):.1f} s")
    for name, (pss, rss) in memory.items():
        ratio = memory["rltune"][0] / pss
        print(f"memory of a trial, {name}: {pss:.0f} MB ({rss:.0f} MB RSS), {ratio:.2f} of it")


if __name__ == "__main__":
    main()
