"""Benchmark the search against other tuners: same machine and time, winners on the same new seeds.

    pip install stable-baselines3==2.9.2 sb3-contrib==2.9.2 rl_zoo3==2.9.2
    python scripts/benchmark_tuners.py run       # resumable; nothing else may run on the machine
    python scripts/benchmark_tuners.py table     # for docs/measurements.md
    python scripts/benchmark_tuners.py front     # for docs/benchmarks.md

Each search has the machine to itself for `MINUTES`: rltune (with its tournament), Ray Tune with
OptunaSearch and ASHA over our agent, Optuna over Stable-Baselines3's (two processes), and rl-zoo3's
optimiser (two processes). All train two configurations at once; each trial has the same env steps
and ten evaluations (rltune: nine) of ten greedy episodes. The first three search the same space, as
far as their agent has the hyperparameters; rl-zoo3 has its own, around its tuned settings. Then
each winner is trained on ten seeds that no search used, and scored by 100 greedy episodes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

from benchmark_agents import EVALUATION_SEED, sb3_model, sb3_scores
from json_lines import append, read
from markdown_tables import heading, line
from speed import machine

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "benchmarks" / "tuners.jsonl"
MINUTES = 5.0
REPETITIONS = 5
EVALUATIONS = 10
EPISODES = 10
SEEDS = range(1000, 1010)
GRACE = 30.0  # seconds to end by itself
SLOTS = 2
NEVER = float("inf")
TUNERS = ("rltune", "tune", "optuna", "zoo")
# benchmark_speed.py's `searches` also asks for "tune_sb3": Ray Tune over Stable-Baselines3's agent.
# Options of our agent that Stable-Baselines3 does not have.
OURS_ALONE = ("double", "dueling", "prioritised", "priority_alpha")
KEYS = ("what", "tuner", "agent", "env", "budget", "repetition", "seed")


class Setting(NamedTuple):
    """A tuning problem; ``threshold`` is the return for which the time to reach it is compared."""

    agent: str
    env: str
    budget: int  # env_steps of a trial
    threshold: float


SETTINGS = (
    Setting("ppo", "CartPole-v1", 50_000, 475.0),
    Setting("ppo", "LunarLander-v3", 100_000, 50.0),
    Setting("dqn", "CartPole-v1", 25_000, 400.0),
    Setting("sac", "Pendulum-v1", 5_000, -200.0),
    Setting("a2c", "Acrobot-v1", 50_000, -100.0),  # from here on: held out
    Setting("ppo", "Pendulum-v1", 50_000, -200.0),
    Setting("td3", "LunarLanderContinuous-v3", 15_000, 0.0),
    Setting("dqn", "MountainCar-v0", 50_000, -150.0),
)
Trial = dict[str, Any]  # "at" in seconds since the start, "value", "state" as Optuna has them


# --------------------------------------------------------------------- a space, as others define it


def declare(trial: Any, space: Any, left_out: tuple[str, ...] = ()) -> None:
    """Suggest every dimension of the space, in the manner of an Optuna user."""
    chosen: dict[str, Any] = {}
    for name, about in space.to_dict()["space"].items():
        if name in left_out or any(chosen.get(k) != v for k, v in about.get("when", {}).items()):
            continue
        kind, bounds = next((k, v) for k, v in about.items() if isinstance(v, list))
        if kind == "choice":
            chosen[name] = trial.suggest_categorical(name, bounds)
            continue
        low, high = bounds
        if kind == "one_minus_log":
            trial.suggest_float(name, 1 - high, 1 - low, log=True)
        elif kind == "pow2":
            trial.suggest_int(name, low.bit_length() - 1, high.bit_length() - 1)
        elif kind == "int":
            trial.suggest_int(name, low, high, log=bool(about.get("log")))
        else:
            trial.suggest_float(name, low, high, log=kind == "log")


def decode(parameters: dict[str, Any], space: Any) -> dict[str, Any]:
    """Return the hyperparameters of Optuna's parameters."""
    from rltune.backends.registry import config_class

    kinds = space.to_dict()["space"]
    values = {}
    for name, value in parameters.items():
        about = kinds[name]
        values[name] = (
            1 - value if "one_minus_log" in about else 2**value if "pow2" in about else value
        )
    config: dict[str, Any] = space.resolve(values)
    # Ray Tune and Optuna know no constraints: the nearest value that the space allows is taken.
    if "batch_size" in config and "n_steps" in config:
        n_envs = config.get("n_envs", config_class(space.agent)().n_envs)
        config["batch_size"] = min(config["batch_size"], config["n_steps"] * n_envs)
    if (asked := config.get("gradient_steps")) is not None:
        nearest = sorted((2**k for k in range(8)), key=lambda n: max(n, asked) / min(n, asked))
        tried = ({**config, "gradient_steps": n} for n in nearest)
        config = next(config for config in tried if not space.violations(config))
    return config


