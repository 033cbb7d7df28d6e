"""Measure the samplers on functions that cost nothing: no training, no Ray, no database.

    python scripts/benchmark_samplers.py warm   # trials to the threshold, with and without --from
    python scripts/benchmark_samplers.py cost   # cost to the threshold: cost-aware against tpe
    python scripts/benchmark_samplers.py rungs  # trials stopped early: what tpe learns from them
    python scripts/benchmark_samplers.py time   # milliseconds for a proposal after 2,000 trials

Ratios are paired by seed: geometric means with 95 % bootstrap intervals. Who does not reach the
threshold counts as having needed all trials, or all the cost.
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from optuna.trial import FrozenTrial, TrialState, create_trial
from rltune.agents.config import config_hash
from rltune.samplers import Proposer, silent_log
from rltune.space import Space
from rltune.warm_start import Earlier, ranks

Config = dict[str, Any]
SPACE = Space.from_dict(
    {
        "learning_rate": {"log": [1e-5, 1e-2]},
        "gamma": {"one_minus_log": [0.9, 0.9999]},
        "n_epochs": {"int": [1, 25], "log": True},
        "clip_range": {"uniform": [0.05, 0.4]},
        "ent_coef": {"log": [1e-5, 1e-1]},
        "optimizer": {"choice": ["adam", "rmsprop"]},
        "rms_alpha": {"uniform": [0.9, 0.999], "when": {"optimizer": "rmsprop"}},
    }
)


class Target:
    """A bumpy hill over the space, 1 at its top, whose place the seed decides.

    Args:
        seed: of the place, and of the noise of every value
        near: the hill lies close to that of another seed
        sign: -1: the hill is a valley
        n_epochs: where its top is in the range of n_epochs, 0 to 1
    """

    def __init__(
        self, seed: int, near: int | None = None, sign: float = 1, n_epochs: float | None = None
    ) -> None:
        rng = np.random.default_rng([1, seed if near is None else near])
        self.top = rng.uniform(0.15, 0.85, 5)
        self.weights = rng.permutation([4.0, 2.0, 1.0, 0.5, 0.25])
        self.best_optimizer = "adam" if rng.random() < 0.5 else "rmsprop"
        if near is not None:
            self.top += np.random.default_rng([2, seed]).normal(0, 0.1, 5)
        if n_epochs is not None:
            self.top[2], self.weights[2] = n_epochs, 2.0
        self.sign = sign
        self.noise = np.random.default_rng([3, seed])

    def true(self, config: Config) -> float:
        """Return the value without noise."""
        x = [
            math.log(config["learning_rate"] / 1e-5) / math.log(1e3),
            math.log((1 - config["gamma"]) / 1e-4) / math.log(1e3),
            math.log(config["n_epochs"]) / math.log(25),
            (config["clip_range"] - 0.05) / 0.35,
            math.log(config["ent_coef"] / 1e-5) / math.log(1e4),
        ]
        distance = float(self.weights @ (np.array(x) - self.top) ** 2)
        distance += 0.1 * (config["optimizer"] != self.best_optimizer)
        return self.sign * math.exp(-2 * distance)

    def __call__(self, config: Config) -> float:
        """Return a noisy value."""
        return self.true(config) + 0.03 * self.noise.normal()


class Bench:
    """A search in memory."""

    def __init__(self, sampler: str, seed: int, earlier: Sequence[Earlier] = (), **options: Any):
        self.proposer = Proposer(SPACE, sampler, options, seed, "maximize", earlier)
        self.trials: list[FrozenTrial] = []
        self.known: set[str] = set()

    def ask(self) -> FrozenTrial:
        """Start a trial."""
        for draw in self.proposer.draws(self.trials):
            config = SPACE.resolve(draw.values)
            if config_hash(config) not in self.known:
                break
        self.known.add(config_hash(config))
        parameters, distributions = self.proposer.as_parameters(draw.values)
        trial = create_trial(
            state=TrialState.RUNNING, params=parameters, distributions=distributions,
            system_attrs=draw.system_attrs,
            user_attrs={"configuration": config, "origin": "sampler", "proposal": draw.source},
        )  # fmt: skip
        trial.number = trial._trial_id = len(self.trials)
        self.trials.append(trial)
        return trial

    def tell(self, trial: FrozenTrial, value: float, seconds: float = 1.0) -> None:
        """End a trial at its full budget of 1,000 steps."""
        trial.user_attrs["attrs"] = {"seconds": seconds, "budget_reached": 1000}
        trial.state, trial.value = TrialState.COMPLETE, value


def config_of(trial: FrozenTrial) -> Config:
    """Return the trial's configuration."""
    config: Config = trial.user_attrs["configuration"]
    return config


