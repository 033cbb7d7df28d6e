"""Benchmark the samplers on synthetic functions: no training, no Ray, no database.

    python scripts/benchmark_samplers.py warm   # trials to the threshold, with and without --from
    python scripts/benchmark_samplers.py prior  # the same, with and without priors
    python scripts/benchmark_samplers.py cost   # cost to the threshold: cost-aware against tpe
    python scripts/benchmark_samplers.py rungs  # trials stopped early: what tpe learns from them
    python scripts/benchmark_samplers.py time   # milliseconds for a proposal after 2,000 trials

Ratios are paired by seed: geometric means with 95 % bootstrap intervals. A search that does not
reach the threshold counts as having needed all trials, or all the cost.
"""

from __future__ import annotations

import argparse
import functools
import heapq
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from optuna.trial import FrozenTrial, TrialState, create_trial
from rltune.agents.config import config_hash
from rltune.samplers import tpe
from rltune.samplers.proposer import Proposer
from rltune.samplers.registry import SAMPLERS
from rltune.samplers.views import completed
from rltune.samplers.warm_start import Earlier, ranks
from rltune.schedulers.registry import make_scheduler
from rltune.space.space import Space
from rltune.study.distributions import from_unit, make_distribution
from rltune.study.optuna_log import silent_log

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
    """A bumpy hill over the space, 1 at its top; the seed determines its place.

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

    def __init__(
        self, sampler: str, seed: int, earlier: Sequence[Earlier] = (), space: Space = SPACE
    ):
        self.proposer = Proposer(space, sampler, {}, seed, "maximize", earlier)
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
            user_attrs={"configuration": config, "hash": config_hash(config),
                        "origin": "sampler", "proposal": draw.source},
        )  # fmt: skip
        trial.number = trial._trial_id = len(self.trials)
        self.trials.append(trial)
        return trial

    def tell(self, trial: FrozenTrial, value: float, seconds: float = 1.0) -> None:
        """End a trial at its whole budget of 1,000 steps."""
        trial.user_attrs["attrs"] = {"seconds": seconds, "budget_reached": 1000}
        trial.state, trial.value = TrialState.COMPLETE, value


def config_of(trial: FrozenTrial) -> Config:
    """Return the trial's configuration."""
    config: Config = trial.user_attrs["configuration"]
    return config


def reached(bench: Bench, target: Target, threshold: float, most: int) -> int:
    """Return the number of trials until one is above the threshold, without noise."""
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
    """Return the trials of a search with tpe on one of `KINDS`, as a warm start reads them."""
    bench = Bench("tpe", seed + 7000)
    reached(bench, KINDS[name](seed), math.inf, n)
    values = tuple(config_of(trial) for trial in bench.trials)
    return Earlier(name, values, tuple(ranks([trial.value for trial in bench.trials])))


def warm(args: argparse.Namespace) -> None:
    """Compare searches with and without a warm start."""
    most = args.trials or 100
    cold = [
        reached(Bench(args.sampler, s), Target(s), args.threshold, most) for s in range(args.reps)
    ]
    print(f"{args.sampler}, {args.reps} repetitions, threshold {args.threshold} of 1")
    missed = np.mean(np.array(cold) == most)
    print(f"  cold: median {np.median(cold):.0f} trials, not reached {missed:.0%}", flush=True)
    for name in args.earlier or (*KINDS, "a similar one, reversed"):
        hot = []
        for s in range(args.reps):
            earlier = [learned(kind, s) for kind in name.split(", ")]
            hot.append(reached(Bench(args.sampler, s, earlier), Target(s), args.threshold, most))
        print(f"  from {name}: median {np.median(hot):.0f}, ratio {ratio(hot, cold)}", flush=True)


def expecting(target: Target, off: float, seed: int) -> Space:
    """Return the space with priors: so far from the top, in the manner of a user's guess."""
    rng = np.random.default_rng([4, seed])
    shares = np.clip(target.top + off * rng.choice([-1.0, 1.0], 5), 0.02, 0.98)
    data = SPACE.to_dict()
    for name, share in zip(list(data["space"])[:5], shares, strict=True):
        # The hill knows gamma by its distance from 1, as the sampler does.
        dimension = SPACE.dimensions[name]
        expected = from_unit(make_distribution(dimension), share)
        data["space"][name]["prior"] = dimension.from_internal(expected)
    return Space.from_dict(data)


def prior(args: argparse.Namespace) -> None:
    """Compare searches with and without priors."""
    most = args.trials or 100
    targets = [Target(s) for s in range(args.reps)]
    cold = [reached(Bench(args.sampler, s), t, args.threshold, most) for s, t in enumerate(targets)]
    print(f"{args.sampler}, {args.reps} repetitions, threshold {args.threshold} of 1")
    print(f"  without: median {np.median(cold):.0f} trials", flush=True)
    for off in (0.0, 0.1, 0.2, 0.3, 0.5):
        hot = []
        for s in range(args.reps):
            target = Target(s)
            bench = Bench(args.sampler, s, space=expecting(target, off, s))
            hot.append(reached(bench, target, args.threshold, most))
        print(f"  {off:.0%} of each range off: median {np.median(hot):.0f}, "
              f"ratio {ratio(hot, cold)}", flush=True)  # fmt: skip


