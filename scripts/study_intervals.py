#!/usr/bin/env python
"""Simulate the coverage of an answer's intervals, and the error rates of its claims.

    python scripts/study_intervals.py coverage    # how often intervals hold the true value
    python scripts/study_intervals.py claims      # false claims of a tournament, and its power

Scores are drawn from distributions that are typical of returns and costs. The tables are for
docs/compare.md and docs/seeds.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from rltune.answer.model import Finalist
from rltune.answer.ranking import build_answer
from rltune.stats.estimates import bootstrap_interval, iqm

if TYPE_CHECKING:
    from numpy.random import Generator

Draw: TypeAlias = Callable[["Generator", int], npt.NDArray[np.float64]]
CAP = 500.0


def success(chance: float) -> Draw:
    """Return scores of trainings that succeed with this probability and fail otherwise."""
    return lambda rng, n: np.where(
        rng.random(n) < chance, rng.normal(450, 30, n), rng.normal(100, 30, n)
    )


def at_cap(chance: float) -> Draw:
    """Return scores that are at the cap with this probability, and below it otherwise."""
    return lambda rng, n: np.where(rng.random(n) < chance, CAP, rng.uniform(50, 450, n))


WORLDS: Mapping[str, Draw] = {
    "normal": lambda rng, n: rng.normal(300, 40, n),
    "normal, cut at the cap (37 % there)": lambda rng, n: np.minimum(CAP, rng.normal(480, 60, n)),
    "beta(5, 1), near the cap": lambda rng, n: CAP * rng.beta(5, 1, n),
    "beta(0.5, 0.5), at both ends": lambda rng, n: CAP * rng.beta(0.5, 0.5, n),
    "success in 50 %": success(0.5),
    "success in 60 %": success(0.6),
    "success in 70 %": success(0.7),
    "lognormal costs": lambda rng, n: rng.lognormal(3, 1, n),
    "at the cap in 50 %": at_cap(0.5),
    "at the cap in 70 %": at_cap(0.7),
}


def coverage(experiments: int) -> None:
    """Print how often the intervals of an interquartile mean that are shown hold the true one.

    From five seeds on there is one unless all of a few scores are equal (`bootstrap_interval`).
    """
    sizes = (3, 5, 10, 20)
    print("| scores | 3 (their range; not shown) | 5 | 10 | 20 | none shown at 5 |")
    print("|---|" + "---:|" * (len(sizes) + 1))
    for name, draw in WORLDS.items():
        truth = iqm(draw(np.random.default_rng(0), 1_000_000))
        cells, missing = [], 0
        for size in sizes:
            hits = shown = 0
            for number in range(experiments):
                scores = draw(np.random.default_rng([number, size]), size)
                low, high = scores.min(), scores.max()
                if size > 3:
                    low, high = bootstrap_interval(scores, n=2000, seed=number)
                if np.isinf(low) and np.isinf(high):
                    missing += size == 5
                    continue
                shown += 1
                hits += low - 1e-9 <= truth <= high + 1e-9
            cells.append(f"{hits / shown:.2f}")
        cells.append(f"{100 * missing / experiments:.0f} %")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def shifted(draw: Draw, by: float) -> Draw:
    """Return the scores raised by a constant, but not above the cap."""
    return lambda rng, n: np.minimum(CAP, draw(rng, n) + by)


# Scores in a tournament: of the defaults, and of finalists that are better.
PAIRS: Mapping[str, tuple[Draw, Draw]] = {
    "normal, 1.5 standard deviations better": (
        WORLDS["normal"],
        lambda rng, n: rng.normal(360, 40, n),
    ),
    "beta(3, 1.2) of 500, 120 better, cut at 500": (
        lambda rng, n: CAP * rng.beta(3, 1.2, n),
        shifted(lambda rng, n: CAP * rng.beta(3, 1.2, n), 120),
    ),
    "success in 40 %, then in 90 %": (success(0.4), success(0.9)),
    "at the cap in 50 %, then in 95 %": (at_cap(0.5), at_cap(0.95)),
    "lognormal costs, then a quarter": (
        lambda rng, n: -rng.lognormal(3, 1, n),
        lambda rng, n: -0.25 * rng.lognormal(3, 1, n),
    ),
    "clearly better: 200 ± 50, then 450 ± 50": (
        lambda rng, n: rng.normal(200, 50, n),
        lambda rng, n: np.minimum(CAP, rng.normal(450, 50, n)),
    ),
}


def claims(experiments: int, finalists: int = 4) -> None:
    """Print how often a tournament claims that a finalist beats the defaults, or leads another.

    "Alike": all finalists have the scores of the defaults, so each claim is false. "One noisier":
    one of them varies five times as much about the same mean (normal scores). "Better": all of them
    are better, and the claim is that the named one beats the defaults.
    """
    print(f"{finalists} finalists beside the defaults, {experiments} tournaments\n")
    print("| scores | seeds | alike: beats the defaults | alike: leads another | better |")
    print("|---|---:|---:|---:|---:|")
    noisy: Draw = lambda rng, n: rng.normal(300, 200, n)  # noqa: E731
    rows = [
        (name, default, [default] * finalists, better) for name, (default, better) in PAIRS.items()
    ]
    normal = WORLDS["normal"]
    rows.append(("normal, one noisier", normal, [noisy, *[normal] * (finalists - 1)], None))
    for name, default, equals, better in rows:
        for seeds in (5, 10):
            alike = [tournament(default, equals, seeds, n) for n in range(experiments)]
            cells = [share(row[0] for row in alike), share(row[2] for row in alike)]
            cells.append(
                ""
                if better is None
                else share(
                    tournament(default, [better] * finalists, seeds, n)[1]
                    for n in range(experiments)
                )
            )
            print(f"| {name} | {seeds} | {' | '.join(cells)} |", flush=True)


def tournament(
    default: Draw, others: list[Draw], seeds: int, number: int
) -> tuple[bool, bool, bool]:
    """Return the claims: any finalist beats the defaults; the named one does; leads."""
    rng = np.random.default_rng([number, seeds])
    finalists = []
    for trial, draw in enumerate([default, *others]):
        scores = dict(enumerate(draw(rng, seeds).tolist(), 100))
        origins = ("sampler",) if trial else ("default",)
        finalists.append(Finalist(trial=trial, origins=origins, config={}, seeds=scores))
    with patch(
        "rltune.answer.ranking.bootstrap_interval", return_value=(0.0, 0.0)
    ):  # slow, and no claim
        answer = build_answer(finalists)
    leads = any(not (ranked.tied or ranked.is_default) for ranked in answer.ranking)
    if answer.ranking[0].is_default:
        leads = any(not ranked.tied for ranked in answer.ranking)
    return (
        any(ranked.better_than_default for ranked in answer.ranking),
        bool(answer.beats_default),
        leads,
    )


def share(found: object) -> str:
    values = list(found)  # type: ignore[call-overload]
    return f"{100 * sum(values) / len(values):.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("coverage", "claims"))
    parser.add_argument("--experiments", type=int, metavar="N")
    args = parser.parse_args()
    if args.what == "coverage":
        coverage(args.experiments or 2000)
    else:
        claims(args.experiments or 300)


if __name__ == "__main__":
    main()
