"""Replay searches on recorded learning curves, to compare numbers of seeds per trial.

    python scripts/study_seeds.py record     # resumable; hours of CPU, can run in the background
    python scripts/study_seeds.py simulate   # seconds: the tables of docs/measurements.md
    python scripts/study_seeds.py halving    # seconds: when ASHA stops trials
    python scripts/study_seeds.py answers    # a minute: rules for the answer, sizes of tournaments

`record` trains configurations drawn from a shipped space on ten seeds each, and stores every greedy
evaluation in docs/benchmarks/curves/. `simulate` then runs many searches on them at equal env
steps: each draws the configurations in another order, trains them rung by rung on as many seeds as
its policy says, and stops trials by ASHA; then its best three are compared on test seeds. What
counts is the true return of the configuration that a search names: the mean of its final scores on
seeds that neither the search nor the tournament used. These seeds differ between repetitions.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

from json_lines import append, read

ROOT = Path(__file__).resolve().parent.parent
CURVES = ROOT / "docs" / "benchmarks" / "curves"
SEEDS = range(10)
TEST_SEEDS, FINALISTS = 3, 3  # of the tournament
CONFIGURATIONS = 64
DEFAULTS, KNOWN_GOOD = -1, -2
STARTS = (DEFAULTS, KNOWN_GOOD)  # the first trials of a search
EVALUATIONS, EPISODES = 9, 10
REPETITIONS = 200


class Setting(NamedTuple):
    agent: str
    env: str
    budget: int  # env steps of a whole budget


SETTINGS = [
    Setting("ppo", "CartPole-v1", 20_000),
    Setting("a2c", "CartPole-v1", 40_000),
    Setting("ppo", "Acrobot-v1", 40_000),
    Setting("dqn", "CartPole-v1", 10_000),
]


class Outcome(NamedTuple):
    """True returns of the best of a search, and of the winner of the tournament after it."""

    searched: float
    tested: float
    tried: int


class Policy(NamedTuple):
    """The number of seeds of a configuration at each rung, and ASHA's options.

    With `most`, a configuration among the best third after its whole budget gets so many.
    """

    seeds: tuple[int, ...]
    options: Mapping[str, float] = {}
    most: int = 0

    @property
    def tuning_seeds(self) -> int:
        """How many seeds a search uses."""
        return max(self.most, *self.seeds)


POLICIES = {
    "one seed": Policy((1, 1, 1)),
    "three seeds": Policy((3, 3, 3)),
    "racing": Policy((1, 1, 1), most=3),
    "racing:2": Policy((1, 1, 1), most=2),
    "at rungs, 1-2-3": Policy((1, 2, 3)),
    "at rungs, 1-2-2": Policy((1, 2, 2)),
}
HALVINGS = {
    "from 5 on, a third": Policy((1, 1, 1)),
    "from 3 on, a third": Policy((1, 1, 1), {"min_population": 3}),
    "from 2 on, a third": Policy((1, 1, 1), {"min_population": 2}),
    "from 5 on, a quarter": Policy((1, 1, 1), {"reduction_factor": 4}),
    "from 2 on, a quarter": Policy((1, 1, 1), {"min_population": 2, "reduction_factor": 4}),
}


# ------------------------------------------------------------------------------------- recording


def file_of(setting: Setting) -> Path:
    return CURVES / f"{setting.agent}-{setting.env}.jsonl"


def configurations(setting: Setting) -> list[dict[str, Any]]:
    """Return the configurations, the same ones in each call."""
    import numpy as np
    from rltune.space.space import Space

    space, rng = Space.load(setting.agent), np.random.default_rng(0)
    return [space.resolve(space.sample(rng)) for _ in range(CONFIGURATIONS)]


def starts(setting: Setting) -> dict[int, dict[str, Any]]:
    """Return the agent's defaults, and the known-good settings of the environment."""
    import rltune

    return {DEFAULTS: {}, KNOWN_GOOD: rltune.preset(setting.agent, setting.env)}