def spent(bench: Bench, target: Target, threshold: float, most: float, spread: float) -> float:
    """Return the cost until a trial is above the threshold, without noise; the mean trial costs 1.

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
    """Compare the cost to reach the threshold."""
    most = args.trials or 60
    proposer = ("tpe", "cost-aware", "gp") if args.sampler == "gp" else ("tpe", "cost-aware")
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
            for sampler in proposer
        }
        print(f"  {name}: " + "; ".join(
            f"{sampler} median {np.median(values):.1f}, not reached "
            f"{np.mean(np.array(values) >= most):.0%}, ratio {ratio(values, costs['tpe'])}"
            for sampler, values in costs.items()), flush=True)  # fmt: skip


STEPS = [111, 333, 1000]  # at which a trial is judged
NOISE = [0.25, 0.1, 0.03]


def halved(bench: Bench, target: Target, most: float, at_once: int = 4) -> float:
    """Return the true value of the best whole trial after a number of whole budgets under ASHA."""
    scheduler = make_scheduler("asha", STEPS[-1], {"n_rungs": 3})
    noise = np.random.default_rng(target.noise.integers(2**31))
    flying: list[tuple[float, int, int]] = []  # when it reaches its next rung, number, rung
    spans = np.diff([0, *STEPS]) / STEPS[-1]
    clock, used, best = 0.0, 0.0, (-math.inf, 0.0)
    while used < most or flying:
        while used < most and len(flying) < at_once:
            heapq.heappush(flying, (clock + spans[0], bench.ask().number, 0))
        clock, number, rung = heapq.heappop(flying)
        used += spans[rung]
        trial = bench.trials[number]
        true = target.true(config_of(trial))
        value = true * (0.4 + 0.2 * (rung + 1)) + NOISE[rung] * noise.normal()
        trial.intermediate_values[STEPS[rung]] = trial.value = value
        if rung == len(STEPS) - 1:
            trial.state = TrialState.COMPLETE
            best = max(best, (value, true))
        elif scheduler.decide(number, STEPS[rung], value) == "stop":
            trial.state = TrialState.PRUNED
        else:
            heapq.heappush(flying, (clock + spans[rung + 1], number, rung + 1))
    return best[1]


def largest_budget(trials: Sequence[FrozenTrial], minimize: Sequence[bool]) -> list[FrozenTrial]:
    """Show TPE the values of the largest budget that seven trials have reached, as in BOHB."""
    for step in reversed(STEPS):
        there = [t for t in trials if step in t.intermediate_values]
        if len(there) >= 7:
            return [completed(t, t.intermediate_values[step]) for t in there] + [
                t for t in trials if t.state == TrialState.RUNNING
            ]
    return list(trials)


def only_full(trials: Sequence[FrozenTrial], minimize: Sequence[bool]) -> list[FrozenTrial]:
    """Hide the trials stopped early."""
    return [trial for trial in trials if trial.state != TrialState.PRUNED]


def rungs(args: argparse.Namespace) -> None:
    """Compare ways to show TPE the trials stopped early."""
    most = args.trials or 30
    print(f"true value of the best after {most} whole budgets, {args.reps} repetitions")
    kept, found = tpe.for_tpe, {}
    for name, view in (
        ("as it is", kept),
        ("the largest budget only", largest_budget),
        ("whole budgets only", only_full),
    ):
        tpe.for_tpe = view
        found[name] = [halved(Bench("tpe", s), Target(s), most) for s in range(args.reps)]
        gap = np.array(found[name]) - np.array(found["as it is"])
        error = 1.96 * gap.std() / math.sqrt(len(gap))
        print(f"  {name}: mean {np.mean(found[name]):.3f}; "
              f"difference {gap.mean():+.3f} +- {error:.3f}", flush=True)  # fmt: skip
    tpe.for_tpe = kept


def timed(args: argparse.Namespace) -> None:
    """Time a proposal after 2,000 trials, a third of them complete."""
    rng = np.random.default_rng(0)
    for name in SAMPLERS:
        for earlier in ([], [learned("the same", 0)]):
            bench, target = Bench(name, 0, earlier), Target(0)
            for n in range(2000):
                values = SPACE.sample(rng)
                parameters, distributions = bench.proposer.as_parameters(values)
                trial = create_trial(
                    state=TrialState.RUNNING, params=parameters, distributions=distributions,
                    user_attrs={"configuration": values, "hash": config_hash(values),
                                "origin": "sampler"},
                )  # fmt: skip
                trial.number = trial._trial_id = n
                bench.trials.append(trial)
                bench.tell(trial, target(values))
                trial.intermediate_values[STEPS[2]] = trial.value
                if n % 3:
                    trial.intermediate_values = {STEPS[n % 3 - 1]: trial.value}
                    trial.state = TrialState.PRUNED
            spans = []
            for _ in range(8):
                started = time.process_time()
                bench.ask()
                spans.append(time.process_time() - started)
            what = "with a warm start" if earlier else ""
            print(f"  {name:10} {np.median(spans) * 1000:6.1f} ms of CPU, the first "
                  f"{spans[0] * 1000:.0f} {what}", flush=True)  # fmt: skip


PARTS = {"warm": warm, "prior": prior, "cost": cost, "rungs": rungs, "time": timed}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", choices=list(PARTS))
    parser.add_argument("--reps", type=int, default=40)
    parser.add_argument("--trials", type=int)
    parser.add_argument("--threshold", type=float, default=0.8)
    parser.add_argument("--earlier", action="append", help="of warm: 'reversed', ...")
    parser.add_argument("--sampler", default="tpe")
    with silent_log():
        arguments = parser.parse_args()
        PARTS[arguments.part](arguments)
