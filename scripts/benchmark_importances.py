"""Benchmark the hyperparameter importances on functions whose true shares are known.

    python scripts/benchmark_importances.py coverage  # how often fANOVA's intervals hold the truth
    python scripts/benchmark_importances.py noise     # how often a dummy is above its floor
    python scripts/benchmark_importances.py chosen    # both, for searches that choose their trials
    python scripts/benchmark_importances.py time      # CPU seconds for 100 and for 1,000 trials
    python scripts/benchmark_importances.py report    # the tables and the figure of the document

Every repetition is a row of docs/benchmarks/importances.jsonl; recorded ones are not run again.
"""

from __future__ import annotations

import argparse
import itertools
import math
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from json_lines import append, read
from rltune.analysis.importance.design import factors_of, read_factors
from rltune.analysis.importance.importances import importances, judge
from rltune.analysis.importance.rows import percentile_interval
from rltune.analysis.importance.shuffled_trials import ShuffledTrials
from rltune.results import Run
from rltune.runs.directory import RunDir
from rltune.runs.trials_table import write_trials
from rltune.space.space import Space
from simulated_searches import FIRST, SETTINGS, shares, simulate

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "benchmarks" / "importances.jsonl"
IMAGES = ROOT / "docs" / "images"
Config = dict[str, Any]


@dataclass(frozen=True)
class Function:
    """A function over a space, with the share of the variance that each parameter makes alone."""

    space: dict[str, Any]
    value: Callable[[Config, np.random.Generator], float]
    truth: Mapping[str, float]


def numbers(count: int) -> dict[str, Any]:
    return {f"x{i}": {"uniform": [0.0, 1.0]} for i in range(count)}


def ishigami() -> Function:
    """Ishigami and Homma (1990), and three dummies; x0 and x2 interact."""

    def value(x: Config, rng: np.random.Generator) -> float:
        a, b, c = (math.pi * (2 * x[f"x{i}"] - 1) for i in range(3))
        return math.sin(a) + 7 * math.sin(b) ** 2 + 0.1 * c**4 * math.sin(a)

    first, second = 0.5 * (1 + 0.1 * math.pi**4 / 5) ** 2, 49 / 8
    total = first + second + 0.01 * math.pi**8 * 8 / 225
    return Function(numbers(6), value, {"x0": first / total, "x1": second / total})


def g_function() -> Function:
    """Sobol's g-function of six parameters (Saltelli and Sobol, 1995), and two dummies."""
    weights = [0, 1, 4.5, 9, 99, 99]

    def value(x: Config, rng: np.random.Generator) -> float:
        terms = [(abs(4 * x[f"x{i}"] - 2) + a) / (1 + a) for i, a in enumerate(weights)]
        return math.prod(terms)

    own = [1 / (3 * (1 + a) ** 2) for a in weights]
    total = math.prod(1 + variance for variance in own) - 1
    return Function(numbers(8), value, {f"x{i}": v / total for i, v in enumerate(own)})


def additive() -> Function:
    """A sum on several scales, with noise of a quarter of the variance, and five dummies."""
    space = {
        "learning_rate": {"log": [1e-5, 1e-2]},
        "optimizer": {"choice": ["adam", "rmsprop", "sgd"]},
        "n_steps": {"pow2": [32, 1024]},
        "n_epochs": {"int": [1, 20]},
        "gamma": {"one_minus_log": [0.9, 0.9999]},
        "activation": {"choice": ["tanh", "relu"]},
        **{f"x{i}": {"uniform": [0.0, 1.0]} for i in range(2)},
    }
    bonus = {"adam": 1.0, "rmsprop": 0.5, "sgd": 0.0}

    def value(x: Config, rng: np.random.Generator) -> float:
        place = (math.log10(x["learning_rate"]) + 5) / 3
        bits = math.log2(x["n_steps"]) - 5
        return (
            math.sin(math.pi * place) * 2 + bonus[x["optimizer"]] + bits / 5 + noise * rng.normal()
        )

    own = {
        "learning_rate": 4 * (0.5 - (2 / math.pi) ** 2),
        "optimizer": float(np.var([1.0, 0.5, 0.0])),
        "n_steps": float(np.var(np.arange(6) / 5)),
    }
    noise = math.sqrt(sum(own.values()) / 3)
    total = sum(own.values()) * 4 / 3
    return Function(space, value, {name: v / total for name, v in own.items()})


