"""Comparisons of entries on each environment and over all of them, with intervals."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
from rltune.agents.envs.suite import Scale, known_scale, parse_suite
from rltune.agents.errors import UserError
from rltune.comparing.entries import Entry, Runs, collect
from rltune.comparing.model import (
    ComparisonData,
    EntryResult,
    EnvironmentResult,
    OverallResult,
    Pair,
    normalised,
)
from rltune.comparing.trainings import EVALUATION
from rltune.objectives.metrics import DEFAULT, parse_objective
from rltune.stats.aggregates import (
    PROFILE_POINTS,
    STATISTICS,
    aggregate,
    performance_profile,
    probability_of_improvement,
)
from rltune.stats.estimates import (
    Estimate,
    bootstrap_interval,
    difference,
    iqm,
    p_value_better,
    significance,
)


@dataclass(frozen=True, kw_only=True)
class Comparison(ComparisonData):
    """The result of `compare`."""

    def write(self, folder: str | os.PathLike[str], *, axis: str = "env_steps") -> Path:
        """Write index.html, a PNG of each figure and summary.md, and return the page.

        Args:
            folder: where to; made if need be
            axis: of the learning curves, "env_steps" or "time"

        Raises:
            UserError: the folder is a file, or may not be written.
        """
        from rltune.comparing.page import page_of
        from rltune.reporting.report import write

        return write(page_of(self, axis), Path(folder).expanduser(), flag="--out")


def compare(
    runs: Runs,
    *,
    metric: str = EVALUATION,
    objective: str = DEFAULT,
    until: float | None = None,
    scales: Mapping[str, tuple[float, float]] | None = None,
    env: str | None = None,
    defaults: bool = False,
    random: bool = False,
) -> Comparison:
    """Put runs and logs side by side, from their folders alone.

    Args:
        runs: run directories, their names, or folders of Stable-Baselines3 and rl-zoo3 logs, each
            as "PATH" or "LABEL=PATH"; or a dict from label to one path or several. Of a search,
            the re-trainings of its answer on test seeds count
        metric: of the evaluations; "mean_reward" is that of training episodes; a minus in front
            makes lower better
        objective: what of a training's evaluations is its score, as in `rltune run --objective`
        until: only evaluations up to so many env steps count; None: all
        scales: environment -> the returns that count as 0 and as 1; with several environments by
            default what random actions get, and gymnasium's solving return
        env: the environment of logs that don't say it
        defaults: of searches the agents' defaults, too
        random: actions at random, too, which are played for it (gymnasium's own environments)

    Raises:
        UserError: something isn't there, is damaged, or can't be compared.
    """
    from rltune.comparing import text

    parse_objective(objective)
    entries, remarks = collect(runs, metric, env=env, defaults=defaults)
    if random:
        from rltune.comparing.random_baseline import random_entries

        baselines, skipped = random_entries(entries, metric)
        entries, remarks = [*entries, *baselines], [*remarks, *skipped]
    _check_until(entries, until)
    known = _scales(entries, scales or {})
    environments = tuple(
        _on_one(
            name, [entry for entry in entries if entry.env == name], known[name], objective, until
        )
        for name in dict.fromkeys(entry.env for entry in entries)
    )
    found = Comparison(
        metric=metric,
        objective=objective,
        until=until,
        environments=environments,
        overall=_over_all(environments),
    )
    return replace(
        found,
        sentences=tuple(text.sentences(found)),
        warnings=(*text.warnings(found), *remarks),
    )


def parse_scales(texts: Iterable[str]) -> dict[str, tuple[float, float]]:
    """Return the scales of ``--scale ENV=LOW:HIGH`` by environment.

    Raises:
        UserError: it is not written so.
    """
    return {part.env: (part.low, part.high) for t in texts for part in parse_suite(t, "--scale")}


def _check_until(entries: Sequence[Entry], until: float | None) -> None:
    for entry in entries:
        for training in entry.trainings:
            if len(training.curve.env_steps) and not len(training.curve.until(until).env_steps):
                raise UserError(
                    f"--until {until:g}: {training.name} has nothing before "
                    f"{training.curve.env_steps[0]:,.0f} env steps."
                )


def _scales(
    entries: Sequence[Entry], given: Mapping[str, tuple[float, float]]
) -> dict[str, Scale | None]:
    envs = dict.fromkeys(entry.env for entry in entries)
    for name in given:
        if name not in envs:
            raise UserError(f"--scale {name}: there are only {', '.join(envs)}.")
    found: dict[str, Scale | None] = {}
    for name in envs:
        if name in given:
            found[name] = Scale(name, *given[name])
            continue
        told = [
            t.scale for entry in entries if entry.env == name for t in entry.trainings if t.scale
        ]
        # To find it out takes seconds of random actions: only where scores are to be averaged.
        found[name] = told[0] if told else known_scale(name) if len(envs) > 1 else None
    return found


def _on_one(
    env: str, entries: Sequence[Entry], scale: Scale | None, objective: str, until: float | None
) -> EnvironmentResult:
    rows = []
    for entry in entries:
        scores = entry.scores(objective, until)
        gap = (
            None if scale is None else aggregate([normalised(scores, scale)], "optimality gap", n=1)
        )
        reached = [int(min(training.reached, until or math.inf)) for training in entry.trainings]
        rows.append(
            EntryResult(
                entry=entry,
                scores=tuple(scores),
                iqm=Estimate(iqm(scores), *bootstrap_interval(scores)),
                mean=float(np.mean(scores)),
                median=float(np.median(scores)),
                optimality_gap=gap and gap.value,
                env_steps=(min(reached), max(reached)),
            )
        )
    rows.sort(key=lambda row: (-row.iqm.value, -row.mean))
    compared = list(combinations(rows, 2))
    pairs = []
    for a, b in compared:
        wins = probability_of_improvement([a.scores], [b.scores])
        p = min(
            1.0, 2 * min(p_value_better(a.scores, b.scores), p_value_better(b.scores, a.scores))
        )
        # The answer of a search is the best of its finalists on these very seeds (`ranking.py`).
        finalists = max(training.finalists for row in (a, b) for training in row.entry.trainings)
        level = min(significance(len(compared)), 2 * significance(finalists - 1))
        surely = difference(a.scores, b.scores, level / 2)[1]
        pairs.append(Pair(a=a.label, b=b.label, probability=wins, p_value=p, surely=surely))
    return EnvironmentResult(env=env, scale=scale, rows=tuple(rows), pairs=tuple(pairs))


def _over_all(environments: Sequence[EnvironmentResult]) -> OverallResult | None:
    """Compare over the environments that all labels have and that have a known scale."""
    labels = dict.fromkeys(row.label for result in environments for row in result.rows)
    common = [
        result
        for result in environments
        if result.scale is not None and {row.label for row in result.rows} == set(labels)
    ]
    if len(common) < 2:
        return None
    scores: dict[str, list[list[float]]] = {label: [] for label in labels}
    for result in common:
        assert result.scale is not None
        for row in result.rows:
            scores[row.label].append(normalised(row.scores, result.scale))
    rows = {}
    for label, mine in scores.items():
        rows[label] = {name: aggregate(mine, name) for name in STATISTICS}
    order = sorted(
        labels, key=lambda label: (-rows[label]["IQM"].value, -rows[label]["mean"].value)
    )
    flat = [v for mine in scores.values() for on_one in mine for v in on_one if math.isfinite(v)]
    tau = np.linspace(min([0.0, *flat]), max([1.0, *flat]), PROFILE_POINTS)
    return OverallResult(
        envs=tuple(result.env for result in common),
        rows={label: rows[label] for label in order},
        pairs=tuple(
            Pair(a=a, b=b, probability=probability_of_improvement(scores[a], scores[b]))
            for a, b in combinations(order, 2)
        ),
        profiles={label: performance_profile(scores[label], tau) for label in order},
    )


# ------------------------------------------------------------------------------------- plain data
