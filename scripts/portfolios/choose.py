"""Choosing a portfolio: greedily, so that each environment has a good configuration early."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from statistics import fmean, median

from json_lines import read

from portfolios.record import end

SIZE = 8
LEAST = 0.01  # of the mean score, that a further member has to add

Scores = dict[str, dict[str, float]]  # environment -> candidate -> 0 (worst) to 1 (best)


def scores(file: Path) -> tuple[Scores, Scores]:
    """Return the scores of the candidates, and their costs: seconds over the environment's median.

    The score is the objective at the end, a mean over seeds, between the lowest tenth of the
    candidates (0) and the best (1). A training that diverged has the lowest return of all.
    """
    ends: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    seconds: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in read(file):
        if row["what"] == "training":
            value = end(row["returns"]) if len(row["returns"]) == 9 else -math.inf
            ends[row["env"]][row["name"]].append(value)
            seconds[row["env"]][row["name"]].append(row["seconds"])
    found: Scores = {}
    costs: Scores = {}
    for env, by_name in ends.items():
        finite = [v for values in by_name.values() for v in values if math.isfinite(v)]
        worst = min(finite)
        means = {n: fmean(max(v, worst) for v in values) for n, values in by_name.items()}
        low, high = sorted(means.values())[len(means) // 10], max(means.values())
        span = (high - low) or 1.0
        found[env] = {n: min(max((mean - low) / span, 0.0), 1.0) for n, mean in means.items()}
        usual = median(s for values in seconds[env].values() for s in values)
        costs[env] = {n: fmean(values) / usual for n, values in seconds[env].items()}
    return found, costs


def choose(
    known: Scores,
    costs: Scores,
    origins: Mapping[str, Collection[str]],
    without: str | None = None,
    *,
    size: int = SIZE,
    per_cost: bool = True,
) -> list[str]:
    """Return the names of a portfolio's members in the order in which they are to be tried.

    Args:
        known: the scores
        costs: of a whole training
        origins: the environments that a candidate is known from; one without an entry is left out
        without: an environment that is left out, with the candidates known from it
        size: of the portfolio
        per_cost: a member is chosen by what it adds to the best of those before it, over its cost;
            else by what it adds alone
    """
    envs = [env for env in known if env != without]
    pool = [
        name
        for name in known[envs[0]]
        if without not in origins.get(name, [without]) and all(name in known[env] for env in envs)
    ]
    best = dict.fromkeys(envs, 0.0)
    chosen: list[str] = []
    while pool and len(chosen) < size:
        gains = {
            name: fmean(max(0.0, known[env][name] - best[env]) for env in envs) for name in pool
        }
        cost = {name: fmean(costs[env][name] for env in envs) if per_cost else 1.0 for name in pool}
        name = max(pool, key=lambda name: gains[name] / cost[name])
        if gains[name] < LEAST:
            break
        chosen.append(name)
        pool.remove(name)
        best = {env: max(best[env], known[env][name]) for env in envs}
    return chosen