def space_of(agent: str) -> Any:
    from rltune.space.space import Space, shipped_spaces

    return Space.load(shipped_spaces()[agent])


# --------------------------------------------------------------------------------- the four tuners


def search_rltune(
    setting: Setting,
    seed: int,
    folder: Path,
    ends: float,
    engine: str | None = None,
    until: float | None = None,
) -> None:
    """Search with rltune; ``until``: the return with which a trial ends the search."""
    command = [sys.executable, "-m", "rltune", "run", setting.agent, "--env", setting.env]
    command += ["--budget", str(setting.budget), "--time-limit", f"{ends - time.time():.0f}s"]
    command += ["--seed", str(seed), "--storage-path", str(folder), "--name", "run"]
    command += ["--engine", engine] if engine else []
    command += ["--wandb", "off", "--no-report", "--plain"]
    if until is None:
        subprocess.run(command, check=True)
        return
    started, reached = time.time(), False
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as search:
        for line in search.stdout or ():
            print(line, end="")
            # Reading histories takes time: only where a trial ended. A second signal would kill.
            if not reached and " finished with " in line:
                trials = found_by_rltune(folder, started)["trials"]
                if reached := seconds_to(until, trials) < NEVER:
                    search.send_signal(signal.SIGINT)


def found_by_rltune(folder: Path, started: float) -> dict[str, Any]:
    import rltune
    import yaml

    run = rltune.open(folder / "run")
    history = run.history().query("role == 'tune'")
    ended = history.groupby("trial")["timestamp"].max() - started
    # Their values are the last evaluation's; our objective is the mean of the last three.
    last = history.dropna(subset=["eval_return"]).groupby("trial")["eval_return"].last()
    trials = [
        {"at": ended.get(row["trial"]), "value": last.get(row["trial"]), "state": row["state"]}
        for row in run.trials().to_dict("records")
        if row["trial"] in ended.index
    ]
    best = folder / "run" / "best" / "config.yaml"
    config = yaml.safe_load(best.read_text()) if best.exists() else None
    trained = run.history().groupby(["trial", "seed", "role"])["env_steps"].max().sum()
    return {"config": config, "trials": trials, "env_steps": int(trained)}


def search_tune(
    setting: Setting, seed: int, folder: Path, ends: float, until: float = NEVER
) -> None:
    from ray import tune

    space = space_of(setting.agent)

    def trainable(parameters: dict[str, Any]) -> None:
        from rltune.agents.loop.agent import Agent

        config = decode(parameters, space)
        agent = Agent(setting.agent, setting.env, config, total_timesteps=setting.budget, seed=seed)
        for k in range(1, EVALUATIONS + 1):
            agent.learn(setting.budget * k // EVALUATIONS)
            tune.report({"eval_return": agent.evaluate(EPISODES).mean})

    run_tune(setting, seed, folder, ends, trainable, until=until)


def search_tune_sb3(
    setting: Setting, seed: int, folder: Path, ends: float, until: float = NEVER
) -> None:
    from ray import tune

    space = space_of(setting.agent)
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, paths)
    )  # of the workers, to import this

    def trainable(parameters: dict[str, Any]) -> None:
        from benchmark_tuners import train_sb3

        def report(value: float, _: int) -> bool:
            tune.report({"eval_return": value})
            return True

        train_sb3(setting, decode(parameters, space), seed, report)

    run_tune(setting, seed, folder, ends, trainable, OURS_ALONE, until)


