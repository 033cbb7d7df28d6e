"""The data of a comparison: entries and pairs, on each environment and over all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rltune.agents.envs.suite import Scale
from rltune.common.plain import json_dict
from rltune.comparing.entries import Entry
from rltune.stats.aggregates import (
    Profile,
)
from rltune.stats.estimates import (
    Estimate,
)


@dataclass(frozen=True, kw_only=True)
class EntryResult:
    """An entry on one environment; a score of -inf is a training that diverged."""

    entry: Entry
    scores: tuple[float, ...]
    iqm: Estimate  # without ends where there are too few seeds
    mean: float
    median: float
    optimality_gap: float | None  # None: no scale is known
    env_steps: tuple[int, int]  # the fewest and the most of its trainings

    @property
    def label(self) -> str:
        """The name of the entry."""
        return self.entry.label


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The probability that a run of ``a`` scores above one of ``b``; ``p_value`` is two-sided."""

    a: str
    b: str
    probability: Estimate
    p_value: float | None = None
    surely: bool = False  # ``a`` is, beyond chance, all pairs of the environment considered


@dataclass(frozen=True, kw_only=True)
class EnvironmentResult:
    """The comparison on one environment, the best first."""

    env: str
    scale: Scale | None
    rows: tuple[EntryResult, ...]
    pairs: tuple[Pair, ...]


@dataclass(frozen=True, kw_only=True)
class OverallResult:
    """The comparison over environments, of normalised scores, the best first."""

    envs: tuple[str, ...]
    rows: dict[str, dict[str, Estimate]]  # label -> statistic -> value
    pairs: tuple[Pair, ...]
    profiles: dict[str, Profile]


@dataclass(frozen=True, kw_only=True)
class ComparisonData:
    """A comparison: its entries, and its conclusions.

    Attributes:
        metric, objective, until: see `compare`
        environments: the comparison on each
        overall: that over all environments which all labels have, None where there is none
        sentences: the conclusions
        warnings: reasons to doubt it
    """

    metric: str
    objective: str
    until: float | None
    environments: tuple[EnvironmentResult, ...]
    overall: OverallResult | None
    sentences: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def entries(self) -> list[Entry]:
        """The entries that were compared."""
        return [row.entry for result in self.environments for row in result.rows]

    @property
    def labels(self) -> list[str]:
        """All labels, in an order that is the same for all figures."""
        return list(dict.fromkeys(entry.label for entry in self.entries))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON; a number that is not finite becomes null."""
        return json_dict(
            {
                "metric": self.metric,
                "objective": self.objective,
                "until": self.until,
                "environments": [_environment_dict(result) for result in self.environments],
                "overall": None if self.overall is None else _overall_dict(self.overall),
                "sentences": self.sentences,
                "warnings": self.warnings,
            }
        )


def normalised(scores: Sequence[float], scale: Scale) -> list[float]:
    """Return the scores on a scale where 0 is bad and 1 good; -inf stays the worst."""
    return [scale.score(value) if math.isfinite(value) else -math.inf for value in scores]


def _environment_dict(result: EnvironmentResult) -> dict[str, Any]:
    return {
        "env": result.env,
        "scale": None if result.scale is None else [result.scale.low, result.scale.high],
        "entries": [
            {
                "label": row.label,
                "iqm": row.iqm.value,
                "low": row.iqm.low,
                "high": row.iqm.high,
                "mean": row.mean,
                "median": row.median,
                "optimality_gap": row.optimality_gap,
                "env_steps": list(row.env_steps),
                "trainings": [
                    {"name": training.name, "source": str(training.source), "seed": training.seed,
                     "metric": training.metric, "score": score,
                     "diverged": not math.isfinite(score)}
                    for training, score in zip(row.entry.trainings, row.scores, strict=True)
                ],
            }
            for row in result.rows
        ],
        "pairs": [_pair_dict(pair) for pair in result.pairs],
    }  # fmt: skip


def _pair_dict(pair: Pair) -> dict[str, Any]:
    found = {"a": pair.a, "b": pair.b, "probability": pair.probability.value,
             "low": pair.probability.low, "high": pair.probability.high}  # fmt: skip
    if pair.p_value is not None:
        found |= {"p_value": pair.p_value, "beyond_chance": pair.surely}
    return found


def _overall_dict(overall: OverallResult) -> dict[str, Any]:
    return {
        "envs": list(overall.envs),
        "entries": [
            {"label": label, **{name: estimate._asdict() for name, estimate in row.items()}}
            for label, row in overall.rows.items()
        ],
        "pairs": [_pair_dict(pair) for pair in overall.pairs],
        "profiles": {label: asdict(profile) for label, profile in overall.profiles.items()},
    }
