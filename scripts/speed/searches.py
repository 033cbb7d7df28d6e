"""Whole searches of rltune, rl-zoo3 and plain Ray Tune, and trials that train nothing."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import benchmark_tuners as tuners

TOYS = Path(__file__).resolve().parents[2] / "tests" / "tuner"
# Env steps per second are compared in the first and the last setting, times in all four.
THROUGHPUT = (("ppo", "CartPole-v1"), ("sac", "Pendulum-v1"))
AGAINST = ("tune_sb3", "zoo")


def jobs(slices: int) -> Iterator[dict[str, Any]]:
    """Yield the searches: everyone in turn, one repetition after the other."""
    for repetition in range(slices):
        for setting in tuners.SETTINGS[:4]:
            for tuner in ("rltune", *AGAINST):
                if tuner != "zoo" or (setting.agent, setting.env) in THROUGHPUT:
                    yield {
                        "what": "search", "tuner": tuner, "agent": setting.agent,
                        "env": setting.env, "budget": setting.budget, "repetition": repetition,
                    }  # fmt: skip


def threshold_jobs(slices: int) -> Iterator[dict[str, Any]]:
    """Yield searches that end with the first trial at the threshold: rltune's and Ray Tune's."""
    for repetition in range(slices):
        for setting in tuners.SETTINGS[:4]:
            for tuner in ("rltune", "tune_sb3"):
                yield {
                    "what": "threshold", "tuner": tuner, "agent": setting.agent,
                    "env": setting.env, "budget": setting.budget, "repetition": repetition,
                    "until": setting.threshold,
                }  # fmt: skip


def search(job: dict[str, Any], minutes: float) -> dict[str, Any]:
    """Run a search; returns what it reached, without its configurations."""
    found = tuners.run_search(job, minutes)
    setting = next(s for s in tuners.SETTINGS if (s.agent, s.env) == (job["agent"], job["env"]))
    reached = tuners.seconds_to(setting.threshold, found["trials"])
    return {
        "seconds": found["seconds"],
        "env_steps": found["env_steps"],
        "trials": len(found["trials"]),
        "seconds_to_threshold": reached if reached < tuners.NEVER else None,
    }


# -------------------------------------------------------------------------- trials without training

TRIALS = {"rltune": 100, "tune": 20}
REPORTS = 9  # of a trial that is not stopped early, on both sides


def trivial(tuner: str) -> dict[str, Any]:
    """Run trials that train nothing, with Ray already there; returns how many a second."""
    n = TRIALS[tuner]
    with tempfile.TemporaryDirectory() as folder:
        seconds = (_trivial_rltune if tuner == "rltune" else _trivial_tune)(n, folder)
    return {"trials": n, "seconds": seconds}


def _trivial_rltune(trials: int, folder: str) -> float:
    os.chdir(TOYS)
    sys.path.insert(0, str(TOYS))
    import rltune
    from benchmark_driver import SPACE
    from rltune.cluster.session import ray_session

    options = {"budget": 90, "wandb": "off", "report": False, "screen": "none", "tournament": False}
    with ray_session():
        started = time.time()
        rltune.Search(
            "toy:ToyAgent", "toy:ToyEnv", SPACE, trials=trials, name="trivial",
            storage_path=folder, **options,
        ).run()  # fmt: skip
        return time.time() - started


def _trivial_tune(trials: int, folder: str) -> float:
    import ray
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler
    from ray.tune.search.optuna import OptunaSearch

    def nothing(parameters: dict[str, Any]) -> None:
        for _ in range(REPORTS):
            tune.report({"eval_return": parameters["quality"]})

    ray.init(address="local", num_cpus=tuners.SLOTS, include_dashboard=False, log_to_driver=False)
    aim = {"metric": "eval_return", "mode": "max"}
    tuner = tune.Tuner(
        nothing,
        param_space={"quality": tune.uniform(0.0, 1.0), "at": tune.randint(1, 1001)},
        tune_config=tune.TuneConfig(
            **aim, num_samples=trials, search_alg=OptunaSearch(), scheduler=ASHAScheduler()
        ),
        run_config=tune.RunConfig(storage_path=folder, verbose=0),
    )
    started = time.time()
    tuner.fit()
    return time.time() - started