def run_tune(
    setting: Setting,
    seed: int,
    folder: Path,
    ends: float,
    trainable: Callable[[dict[str, Any]], None],
    left_out: tuple[str, ...] = (),
    until: float = NEVER,
) -> None:
    """Search with Ray Tune.

    Args:
        left_out: dimensions that the agent does not have
        until: the return with which a trial ends the search
    """
    import ray
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler
    from ray.tune.search.optuna import OptunaSearch

    class Reached(tune.Stopper):  # type: ignore[misc]
        reached = False

        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            if result["training_iteration"] == EVALUATIONS and result["eval_return"] >= until:
                self.reached = True
            return self.reached

        def stop_all(self) -> bool:
            return self.reached

    space = space_of(setting.agent)
    aim = {"metric": "eval_return", "mode": "max"}
    ray.init(address="local", num_cpus=SLOTS, include_dashboard=False)
    tuner = tune.Tuner(
        trainable,
        tune_config=tune.TuneConfig(
            **aim, num_samples=-1, time_budget_s=ends - time.time(),
            search_alg=OptunaSearch(
                partial(declare, space=space, left_out=left_out), seed=seed, **aim
            ),
            scheduler=ASHAScheduler(max_t=EVALUATIONS), max_concurrent_trials=SLOTS,
        ),
        run_config=tune.RunConfig(
            storage_path=str(folder), name="run", verbose=0, stop=Reached()
        ),
    )  # fmt: skip
    results = tuner.fit()
    trials: list[Trial] = []
    trained = 0
    for result in results:
        last = result.metrics or {}
        if "eval_return" in last:
            trained += last["training_iteration"] * setting.budget // EVALUATIONS
            done = last["training_iteration"] == EVALUATIONS
            state = "COMPLETE" if done else "PRUNED"
            at, value = last["timestamp"], last["eval_return"]
            trials.append({"at": at, "value": value, "state": state})
    best = results.get_best_result().config if trials else None  # it raises where nothing reported
    found = {"parameters": best, "trials": trials, "env_steps": trained}
    (folder / "found.json").write_text(json.dumps(found))


def found_by_tune(folder: Path, started: float, agent: str) -> dict[str, Any]:
    found = json.loads((folder / "found.json").read_text())
    trials = [{**trial, "at": trial["at"] - started} for trial in found["trials"]]
    best = found["parameters"]
    config = best and decode(best, space_of(agent))
    return {"config": config, "trials": trials, "env_steps": found["env_steps"]}


def search_optuna(setting: Setting, seed: int, folder: Path, ends: float) -> None:
    """Search in two processes, as in Optuna's manual."""
    command = [sys.executable, __file__, "worker", json.dumps([setting, seed, str(folder), ends])]
    workers = [subprocess.Popen(command) for _ in range(SLOTS)]
    for worker in workers:
        worker.wait()


def work(setting: Setting, seed: int, folder: Path, ends: float) -> None:
    """One of Optuna's processes: Stable-Baselines3, pruned by the median."""
    import optuna

    space = space_of(setting.agent)

    def objective(trial: Any) -> float:
        declare(trial, space, OURS_ALONE)

        def report(value: float, number: int) -> bool:
            trial.report(value, number)
            return not trial.should_prune()

        done, value = train_sb3(setting, decode(dict(trial.params), space), seed, report)
        if done < EVALUATIONS and trial.should_prune():
            raise optuna.TrialPruned
        return value

    study = optuna.create_study(
        storage=journal(folder), study_name="search", load_if_exists=True, direction="maximize"
    )
    study.optimize(objective, timeout=ends - time.time(), catch=(ValueError, AssertionError))


def train_sb3(
    setting: Setting, values: dict[str, Any], seed: int, report: Callable[[float, int], bool]
) -> tuple[int, float]:
    """Train Stable-Baselines3's agent; returns the number of evaluations, and the last value.

    Args:
        report: is told each evaluation's value and number, and returns whether to go on
    """
    from stable_baselines3.common.callbacks import BaseCallback

    class Evaluate(BaseCallback):  # type: ignore[misc]
        done, value = 0, float("-inf")

        def _on_step(self) -> bool:
            if self.num_timesteps >= setting.budget * (self.done + 1) // EVALUATIONS:
                self.done += 1
                scores = sb3_scores(self.model, setting.env, EPISODES, seed)
                self.value = sum(scores) / len(scores)
                return report(self.value, self.done)
            return True

    evaluate = Evaluate()
    model = sb3_model(setting.agent, setting.env, values, seed)
    model.learn(setting.budget, callback=evaluate)
    return evaluate.done, evaluate.value