def record(settings: Sequence[Setting]) -> None:
    """Train the missing configurations, one after the other, on all seeds."""
    done = {
        (setting, row["configuration"], row["seed"])
        for setting in settings
        for row in read(file_of(setting))
    }
    for number, setting in itertools.product((*STARTS, *range(CONFIGURATIONS)), settings):
        config = starts(setting)[number] if number in STARTS else configurations(setting)[number]
        for seed in SEEDS:
            if (setting, number, seed) in done:
                continue
            row = {"configuration": number, "seed": seed, **train(setting, config, seed)}
            append(file_of(setting), row)
        print(setting, "configuration", number, flush=True)


def train(setting: Setting, config: dict[str, Any], seed: int) -> dict[str, Any]:
    """Train a configuration on a seed; a training that diverges has no further values."""
    from rltune.agents.config import hyperparameters
    from rltune.agents.loop.agent import Agent
    from rltune.agents.registry import agent_class

    name, env, budget = setting
    known = hyperparameters(agent_class(name).Config)
    config = {key: value for key, value in config.items() if key in known}
    agent = Agent(  # all with one engine: their seconds are compared
        name, env, config, total_timesteps=budget, seed=seed, device="cpu", engine="torch"
    )
    started, returns = time.process_time(), []
    for k in range(1, EVALUATIONS + 1):
        if agent.learn(round(budget * k / EVALUATIONS)).diverged:
            break
        returns.append(round(agent.evaluate(EPISODES).mean, 3))
    agent.close()
    return {"returns": returns, "seconds": round(time.process_time() - started, 2)}


# ------------------------------------------------------------------------------------ simulation

Curves = dict[int, dict[int, list[float]]]  # configuration -> seed -> objectives at the points


def curves_of(setting: Setting, *, with_starts: bool = False) -> Curves:
    """Return the objectives of the configurations trained on all seeds.

    Args:
        setting: agent and environment
        with_starts: the defaults and the known-good settings, too
    """
    from rltune.objectives.metrics import DEFAULT, objective_of

    curves: Curves = {}
    for row in read(file_of(setting)):
        if row["configuration"] in STARTS and not with_starts:
            continue
        returns = row["returns"]
        objectives = [objective_of(returns[: n + 1], DEFAULT) for n in range(len(returns))]
        objectives += [float("-inf")] * (EVALUATIONS - len(objectives))
        curves.setdefault(row["configuration"], {})[row["seed"]] = objectives
    return {number: curve for number, curve in curves.items() if len(curve) == len(SEEDS)}