def conditional() -> Function:
    """Two conditional parameters, one per optimizer and one of them a dummy, and two dummies."""
    space = {
        "optimizer": {"choice": ["adam", "rmsprop", "sgd"]},
        "alpha": {"uniform": [0.0, 1.0], "when": {"optimizer": "rmsprop"}},
        "momentum": {"uniform": [0.0, 1.0], "when": {"optimizer": "sgd"}},
        **numbers(3),
    }

    def value(x: Config, rng: np.random.Generator) -> float:
        own = {"adam": 1.5, "rmsprop": 3 * x.get("alpha", 0.0), "sgd": 0.0}[x["optimizer"]]
        return own + x["x0"] + 0.5 * rng.normal()

    own = {"optimizer": float(np.var([1.5, 1.5, 0.0])), "alpha": 9 / 12 / 3, "x0": 1 / 12}
    total = sum(own.values()) + 0.25
    return Function(space, value, {name: v / total for name, v in own.items()})


FUNCTIONS = {
    "ishigami": ishigami,
    "g-function": g_function,
    "additive": additive,
    "conditional": conditional,
}


# ---------------------------------------------------------------------------------- a repetition


def draw(function: Function, trials: int, seed: int) -> list[tuple[Config, float]]:
    """Return configurations drawn at random, and their values."""
    space, rng = Space.from_dict(function.space), np.random.default_rng([seed, trials])
    configs = [space.sample(rng) for _ in range(trials)]
    return [(config, function.value(config, rng)) for config in configs]


def make_run(folder: Path, function: Function) -> RunDir:
    spec = {"agent": "none", "env": "none", "space": {"space": function.space}, "sampler": "random"}
    return RunDir.create(folder, spec, exist_error=False)


def fill(run: RunDir, trials: list[tuple[Config, float]]) -> Run:
    """Write the trials to a run directory, as a search does."""
    names = run.spec["space"]["space"]
    rows = [
        {
            "trial": number,
            "state": "COMPLETE",
            "objective": value,
            "rung": 1000,
            **{f"config.{name}": config.get(name) for name in names},
        }
        for number, (config, value) in enumerate(trials)
    ]
    write_trials(run.trials_path, rows)
    return Run(run)


def coverage(function: Function, run: Run, seed: int) -> dict[str, Any]:
    """Return (share, low, high, the forest's own share) of each parameter."""
    design = read_factors(run, seed).design
    analysis = ShuffledTrials(read_factors(run, seed), samples=500, seed=seed)
    found = {}
    for i, column in enumerate(design.columns):
        value, samples = analysis.fanova(i)
        found[column.name] = [
            round(x, 4) for x in (value, *percentile_interval(samples), analysis.plain(i))
        ]
    return found


def noise(function: Function, run: Run, seed: int) -> dict[str, Any]:
    """Return, by method, the parameters above their floors, and whether a pair is."""
    frame = importances(run, samples=2, seed=seed)
    return {
        str(method): rows[~rows["is_noise"]]["parameter"].tolist()
        for method, rows in frame.groupby("method")
    }


KINDS = {"coverage": coverage, "noise": noise}
DESIGNS = [f"{s}+{judge}" for s in ("tpe", "cost-aware", "cmaes") for judge in ("asha", "none")]


def chosen(names: list[str], trials: int, repetitions: int) -> None:
    """Simulate searches whose samplers learn, and compute their importances."""
    done = {key_of(row) for row in read(RESULTS)}
    every = itertools.product(range(repetitions), names, DESIGNS)
    for seed, name, design in every:
        row: dict[str, Any] = {"kind": "chosen", "function": name, "design": design}
        row |= {"trials": trials, "seed": seed}
        if key_of(row) in done:
            continue
        setting = SETTINGS[name]
        sampler, scheduler = design.split("+")
        search = simulate(setting, sampler, scheduler, trials, seed)
        spec = {"space": {"space": dict(setting.space)}, "sampler": sampler}
        frame = judge(factors_of(spec, search.rows, lambda: search.reports), seed=seed)  # noqa: B023
        row["true"] = {name: round(v, 4) for name, v in shares(setting, search).items()}
        row["found"] = {
            method: {
                r.parameter: [round(x, 4) for x in (r.importance, r.low, r.high, r.floor)]
                for r in rows.itertuples()
            }
            for method, rows in frame.groupby("method")
        }
        append(RESULTS, row)