def journal(folder: Path) -> Any:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    return JournalStorage(JournalFileBackend(str(folder / "study.log")))


def found_in_study(folder: Path, started: float, budget: int) -> tuple[Any, list[Trial], int]:
    """Return the best trial, all that ended, and the env steps of all up to their last report."""
    import optuna

    study = optuna.load_study(storage=journal(folder), study_name="search")
    trials = [
        {
            "at": trial.datetime_complete.timestamp() - started,
            "value": trial.value,
            "state": trial.state.name,
        }
        for trial in study.trials
        if trial.datetime_complete is not None
    ]
    ended = any(trial["state"] == "COMPLETE" for trial in trials)
    trained = sum(len(t.intermediate_values) * budget // EVALUATIONS for t in study.trials)
    return (study.best_trial if ended else None), trials, trained


def zoo_command(setting: Setting, folder: Path) -> list[str]:
    command = [sys.executable, "-m", "rl_zoo3.train", "--algo", setting.agent]
    command += ["--env", setting.env, "-n", str(setting.budget), "--device", "cpu"]
    command += ["--num-threads", "1", "--storage", str(folder / "study.log")]
    return [*command, "--study-name", "search"]


def search_zoo(setting: Setting, seed: int, folder: Path, ends: float) -> None:
    command = zoo_command(setting, folder)
    command += ["-optimize", "--n-evaluations", str(EVALUATIONS), "--no-optim-plots"]
    command += ["--eval-episodes", str(EPISODES), "-f", str(folder)]
    workers = []
    for number in range(SLOTS):
        workers.append(subprocess.Popen([*command, "--seed", str(100 * seed + number)]))
        time.sleep(2)  # the first one makes the study
    while time.time() < ends and any(worker.poll() is None for worker in workers):
        time.sleep(0.2)
    for worker in workers:
        worker.kill()
        worker.wait()


# ------------------------------------------------------------------------------------- the winners


def test_one(search: dict[str, Any], seed: int) -> float:
    """Train the winner of a search on a seed, and return its mean return."""
    setting = Setting(search["agent"], search["env"], search["budget"], 0.0)
    if search["tuner"] == "zoo":
        return test_zoo(setting, search["config"], seed)
    if search["tuner"] == "optuna":
        model = sb3_model(setting.agent, setting.env, search["config"], seed)
        model.learn(setting.budget)
        scores = sb3_scores(model, setting.env, 100)
        return sum(scores) / len(scores)
    from rltune.agents.loop.agent import Agent

    agent = Agent(
        setting.agent, setting.env, search["config"],
        total_timesteps=setting.budget, seed=seed, device="cpu",
    )  # fmt: skip
    agent.learn(setting.budget)
    return agent.evaluate(100, seed=EVALUATION_SEED).mean


def test_zoo(setting: Setting, best: dict[str, Any], seed: int) -> float:
    """Train with rl-zoo3 itself, from a study that contains only the winner."""
    import optuna
    import stable_baselines3
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        study = optuna.create_study(
            storage=journal(folder), study_name="search", direction="maximize"
        )
        kinds = {
            key: optuna.distributions.json_to_distribution(distribution)
            for key, distribution in best["distributions"].items()
        }
        params = dict(best["params"])
        if params.get("noise_type", "") is None:
            # Its search trains these with the noise of its settings; its own --trial-id fails.
            for key in ("noise_type", "noise_std"):
                del params[key], kinds[key]
        winner = optuna.trial.create_trial(params=params, distributions=kinds, value=0.0)
        study.add_trials([winner, winner])  # number 0 counts as none there
        command = zoo_command(setting, folder)
        command += ["--trial-id", "1", "--eval-freq", "-1", "-f", name, "--seed", str(seed)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        trained = folder / setting.agent / f"{setting.env}_1"
        model = getattr(stable_baselines3, setting.agent.upper()).load(
            trained / f"{setting.env}.zip", device="cpu"
        )
        statistics = trained / setting.env / "vecnormalize.pkl"
        if statistics.exists():
            import gymnasium

            empty = DummyVecEnv([lambda: gymnasium.make(setting.env)])
            model.env = VecNormalize.load(str(statistics), empty)
        scores = sb3_scores(model, setting.env, 100)
    return sum(scores) / len(scores)


# ------------------------------------------------------------------------------------- all of them


def run_search(job: dict[str, Any], minutes: float) -> dict[str, Any]:
    """Run a search in its own process group, and read its result."""
    setting = next(s for s in SETTINGS if (s.agent, s.env) == (job["agent"], job["env"]))
    with tempfile.TemporaryDirectory() as name:
        folder, started = Path(name), time.time()
        ends = started + 60 * minutes
        extra = {key: job[key] for key in ("engine", "until") if job.get(key) is not None}
        asked = json.dumps([job["tuner"], setting, job["repetition"], name, ends, extra])
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, __file__, "search", asked],
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=ends + GRACE - time.time())
            seconds = time.time() - started
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        try:
            found = harvest(job["tuner"], folder, started, setting)
            # In these minutes rl-zoo3 may end no trial. With the others it is a mistake of ours.
            if job["tuner"] != "zoo" and not values(found["trials"]):
                raise RuntimeError("no trial has reported a return")
        except Exception:
            print((folder / "log").read_text()[-3000:], flush=True)
            raise
    return {**job, "seconds": round(seconds, 1), "minutes": minutes, **found}


