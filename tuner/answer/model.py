"""The data of an answer: finalists, circumstances, the ranking and the conclusions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from rltune.common.plain import plain
from rltune.stats.estimates import (
    Estimate,
)
from rltune.study.records import quality

if TYPE_CHECKING:
    from rltune.stats.estimates import Estimate


@dataclass(frozen=True, kw_only=True)
class Finalist:
    """A configuration that was trained again on test seeds."""

    trial: int
    origins: tuple[str, ...]  # "default", "start:0", "sampler"; one configuration may have several
    config: dict[str, Any]
    changes: tuple[Any, ...] = ()  # of the configuration on the way (`messages.Change`)
    objective: float | None = None  # the score on its tuning seeds
    objective_mean: float | None = None  # the mean over all its evaluations: decides among ties
    seeds: dict[int, float] = field(default_factory=dict)  # test seed -> score; NaN: diverged
    behind: bool = False  # clearly worse before all planned seeds were spent on it
    env_steps: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """The facts about a search that its answer depends on; None or 0 where unknown."""

    planned_seeds: int = 5
    full_budget_trials: int | None = None  # trials that ran their whole budget
    sampled_trials: int | None = None  # trials that the sampler proposed and that have ended
    startup_trials: int = 0  # so many of the sampler's first proposals are random
    sampler: str = ""
    cut_by_time_limit: bool = False
    not_started: int = 0  # proposals for which there was no time
    best_of_search: tuple[int, float] | None = None  # trial and score, of those that ran to the end
    failed_trials: int = 0
    failure: str = ""  # the most frequent reason


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """A finalist in the ranking; ``scores`` has -inf for a training that diverged.

    ``difference`` is its interquartile mean minus that of the defaults, with the 90 % interval for
    all comparisons with the defaults together (`estimates.difference`). ``better_than_default``,
    the claim that this is beyond chance, is made exactly when zero lies below that interval.
    """

    trial: int
    origins: tuple[str, ...]
    config: dict[str, Any]
    changes: tuple[Any, ...] = ()
    objective: float | None
    objective_mean: float | None = None
    scores: dict[int, float]
    iqm: float
    low: float
    high: float
    worst: float
    behind: bool = False  # given no further seeds, because it was clearly worse
    tied: bool  # the lead of the best of the ranking over it is not proven
    better_than_default: bool  # beyond chance
    improvement: Estimate | None  # probability that a run of it beats a run of the defaults
    difference: Estimate | None  # to the defaults, in returns
    # trial number of other known-good settings -> probability that a run of it beats one of theirs
    over_known_good: dict[int, Estimate] = field(default_factory=dict)
    env_steps: int
    seconds: float

    @property
    def is_default(self) -> bool:
        """Whether these are the agent's defaults."""
        return "default" in self.origins

    @property
    def label(self) -> str:
        """The name that people read: "the defaults", "known-good settings 1" or "trial 17"."""
        return label(self.trial, self.origins)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The ranking of the finalists, best first, and the conclusions.

    ``best`` is the finalist to use: not always the first of the ranking. There is none where every
    finalist diverged, or nothing was trained again.
    """

    ranking: tuple[Ranked, ...]
    winner: int | None  # trial number
    beats_default: bool | None  # None: no winner, or the defaults were not among the finalists
    tuning_gap: float | None  # the incumbent's tuning score minus its test score
    incumbent: int | None  # the finalist with the best tuning score
    test_seeds_to_prove: int | None = None  # about so many in all would prove the lead
    sentences: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def ties(self) -> tuple[Ranked, ...]:
        """The best of the ranking and the finalists over which its lead is not proven."""
        return tuple(ranked for ranked in self.ranking if ranked.tied)

    @property
    def best(self) -> Ranked | None:
        """The winner, with its configuration."""
        return next((ranked for ranked in self.ranking if ranked.trial == self.winner), None)

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings and numbers, for YAML."""
        return plain(asdict(self))  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Answer:
        """Return the answer that ``to_dict`` wrote; keys of newer versions are left out."""
        known = {field.name for field in fields(cls)}
        values = {name: value for name, value in data.items() if name in known}
        values["ranking"] = tuple(_ranked_from_dict(ranked) for ranked in data["ranking"])
        values["sentences"] = tuple(data["sentences"])
        values["warnings"] = tuple(data["warnings"])
        return cls(**values)


def tuning_quality(finalist: Finalist | Ranked) -> tuple[float, ...]:
    """Return the sort key of finalists by their tuning scores, see `records.quality`."""
    return quality((finalist.objective,), finalist.objective_mean)


def _finalist(values: Mapping[str, Any]) -> Finalist:
    known = {field.name for field in fields(Finalist)}
    kept = {name: value for name, value in values.items() if name in known}
    kept["origins"] = tuple(values.get("origins") or ("sampler",))
    kept["changes"] = tuple(values.get("changes") or ())
    return Finalist(**kept)


def _ranked_from_dict(data: Mapping[str, Any]) -> Ranked:
    known = {field.name for field in fields(Ranked)}
    values = {name: value for name, value in data.items() if name in known}
    values["origins"] = tuple(data["origins"])
    values["changes"] = tuple(data.get("changes") or ())
    values["scores"] = {int(seed): float(score) for seed, score in data["scores"].items()}
    for name in ("improvement", "difference"):
        if values.get(name) is not None:
            values[name] = Estimate(*values[name])
    over = values.get("over_known_good", {})
    values["over_known_good"] = {int(trial): Estimate(*ends) for trial, ends in over.items()}
    return Ranked(**values)


def label(trial: int, origins: Iterable[str]) -> str:
    """Return the name of a configuration: "the defaults", "known-good settings 1", "trial 17"."""
    if "default" in origins:
        return "the defaults"
    starts = [origin for origin in origins if origin.startswith("start")]
    if starts:
        return f"known-good settings {int(starts[0].partition(':')[2] or 0) + 1}"
    return f"trial {trial}"