def reached(bench: Bench, target: Target, threshold: float, most: int) -> int:
    """Return the number of trials until one is truly above the threshold."""
    for n in range(1, most + 1):
        trial = bench.ask()
        bench.tell(trial, target(config_of(trial)))
        if target.true(config_of(trial)) >= threshold:
            return n
    return most


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Return the geometric mean of the paired ratios with its interval."""
    logs = np.log(np.array(ours) / np.array(theirs))
    rng = np.random.default_rng(0)
    means = [rng.choice(logs, len(logs)).mean() for _ in range(4000)]
    low, high = np.exp(np.quantile(means, [0.025, 0.975]))
    return f"{np.exp(logs.mean()):.2f} [{low:.2f}, {high:.2f}]"


KINDS: dict[str, Callable[[int], Target]] = {
    "the same": lambda seed: Target(seed),
    "a similar one": lambda seed: Target(seed + 5000, near=seed),
    "unrelated": lambda seed: Target(seed + 9000),
    "reversed": lambda seed: Target(seed, sign=-1),
}


@functools.cache
def learned(name: str, seed: int, n: int = 40) -> Earlier:
    """Return what a search with tpe of one of `KINDS` has learned."""
    bench = Bench("tpe", seed + 7000)
    reached(bench, KINDS[name](seed), math.inf, n)
    values = tuple(config_of(trial) for trial in bench.trials)
    return Earlier(name, values, tuple(ranks([trial.value for trial in bench.trials])))


def warm(args: argparse.Namespace) -> None:
    """Compare searches with and without an earlier one."""
    most = args.trials or 100
    cold = [
        reached(Bench(args.sampler, s), Target(s), args.threshold, most) for s in range(args.reps)
    ]
    print(f"{args.sampler}, {args.reps} repetitions, threshold {args.threshold} of 1")
    missed = np.mean(np.array(cold) == most)
    print(f"  cold: median {np.median(cold):.0f} trials, not reached {missed:.0%}", flush=True)
    for name in ("the same", "a similar one", "unrelated", "reversed", "a similar one, reversed"):
        hot = []
        for s in range(args.reps):
            earlier = [learned(kind, s) for kind in name.split(", ")]
            hot.append(reached(Bench(args.sampler, s, earlier), Target(s), args.threshold, most))
        print(f"  from {name}: median {np.median(hot):.0f}, ratio {ratio(hot, cold)}", flush=True)


def spent(bench: Bench, target: Target, threshold: float, most: float, spread: float) -> float:
    """Return the cost until a trial is truly above the threshold; the mean trial costs 1.

    Args:
        spread: a trial with 25 epochs costs so many times one with a single epoch
    """
    mean = (spread - 1) / math.log(spread) if spread > 1 else 1.0
    total = 0.0
    while total < most:
        trial = bench.ask()
        config = config_of(trial)
        seconds = config["n_epochs"] ** (math.log(spread) / math.log(25)) / mean
        total += seconds
        bench.tell(trial, target(config), seconds)
        if target.true(config) >= threshold:
            break
    return min(total, most)


def cost(args: argparse.Namespace) -> None:
    """Compare what it costs to reach the threshold."""
    most = args.trials or 60
    samplers = ("tpe", "cost-aware", "gp") if args.sampler == "gp" else ("tpe", "cost-aware")
    print(f"{args.reps} repetitions, threshold {args.threshold} of 1, at most {most} mean trials")
    for name, top, spread in (
        ("25-fold, the best one is cheap", 0.15, 25.0),
        ("25-fold, the best one is in the middle", 0.5, 25.0),
        ("25-fold, the best one is dear", 0.85, 25.0),
        ("the same for all", 0.5, 1.0),
    ):
        costs = {
            sampler: [
                spent(Bench(sampler, s), Target(s, n_epochs=top), args.threshold, most, spread)
                for s in range(args.reps)
            ]
            for sampler in samplers
        }
        print(f"  {name}: " + "; ".join(
            f"{sampler} median {np.median(values):.1f}, not reached "
            f"{np.mean(np.array(values) >= most):.0%}, ratio {ratio(values, costs['tpe'])}"
            for sampler, values in costs.items()), flush=True)  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", choices=["warm", "cost", "rungs", "time"])
    parser.add_argument("--reps", type=int, default=40)
    parser.add_argument("--trials", type=int)
    parser.add_argument("--threshold", type=float, default=0.8)
    parser.add_argument("--sampler", default="tpe")
    with silent_log():
        arguments = parser.parse_args()
        globals()[arguments.part](arguments)