def harvest(tuner: str, folder: Path, started: float, setting: Setting) -> dict[str, Any]:
    if tuner == "rltune":
        return found_by_rltune(folder, started)
    if tuner in ("tune", "tune_sb3"):
        return found_by_tune(folder, started, setting.agent)
    import optuna

    best, trials, trained = found_in_study(folder, started, setting.budget)
    found: dict[str, Any] = {"config": None, "trials": trials, "env_steps": trained}
    if best is not None and tuner == "optuna":
        found["config"] = decode(dict(best.params), space_of(setting.agent))
    elif best is not None:
        kinds = {
            key: optuna.distributions.distribution_to_json(distribution)
            for key, distribution in best.distributions.items()
        }
        found["config"] = {"params": best.params, "distributions": kinds}
    return found


def jobs(only: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for repetition in range(REPETITIONS):
        for setting in SETTINGS:
            for tuner in TUNERS:
                job = {
                    "tuner": tuner, "agent": setting.agent, "env": setting.env,
                    "budget": setting.budget, "repetition": repetition,
                }  # fmt: skip
                if all(str(job[key]) in values for key, values in only.items() if values):
                    yield job


def run(results: Path, only: dict[str, Any], minutes: float, searches_only: bool) -> None:
    for job in jobs(only):
        done = {tuple(row.get(key) for key in KEYS): row for row in read(results)}
        search = {"what": "search", **job}
        row = done.get(tuple(search.get(key) for key in KEYS))
        if row is None:
            row = run_search(search, minutes)
            store(results, row)
        tests = [{"what": "test", **job, "seed": seed} for seed in SEEDS]
        open_tests = [test for test in tests if tuple(test.get(key) for key in KEYS) not in done]
        if not searches_only and row["config"] is not None:
            with ThreadPoolExecutor(SLOTS) as pool:
                asked = [json.dumps([row, planned]) for planned in open_tests]
                for outcome in pool.map(in_process, asked):
                    store(results, outcome)


def in_process(asked: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "one", asked]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def store(results: Path, row: dict[str, Any]) -> None:
    about = {"when": time.strftime("%Y-%m-%d"), "processor": machine.processor()}
    append(results, {**row, **about, "versions": machine.versions()})
    value = f"{row['score']:.1f}" if "score" in row else f"{len(row['trials'])} trials"
    print(*(row.get(key) for key in KEYS), value, flush=True)


def table(results: Path) -> None:
    """Print a table per setting, with rltune's lead over each tuner."""
    rows = read(results)
    for setting in SETTINGS:
        print(
            f"\n{setting.agent.upper()} on {setting.env}, {setting.budget:,} env_steps a trial:\n"
        )
        trials = ("trials finished", "rltune's against it")
        seconds = (f"seconds to {setting.threshold:g}", "rltune sooner by")
        heading(
            ["tuner", *trials, *seconds, "best trial", "test return", "rltune's higher by", "p"]
        )
        ours = Found.of("rltune", setting, rows)
        for tuner in TUNERS:
            theirs = Found.of(tuner, setting, rows)
            if not theirs.trials:
                continue
            counts = ", ".join(map(str, theirs.trials))
            best = ", ".join(f"{value:.1f}" for value in theirs.best)
            score = shown_returns(theirs.returns)
            alone = tuner == "rltune" or not ours.trials
            against = ["", "", "", ""] if alone else compared(ours, theirs)
            reached = shown_seconds(theirs.seconds)
            cells = [tuner, counts, against[0], reached, against[1], best, score, *against[2:]]
            line(cells)


NAMES = {
    "rltune": "rltune", "tune": "Ray Tune", "optuna": "Optuna over SB3", "zoo": "rl-zoo3",
}  # fmt: skip

FEW = 3  # of fewer searches, a median says little: `front` shows each one's own


def front(results: Path) -> None:
    """Print two tables, of a row per setting: seconds to the threshold, and test returns.

    Both are medians of the searches; beside returns stand the lowest and the highest. A return in
    bold is better than every other tuner's, beyond chance; a number of seconds in bold is the
    smallest.
    """
    rows = read(results)
    measured: list[tuple[Setting, dict[str, Found]]] = []
    for setting in SETTINGS:
        found = {tuner: Found.of(tuner, setting, rows) for tuner in TUNERS}
        if all(one.trials for one in found.values()):
            measured.append((setting, found))
    titles = [NAMES[tuner] for tuner in TUNERS]
    heading(["setting, threshold", *titles])
    for setting, found in measured:
        each = [found[tuner].seconds for tuner in TUNERS]
        seconds = [median(own) for own in each]
        few = min(map(len, each)) < FEW
        cells = [shown_seconds(own if few else [median(own)]) for own in each]
        bold = [s == min(seconds) < NEVER for s in seconds]
        about = f"{setting.agent.upper()}, {setting.env}, {setting.threshold:g}"
        line([about, *marked(cells, bold)])
    print()
    heading(["setting", *titles])
    for setting, found in measured:
        each = [found[tuner].returns for tuner in TUNERS]
        few = min(map(len, each)) < FEW
        cells = [each_return(own, 0) if few else spread(own) for own in each]
        bold = [
            all(better(found[mine], found[other]) for other in TUNERS if other != mine)
            for mine in TUNERS
        ]
        line([f"{setting.agent.upper()}, {setting.env}", *marked(cells, bold)])


def shown_seconds(seconds: Sequence[float]) -> str:
    return ", ".join(f"{s:.0f}" if s < NEVER else "never" for s in seconds)


def marked(cells: Sequence[str], bold: Sequence[bool]) -> list[str]:
    return [f"**{cell}**" if mark else cell for cell, mark in zip(cells, bold, strict=True)]


class Found(NamedTuple):
    """The results of a tuner in a setting, with one value per search."""

    trials: list[int]
    seconds: list[float]  # to the threshold; NEVER for a search that had no such trial
    best: list[float]  # of a search's trials, by its last evaluation
    returns: list[float]  # mean over the test seeds; of searches whose winner was tested

    @classmethod
    def of(cls, tuner: str, setting: Setting, rows: list[dict[str, Any]]) -> Found:
        names = (tuner, setting.agent, setting.env)
        mine = [row for row in rows if (row["tuner"], row["agent"], row["env"]) == names]
        searches = [row for row in mine if row["what"] == "search"]
        tests: dict[int, list[float]] = {}
        for row in mine:
            if row["what"] == "test":
                tests.setdefault(row["repetition"], []).append(row["score"])
        return cls(
            [len(row["trials"]) for row in searches],
            [seconds_to(setting.threshold, row["trials"]) for row in searches],
            [max(values(row["trials"]), default=-NEVER) for row in searches],
            [fmean(scores) for scores in tests.values() if len(scores) == len(SEEDS)],
        )


def spread(returns: list[float]) -> str:
    return f"{median(returns):.0f} [{min(returns):.0f}, {max(returns):.0f}]"


def mean_return(returns: list[float]) -> str:
    """Return the mean return and its interval (Student's t); of fewer than two searches, none."""
    if len(returns) < 2:
        return ""
    from scipy.stats import ttest_1samp

    around = ttest_1samp(returns, 0.0).confidence_interval()
    return f"{fmean(returns):.1f} [{around.low:.1f}, {around.high:.1f}]"


def shown_returns(returns: list[float]) -> str:
    """Return the mean return, its interval, and each search's return."""
    each = each_return(returns)
    return f"{mean} ({each})" if (mean := mean_return(returns)) else each


def each_return(returns: list[float], digits: int = 1) -> str:
    return ", ".join(f"{value:.{digits}f}" for value in returns) or "-"


def lead(ours: Found, theirs: Found) -> tuple[float, float, float]:
    """Return how much higher our mean test return is, with Welch's interval; else NaN.

    The interval is over the searches: the seeds of one share its winner.
    """
    if len(ours.returns) < 2 or len(theirs.returns) < 2:
        return (math.nan, math.nan, math.nan)
    from scipy.stats import ttest_ind

    around = ttest_ind(ours.returns, theirs.returns, equal_var=False).confidence_interval()
    return fmean(ours.returns) - fmean(theirs.returns), float(around.low), float(around.high)


def better(ours: Found, theirs: Found) -> bool:
    """Return whether our winners are better, beyond chance (docs/benchmarks/held-out.md).

    The rule is for all searches: to judge after each one would find leads by chance.
    """
    if min(len(ours.returns), len(theirs.returns)) < REPETITIONS:
        return False
    return chance(ours, theirs) < 0.05 and lead(ours, theirs)[0] > 0


def chance(ours: Found, theirs: Found) -> float:
    """Return the p of Mann and Whitney's two-sided test over the searches' returns, else 1.

    A search that finds nothing lies far below the others, so a mean says little.
    """
    if not ours.returns or not theirs.returns:
        return 1.0
    from scipy.stats import mannwhitneyu

    return float(mannwhitneyu(ours.returns, theirs.returns).pvalue)


def compared(ours: Found, theirs: Found) -> list[str]:
    """Compare rltune with a tuner: medians of trials and seconds; means and ranks of returns."""
    trials = f"{median(ours.trials) / median(theirs.trials):.2f} x"
    first, second = median(ours.seconds), median(theirs.seconds)
    limit = 60 * MINUTES
    if first == second == NEVER:
        sooner = "neither"
    else:
        bound = "at least " if second == NEVER else "at most " if first == NEVER else ""
        sooner = f"{bound}{min(second, limit) - min(first, limit):+.0f} s"
    higher, low, high = lead(ours, theirs)
    return [
        trials,
        sooner,
        "-" if math.isnan(higher) else f"{higher:+.1f} [{low:+.1f}, {high:+.1f}]",
        f"{chance(ours, theirs):.3f}",
    ]


def values(trials: list[Trial]) -> list[float]:
    return [trial["value"] for trial in trials if trial["value"] is not None]


def seconds_to(threshold: float, trials: list[Trial]) -> float:
    """Return the seconds until the first trial ended at or above the threshold."""
    found = [
        trial["at"]
        for trial in trials
        if trial["value"] is not None and trial["value"] >= threshold
    ]
    return min(found, default=NEVER)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("run", "table", "front", "search", "worker", "one"))
    parser.add_argument("asked", nargs="?")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--searches-only", action="store_true", help="do not train the winners")
    for name in ("tuner", "agent", "env", "repetition"):
        parser.add_argument(f"--{name}", nargs="+", help="only these")
    args = parser.parse_args()
    if args.what == "run":
        only = {name: getattr(args, name) for name in ("tuner", "agent", "env", "repetition")}
        run(args.results, only, args.minutes, args.searches_only)
    elif args.what == "table":
        table(args.results)
    elif args.what == "front":
        front(args.results)
    elif args.what == "search":
        tuner, setting, seed, folder, ends, extra = json.loads(args.asked)
        search = globals()[f"search_{tuner}"]
        search(Setting(*setting), seed, Path(folder), ends, **extra)
    elif args.what == "worker":
        setting, seed, folder, ends = json.loads(args.asked)
        work(Setting(*setting), seed, Path(folder), ends)
    else:
        search, job = json.loads(args.asked)
        print(json.dumps({**job, "score": test_one(search, job["seed"])}))


if __name__ == "__main__":
    main()