def repeat(kind: str, names: list[str], trials: int, repetitions: int) -> None:
    done = {key_of(row) for row in read(RESULTS)}
    for name in names:
        function = FUNCTIONS[name]()
        with tempfile.TemporaryDirectory() as folder:
            run = make_run(Path(folder) / "run", function)
            for seed in range(repetitions):
                row = {"kind": kind, "function": name, "design": "random", "trials": trials}
                row["seed"] = seed
                if key_of(row) in done:
                    continue
                filled = fill(run, draw(function, trials, seed))
                row["found"] = KINDS[kind](function, filled, seed)
                append(RESULTS, row)


def key_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("kind", "function", "design", "trials", "seed"))


# -------------------------------------------------------------------------------- what came of it


def covered(function: str, design: str, trials: int) -> pd.DataFrame:
    """Return a row per repetition and parameter: true share, share, interval, forest's share."""
    truth = FUNCTIONS[function]().truth
    rows = [
        (row["seed"], name, truth.get(name, 0.0), *found)
        for row in read(RESULTS)
        if key_of(row)[:4] == ("coverage", function, design, trials)
        for name, found in row["found"].items()
    ]
    names = ["seed", "parameter", "truth", "share", "low", "high", "forest"]
    frame = pd.DataFrame(rows, columns=names)
    held = (frame["low"] <= frame["truth"] + 1e-9) & (frame["truth"] <= frame["high"] + 1e-9)
    return frame.assign(held=held)


def error(values: pd.DataFrame, column: str) -> float:
    """Return the standard error of a mean; repetitions are independent, their rows are not."""
    means = values.groupby("seed")[column].mean()
    return float(means.std(ddof=1) / math.sqrt(len(means)))


def report() -> None:
    designs = sorted({key_of(row)[1:4] for row in read(RESULTS) if row["kind"] == "coverage"})
    print("| function | trials | repetitions | coverage | lowest of a parameter | mean width |")
    print("|---|---|---|---|---|---|")
    for function, design, trials in designs:
        frame = covered(function, design, trials)
        by = frame.groupby("parameter")["held"].mean()
        width = (frame["high"] - frame["low"]).mean()
        count = frame["seed"].nunique()
        low, lowest = by.min(), by.idxmin()
        low_error = math.sqrt(low * (1 - low) / count)
        print(
            f"| {function} | {trials} {design} | {count} | {frame['held'].mean():.1%} ± "
            f"{error(frame, 'held'):.1%} | {low:.1%} ± {low_error:.1%} ({lowest}) | {width:.3f} |"
        )
        shares = frame.groupby("parameter")[["truth", "share", "forest"]].mean().round(3)
        print("  ", shares.to_dict("index"))
    print("\n| function | trials | repetitions | method | dummies above their floor | found |")
    print("|---|---|---|---|---|---|")
    for function, design, trials in sorted(
        {key_of(r)[1:4] for r in read(RESULTS) if r["kind"] == "noise"}
    ):
        noise_rows(function, design, trials)
    chosen_tables()
    figure(designs)


def chosen_tables() -> None:
    """Print how often dummies and real parameters were above their floors, for chosen trials."""
    rows = []
    for row in read(RESULTS):
        if row["kind"] != "chosen":
            continue
        setting = SETTINGS[row["function"]]
        about = {name: row[name] for name in ("function", "design", "seed")}
        about["set"] = "first" if row["function"] in FIRST else "second"
        for method, names in row["found"].items():
            for name, (value, low, high, floor) in names.items():
                # Without a number (too few trials have it) it counts as not found.
                outcome = {"real": name in setting.real, "parameter": name, "above": value > floor}
                outcome["held"] = low - 0.001 <= row["true"][name] <= high + 0.001
                rows.append(about | outcome | {"method": method})
    frame = pd.DataFrame(rows)
    dummies, real = frame[~frame["real"]], frame[frame["real"]]
    for title, groups, counted in (
        ("dummies above", ["set", "design"], dummies),
        ("dummies above", ["set"], dummies),
        ("found", ["set", "function", "parameter"], real),
        ("found", ["set", "function", "parameter", "design"], real),
    ):
        table = counted.pivot_table("above", groups, "method", aggfunc=["mean", "count"])
        print(f"\n{title}\n{table.round(3).to_string()}")
    mine = frame[frame["method"] == "fanova"]
    held = mine.groupby(["set", "real"])["held"].agg(["mean", "count"])
    print(f"\nintervals that hold the truth\n{held}")


