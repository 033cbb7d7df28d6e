"""The Pareto front as the answer of a search with several objectives.

Its members are re-trained on test seeds. A member is on the front when no other one has the better
estimates. It is *surely dominated* when
another one is better beyond chance (the tests of `ranking.py`) in every objective in which the two
differ at all. Between the two lies what can be luck, and the answer says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import MissingMetricError
from rltune.answer.command import command_of
from rltune.answer.model import Finalist, label
from rltune.answer.sentences import MEND, search_warnings
from rltune.common.formats import plural
from rltune.objectives.goals import Goal
from rltune.stats import pareto
from rltune.stats.estimates import Estimate, bootstrap_interval, iqm, p_value_better, significance
from rltune.study.records import is_reference, pareto_front

if TYPE_CHECKING:
    import pandas as pd
    from rltune.answer.model import Circumstances
    from rltune.runs.search_spec import SearchSpec
    from rltune.study.records import TrialRecord


@dataclass(frozen=True, kw_only=True)
class FrontMember:
    """A configuration of the front, or one that it is compared with.

    Attributes:
        trial, origins, config: as of a finalist
        tuning: objective -> its value in the search; empty if it didn't run its whole budget
        scores: objective -> test seed -> value, infinitely bad where the training diverged
        estimates: objective -> interquartile mean over those seeds, with its 95 % interval; empty
            without a tournament
        on_front: by the estimates, or by the values of the search where there are none
        dominated_by: trials that are better beyond chance
        command: that trains it again
    """

    trial: int
    origins: tuple[str, ...]
    config: dict[str, Any]
    tuning: dict[str, float]
    scores: dict[str, dict[int, float]] = field(default_factory=dict)
    estimates: dict[str, Estimate] = field(default_factory=dict)
    on_front: bool = True
    dominated_by: tuple[int, ...] = ()
    command: str = ""

    @property
    def label(self) -> str:
        """The name that people read."""
        return label(self.trial, self.origins)

    def values(self) -> list[float]:
        """The numbers that the member is judged by, one per objective."""
        return [estimate.value for estimate in self.estimates.values()] or list(
            self.tuning.values()
        )


@dataclass(frozen=True, kw_only=True)
class Front:
    """All members, the best in the first objective first; `best` is the first on the front."""

    goals: tuple[Goal, ...]
    members: tuple[FrontMember, ...]
    tested: bool
    sentences: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def best(self) -> FrontMember | None:
        """The member with the highest first objective; the others decide between equals.

        None where every one diverged.
        """
        known = (member for member in self.members if all(map(math.isfinite, member.values())))
        return next((member for member in known if member.on_front), None)

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings and numbers, for YAML."""
        members = []
        for member in self.members:
            test = {
                name: {**estimate._asdict(), "seeds": member.scores[name]}
                for name, estimate in member.estimates.items()
            }
            about = {"trial": member.trial, "label": member.label, "origins": list(member.origins)}
            about |= {"on_front": member.on_front, "dominated_by": list(member.dominated_by)}
            more = {"config": member.config, "command": member.command}
            members.append({**about, "tuning": member.tuning, "test": test, **more})
        return {
            "objectives": [asdict(goal) for goal in self.goals],
            "tested": self.tested,
            "sentences": list(self.sentences),
            "warnings": list(self.warnings),
            "members": members,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Front:
        """Return the front of a dictionary by `to_dict`."""
        members = [
            FrontMember(
                **{
                    key: member[key] for key in ("trial", "config", "tuning", "on_front", "command")
                },
                origins=tuple(member["origins"]),
                dominated_by=tuple(member["dominated_by"]),
                scores={name: test["seeds"] for name, test in member["test"].items()},
                estimates={
                    name: Estimate(*(test[key] for key in Estimate._fields))
                    for name, test in member["test"].items()
                },
            )
            for member in data["members"]
        ]
        return cls(
            goals=tuple(Goal(**member) for member in data["objectives"]),
            members=tuple(members),
            tested=data["tested"],
            sentences=tuple(data["sentences"]),
            warnings=tuple(data["warnings"]),
        )

    def frame(self) -> pd.DataFrame:
        """Return a row per member: its objectives with intervals, its configuration."""
        import pandas as pd

        rows = []
        for member in self.members:
            row: dict[str, Any] = {"trial": member.trial, "label": member.label}
            row |= {"on_front": member.on_front, "dominated_by": list(member.dominated_by)}
            for goal in self.goals:
                estimate = member.estimates.get(goal.name)
                if estimate is not None:
                    row[goal.name] = estimate.value
                    row |= {f"{goal.name}.low": estimate.low, f"{goal.name}.high": estimate.high}
                row[f"{goal.name}.tuning"] = member.tuning.get(goal.name)
            row |= {f"config.{name}": value for name, value in member.config.items()}
            rows.append({**row, "command": member.command})
        return pd.DataFrame(rows)


def make_front(
    spec: SearchSpec,
    trials: Sequence[TrialRecord],
    finalists: Sequence[Finalist],
    history: pd.DataFrame,
    defaults: Mapping[str, Any],
    circumstances: Circumstances,
) -> Front:
    """Return the answer; without scores of finalists, the front of the search itself.

    Args:
        spec: the search
        trials: of the study
        finalists: with their scores (the first objective) on test seeds
        history: of the run; it has the other objectives of the tests
        defaults: the agent's own configuration
        circumstances: the facts about the search
    """
    goals = spec.goals
    by_number = {trial.number: trial for trial in trials}
    tested = [finalist for finalist in finalists if finalist.seeds]
    if tested:
        others = _others_on_test_seeds(spec, history)
        members = [
            _tested(finalist, by_number[finalist.trial], goals, others) for finalist in tested
        ]
    else:
        members = [
            FrontMember(
                trial=t.number, origins=t.origins, config=t.config, tuning=_tuning(t, goals)
            )
            for t in pareto_front(trials, [goal.minimize for goal in goals])
        ]
    members = [_with_command(member, spec, defaults) for member in _compared(members, goals)]
    warnings = search_warnings(circumstances)
    if tested and (short := len(finalists) - len(tested)):
        warnings.append(f"There was no time to re-train {plural(short, 'finalist')}.")
    seeds = min((len(finalist.seeds) for finalist in tested), default=0)
    if tested and seeds < circumstances.planned_seeds:
        planned = plural(circumstances.planned_seeds, "test seed")
        warnings.append(f"Only {seeds} of the planned {planned} could be run.")
    return Front(
        goals=tuple(goals),
        members=tuple(members),
        tested=bool(tested),
        sentences=tuple(_sentences(members, bool(tested), len(goals))),
        warnings=tuple(warnings),
    )


def _others_on_test_seeds(
    spec: SearchSpec, history: pd.DataFrame
) -> dict[tuple[int, int], tuple[float, ...]]:
    """Return (trial, seed) -> the other objectives at the end of its re-training."""
    others = spec.further_objectives()
    rows = history[history["role"] == "test"].dropna(subset=["eval_return"])
    found = {}
    retrainings: Any = rows.sort_values("iteration").groupby(["trial", "seed"])
    for key, mine in retrainings:
        try:
            found[key] = others.total([others.measure(row) for row in mine.to_dict("records")])
        except (MissingMetricError, ValueError):
            continue  # a value is missing: as bad as a training that diverged
    return found


def _tested(
    finalist: Finalist,
    record: TrialRecord,
    goals: Sequence[Goal],
    others: Mapping[tuple[int, int], tuple[float, ...]],
) -> FrontMember:
    worst = tuple(math.inf if goal.minimize else -math.inf for goal in goals)
    rows = {
        seed: (first, *others[finalist.trial, seed])
        if first is not None and math.isfinite(first) and (finalist.trial, seed) in others
        else worst
        for seed, first in sorted(finalist.seeds.items())
    }
    scores = {
        goal.name: {seed: float(row[i]) for seed, row in rows.items()}
        for i, goal in enumerate(goals)
    }
    estimates = {name: _estimate(list(column.values())) for name, column in scores.items()}
    return FrontMember(
        trial=finalist.trial,
        origins=finalist.origins,
        config=finalist.config,
        tuning=_tuning(record, goals),
        scores=scores,
        estimates=estimates,
    )


def _estimate(values: list[float]) -> Estimate:
    return Estimate(iqm(values), *bootstrap_interval(values))


def _tuning(record: TrialRecord, goals: Sequence[Goal]) -> dict[str, float]:
    if record.state != "COMPLETE" or record.values is None:
        return {}
    return {goal.name: value for goal, value in zip(goals, record.values, strict=True)}


def _compared(members: Sequence[FrontMember], goals: Sequence[Goal]) -> list[FrontMember]:
    """Return the members in order, each knowing whether it is on the front or surely dominated."""
    minimize = [goal.minimize for goal in goals]
    points = [member.values() for member in members]
    best = set(pareto.front(points, minimize))
    threshold = significance(len(members) - 1)
    keys = pareto.losses(points, minimize)
    found = []
    for index in sorted(range(len(members)), key=lambda i: (*keys[i], members[i].trial)):
        member = members[index]
        better = [two.trial for two in members if surely_dominates(two, member, goals, threshold)]
        values = {**vars(member), "on_front": index in best, "dominated_by": tuple(better)}
        found.append(FrontMember(**values))
    return found


def surely_dominates(
    a: FrontMember, b: FrontMember, goals: Sequence[Goal], threshold: float
) -> bool:
    """Whether `a` is better beyond chance wherever the two differ at all, and somewhere so.

    Every objective is tested by itself, at the same threshold: all tests have to pass, so their
    number makes no error more likely (an intersection-union test).
    """
    if not (a.scores and b.scores):
        return False
    passed = []
    for goal in goals:
        sign = -1.0 if goal.minimize else 1.0
        first = [sign * value for value in a.scores[goal.name].values()]
        second = [sign * value for value in b.scores[goal.name].values()]
        if len({*first, *second}) > 1:
            passed.append(p_value_better(first, second) <= threshold)
    return bool(passed) and all(passed)


def _with_command(
    member: FrontMember, spec: SearchSpec, defaults: Mapping[str, Any]
) -> FrontMember:
    seed = seed_of(member, spec)
    command = command_of(spec, spec.weights, member.config, dict(defaults), seed)
    return FrontMember(**{**vars(member), "command": command})


def seed_of(member: FrontMember, spec: SearchSpec) -> int:
    """Return the seed of its best training: a test seed where it was tested."""
    if not member.scores:
        return spec.tune_seed
    first = next(iter(member.scores.values()))
    return max(first, key=lambda seed: first[seed])


def _sentences(members: Sequence[FrontMember], tested: bool, n_goals: int) -> list[str]:
    if not members:
        return ["No trial has run its whole budget, so there is no front."]
    best = [member for member in members if member.on_front]
    all_of = "both" if n_goals == 2 else f"all {n_goals}"
    if not tested:
        return [
            f"{plural(len(best), 'trial')} of the search {_is(best)} on the front: none is beaten "
            f"in {all_of} objectives. They were chosen for their values on their tuning seeds: "
            "expect less on others."
        ]
    if not any(all(map(math.isfinite, member.values())) for member in members):
        return [
            "There is no answer: every finalist diverged, or lacked an objective, on most of its "
            "test seeds.",
            MEND,
        ]
    lines = [
        f"Of {plural(len(members), 'configuration')} trained again on test seeds, "
        f"{len(best)} {_is(best)} on the front: none of them is beaten in {all_of} objectives."
    ]
    behind = [member for member in members if not member.on_front]
    if sure := [member.label for member in behind if member.dominated_by]:
        lines.append(f"Dominated beyond chance: {', '.join(sure)}.")
    if unsure := [member.label for member in behind if not member.dominated_by]:
        lines.append(f"Behind, but that can be luck: {', '.join(unsure)}.")
    references = [member for member in members if any(map(is_reference, member.origins))]
    for member in references:
        if member.on_front:
            lines.append(f"On the front without any search: {member.label}.")
    return lines


def _is(several: Sequence[object]) -> str:
    return "is" if len(several) == 1 else "are"