def search(
    curves: Curves, policy: Policy, limit: float, seeds: Sequence[int], rng: Any
) -> tuple[list[int], int]:
    """Run one search; return its best configurations, best first, and how many it has tried.

    Args:
        curves: the objectives of trials
        policy: the number of seeds at each rung
        limit: of the search, in full trainings on one seed
        seeds: tuning seeds in order, the same for all trials
        rng: for the order of the configurations
    """
    import numpy as np
    from rltune.schedulers.asha import ASHA
    from rltune.stats.estimates import iqm

    points = [EVALUATIONS // 9, EVALUATIONS // 3, EVALUATIONS]
    asha = ASHA(points, **policy.options)
    spreads: dict[int, list[float]] = {point: [] for point in points}
    tried, spent = 0, 0.0
    whole: list[tuple[float, int]] = []
    for number in rng.permutation(list(curves)).tolist():
        if spent >= limit:
            break
        tried += 1
        trained: dict[int, int] = {}
        for point, n in zip(points, policy.seeds, strict=True):
            for seed in seeds[:n]:
                spent += (point - trained.get(seed, 0)) / EVALUATIONS
                trained[seed] = point
            values = [curves[number][seed][point - 1] for seed in seeds[:n]]
            value = iqm(values)
            if n > 1 and np.isfinite(values).all():
                spreads[point].append(float(np.var(values, ddof=1)))
            noise = (np.mean(spreads[point]) / n) ** 0.5 if spreads[point] else 0.0
            verdict = asha.decide(number, point, value if np.isfinite(value) else None, noise)
            if verdict == "stop" or not np.isfinite(value):
                break
            if point == EVALUATIONS:
                if policy.most > 1 and asha.is_among_best(number):
                    spent += policy.most - 1
                    value = iqm([curves[number][seed][-1] for seed in seeds[: policy.most]])
                    asha.decide(number, point, value)
                whole.append((value, number))
    return [number for _, number in sorted(whole, reverse=True)], tried


def outcome(curves: Curves, policy: Policy, limit: float, repetition: int) -> Outcome | None:
    """Run one search and its tournament, on disjoint tuning, test and validation seeds."""
    import numpy as np
    from rltune.stats.estimates import iqm

    rng = np.random.default_rng(repetition)
    seeds = rng.permutation(SEEDS).tolist()
    tests, others = seeds[:TEST_SEEDS], seeds[TEST_SEEDS:]
    best, tried = search(curves, policy, limit, others, rng)
    if not best:
        return None
    unseen = others[policy.tuning_seeds :]
    worst = floor(curves)

    def true(number: int) -> float:
        return float(np.mean([max(curves[number][seed][-1], worst) for seed in unseen]))

    ends = {n: iqm([curves[n][seed][-1] for seed in tests]) for n in best[:FINALISTS]}
    return Outcome(true(best[0]), true(max(ends, key=lambda n: ends[n])), tried)


def simulate(
    settings: Sequence[Setting], limits: Sequence[float], policies: Mapping[str, Policy]
) -> None:
    """Print the true returns of the policies at equal env steps, a table per outcome."""
    columns = ["agent, environment (configurations)", "full trainings", *policies]
    tables: dict[str, list[list[str]]] = {"tried": [], "searched": [], "tested": []}
    for setting, limit in itertools.product(settings, limits):
        curves = curves_of(setting)
        if len(curves) < 10:
            print(f"{setting}: {len(curves)} configurations are recorded", file=sys.stderr)
            continue
        nothing = Outcome(floor(curves), floor(curves), 0)
        found = [
            [outcome(curves, policy, limit, n) or nothing for n in range(REPETITIONS)]
            for policy in policies.values()
        ]
        title = [f"{setting.agent}, {setting.env} ({len(curves)})", f"{limit:g}"]
        for name, rows in tables.items():
            values = [[getattr(outcome, name) for outcome in outcomes] for outcomes in found]
            shown = [against(mine, values[0]) for mine in values]
            if name == "tried":
                shown = [f"{sum(mine) / len(mine):.0f}" for mine in values]
            rows.append([*title, *shown])
    for name, rows in tables.items():
        print(f"\n{name}\n\n| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
        print(*(f"| {' | '.join(row)} |" for row in rows), sep="\n")


# --------------------------------------------------------------------- whom to name after all of it

RULES = ("beyond chance", "one standard error", "highest")
SIZES = ((1, 3), (2, 3), (3, 3), (1, 5), (3, 5))  # finalists beside the defaults, test seeds
DEFAULTS_AT = (0.5, 0.8)  # of the configurations, the worst first: what stands for the defaults


def answers(settings: Sequence[Setting]) -> None:
    """Print the true returns of the named configurations, by rule and by size of the tournament.

    A configuration from the middle, or from the edge of the best fifth, stands for the defaults.
    """
    print(f"| agent, environment | the defaults | {' | '.join(RULES)} |")
    print("|---" * (2 + len(RULES)) + "|")
    for setting, place in itertools.product(settings, DEFAULTS_AT):
        default, found = named(setting, place, 30, 3, 5)
        cells = [f"{default:.1f}", *(f"{found[rule]:.1f}" for rule in RULES)]
        print(f"| {setting.agent}, {setting.env} | {' | '.join(cells)} |")
    sizes = [f"{finalists + 1} x {seeds}" for finalists, seeds in SIZES]
    print(f"\n| agent, environment | trainings in all | {' | '.join(sizes)} |")
    print("|---" * (2 + len(SIZES)) + "|")
    for setting, total in itertools.product(settings, (20, 30, 45)):
        cells = []
        for finalists, seeds in SIZES:
            if total - (finalists + 1) * seeds < 3:
                cells.append("-")
                continue
            each = [named(setting, p, total, finalists, seeds)[1][RULES[1]] for p in DEFAULTS_AT]
            cells.append(f"{sum(each) / len(each):.1f}")
        print(f"| {setting.agent}, {setting.env} | {total} | {' | '.join(cells)} |")


def named(
    setting: Setting, place: float, total: int, finalists: int, n_tests: int, repetitions: int = 100
) -> tuple[float, dict[str, float]]:
    """Return the mean true returns of the defaults and of the configurations that the rules name.

    Args:
        setting: agent and environment
        place: of the configuration that stands for the defaults, in the order of true returns
        total: full trainings, the tournament's included
        finalists: of the search
        n_tests: test seeds of the tournament
        repetitions: number of searches to average over
    """
    import numpy as np
    from rltune.answer.model import Finalist
    from rltune.answer.ranking import build_answer

    curves = curves_of(setting)
    worst = floor(curves)
    scores = {n: {s: max(curve[s][-1], worst) for s in SEEDS} for n, curve in curves.items()}
    order = sorted(scores, key=lambda n: sum(scores[n].values()))
    default = order[int(place * len(order))]
    pool = {n: by_seed for n, by_seed in curves.items() if n != default}
    found: dict[str, list[float]] = {rule: [] for rule in RULES}
    for repetition in range(repetitions):
        rng = np.random.default_rng(repetition)
        seeds = rng.permutation(SEEDS).tolist()
        limit = total - (finalists + 1) * n_tests
        best, _ = search(pool, POLICIES["one seed"], limit, seeds[-1:], rng)
        answer = build_answer(
            Finalist(
                trial=n, config={}, origins=("default" if n == default else "sampler",),
                seeds={seed: scores[n][seed] for seed in seeds[:n_tests]},
            )
            for n in [default, *best[:finalists]]
        )  # fmt: skip
        assert answer.winner is not None
        highest = answer.ranking[0]
        sure = highest.trial if highest.better_than_default else default
        for rule, n in zip(RULES, (sure, answer.winner, highest.trial), strict=True):
            found[rule].append(float(np.mean([scores[n][seed] for seed in seeds[n_tests:-1]])))
    true = sum(scores[default].values()) / len(SEEDS)
    return true, {rule: sum(values) / len(values) for rule, values in found.items()}


def against(values: Sequence[float], first: Sequence[float]) -> str:
    """Return the mean of the first policy, or the difference to it, with a 95 % interval."""
    import numpy as np
    from rltune.stats.estimates import bootstrap_interval

    if values is first:
        return f"{np.mean(values):.1f}"
    more = np.subtract(values, first)
    low, high = bootstrap_interval(more.tolist(), lambda v: float(np.mean(v)), n=2000)
    return f"{np.mean(more):+.1f} [{low:+.1f}, {high:+.1f}]"


def floor(curves: Curves) -> float:
    """Return the worst finite score, which is the score of a diverged training."""
    finite = [
        v for curve in curves.values() for c in curve.values() for v in c if v > float("-inf")
    ]
    return min(finite)


def chosen(names: Sequence[str]) -> Iterator[Setting]:
    for setting in SETTINGS:
        if not names or f"{setting.agent}-{setting.env}" in names:
            yield setting


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("record", "simulate", "halving", "answers"))
    parser.add_argument("--setting", nargs="+", default=[], help="only these: ppo-CartPole-v1")
    parser.add_argument("--limit", nargs="+", type=float, default=[8.0, 15.0, 30.0])
    args = parser.parse_args()
    if args.what == "record":
        record(list(chosen(args.setting)))
    elif args.what == "simulate":
        simulate(list(chosen(args.setting)), args.limit, POLICIES)
    elif args.what == "halving":
        simulate(list(chosen(args.setting)), args.limit, HALVINGS)
    else:
        answers(list(chosen(args.setting)))


if __name__ == "__main__":
    main()