def noise_rows(function: str, design: str, trials: int) -> None:
    made = FUNCTIONS[function]()
    dummies = [name for name in made.space if not made.truth.get(name)]
    if function == "ishigami":
        dummies.remove("x2")  # it has an interaction
    rows = [r for r in read(RESULTS) if key_of(r)[:4] == ("noise", function, design, trials)]
    for method in ("fanova", "ped-anova", "permutation"):
        above = pd.DataFrame(
            [(r["seed"], name in r["found"].get(method, [])) for r in rows for name in dummies],
            columns=["seed", "above"],
        )
        power = {
            name: round(float(np.mean([name in r["found"].get(method, []) for r in rows])), 2)
            for name, share in made.truth.items()
            if share > 0.02
        }
        print(
            f"| {function} | {trials} {design} | {len(rows)} | {method} | "
            f"{above['above'].mean():.1%} ± {error(above, 'above'):.1%} of {len(above)} | {power} |"
        )
    pairs = [sum(" x " in name for name in r["found"].get("fanova", [])) > 0 for r in rows]
    print(f"| | | | | a pair is above in {np.mean(pairs):.0%} | |")


def figure(designs: list[Any]) -> None:
    """Draw the estimated shares against the true ones, with and without the correction."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = [design for design in designs if design[1:] == ("random", 100)]
    fig, axes = plt.subplots(1, len(shown), figsize=(3 * len(shown), 3.2), squeeze=False)
    for axis, (function, design, trials) in zip(axes[0], shown, strict=True):
        frame = covered(function, design, trials)
        groups = frame.groupby("parameter", sort=False)
        names = list(groups.groups)
        places = np.arange(len(names))
        mean = groups["share"].mean()[names]
        ends = [groups["share"].quantile(q)[names] for q in (0.05, 0.95)]
        reach = np.abs(np.array([mean - ends[0], ends[1] - mean]))
        axis.errorbar(mean, places, xerr=reach, fmt="o", ms=4, label="here, 90 % of searches")
        axis.plot(groups["forest"].mean()[names], places, "x", c="tab:red", label="forest alone")
        axis.plot(groups["truth"].first()[names], places, "|", c="k", ms=14, label="true share")
        axis.set_yticks(places, names, fontsize=7)
        axis.invert_yaxis()
        axis.set_title(function, fontsize=10)
        axis.set_xlabel("share of the variance", fontsize=8)
    axes[0][0].legend(fontsize=6)
    fig.tight_layout()
    fig.savefig(IMAGES / "importances.png", dpi=110)


def measure_time() -> None:
    rng = np.random.default_rng(0)
    space = numbers(12)
    for trials in (100, 1000):
        with tempfile.TemporaryDirectory() as folder:
            made = Function(space, lambda x, r: x["x0"] + x["x1"] * x["x2"] + r.normal() / 4, {})
            run = fill(make_run(Path(folder) / "run", made), draw(made, trials, 0))
            started = time.process_time()
            importances(run, seed=int(rng.integers(100)))
            seconds = time.process_time() - started
            print(f"{trials} trials of {len(space)} parameters: {seconds:.1f} s of CPU")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=[*KINDS, "chosen", "time", "report"])
    parser.add_argument("--functions", nargs="+", choices=[*FUNCTIONS, *SETTINGS])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--repetitions", type=int, default=100)
    args = parser.parse_args()
    if args.what == "time":
        measure_time()
    elif args.what == "report":
        report()
    elif args.what == "chosen":
        chosen(args.functions or list(SETTINGS), args.trials, args.repetitions)
    else:
        repeat(args.what, args.functions or list(FUNCTIONS), args.trials, args.repetitions)


if __name__ == "__main__":
    main()
