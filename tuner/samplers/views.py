"""Views of the study for samplers; nothing that a sampler writes there reaches the storage.

Optuna's own view would hide or distort:

- Trials that failed through their configuration (`BLAMED`) are the worst of all; Optuna's samplers
  ignore failed trials and go back there.
- To the samplers that know complete trials only (gp, cmaes, nsgaii, nsgaiii), a trial that was
  stopped early is a complete one, not better than the worst that ran its whole budget (of several
  objectives: in none of them). One that was stopped by hand, or by a callback, is none: it was not
  found to be poor.

With several objectives, `minimize` has a value for each.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Container, Iterable, Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial
from rltune.stats.pareto import ranks
from rltune.study.reasons import BLAMED, BY_CALLBACK, BY_HAND, kind
from rltune.study.records import merit

MAX_TPE_TRIALS = 500  # the best and the latest ones: more take longer and teach little
_SHARED = "study:"  # prefix of what a sampler wrote for the whole study, kept with the trial
_LIARS = ("tpe:relative_params", "gp:relative_params")  # the parameters again, of no use here


class View(Study):
    """The study as the sampler is to see it; nothing that it writes reaches the storage."""

    def __init__(
        self,
        trials: list[FrozenTrial],
        directions: Sequence[StudyDirection],
        shared: dict[str, Any],
    ) -> None:
        self.trials_seen = trials
        self.notes = Notes(shared)
        self.study_name = "view"
        self._study_id = 0
        self._directions = list(directions)
        self._storage = self.notes  # type: ignore[assignment]

    def _get_trials(
        self,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
        use_cache: bool = False,
    ) -> list[FrozenTrial]:
        trials = [t for t in self.trials_seen if states is None or t.state in states]
        return copy.deepcopy(trials) if deepcopy else trials


class Notes:
    """The storage as a sampler sees it: what it writes is kept until the candidate is accepted."""

    def __init__(self, shared: dict[str, Any]) -> None:
        self._shared = shared
        self._written: dict[str, Any] = {}

    def of_the_trial(self) -> dict[str, Any]:
        """Return the attributes to keep with the trial."""
        return {key: v for key, v in self._written.items() if not key.startswith(_LIARS)}

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Keep it until the candidate is accepted."""
        self._written[key] = value

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        """Return the attributes that samplers wrote for the whole study."""
        return self._shared

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        """Keep it with the trial."""
        self._shared[key] = value
        self._written[_SHARED + key] = value


def is_blamed(trial: FrozenTrial) -> bool:
    """Whether it failed through its configuration, so that the sampler has to keep away."""
    return trial.state == TrialState.FAIL and kind_of(trial) in BLAMED


def kind_of(trial: FrozenTrial) -> str:
    """Return the kind of the reason for which it ended; empty when there is none."""
    return kind(str(trial.user_attrs.get("reason", "")))


def is_evidence(trial: FrozenTrial) -> bool:
    """Whether it has ended and tells something about its configuration."""
    if trial.state == TrialState.PRUNED:
        return bool(trial.intermediate_values or trial.values)
    return trial.state == TrialState.COMPLETE or is_blamed(trial)


def merit_of(trial: FrozenTrial, minimize: bool) -> tuple[int, float, float]:
    """Return the sort key of evidence: the greater, the better; see `records.merit`."""
    sign = -1.0 if minimize else 1.0
    if trial.state == TrialState.PRUNED:
        step, value = max(trial.intermediate_values.items())
        return merit("PRUNED", sign * value, step)
    return merit(trial.state.name, sign * (trial.value or 0.0))


def for_tpe(trials: Sequence[FrozenTrial], minimize: Sequence[bool]) -> list[FrozenTrial]:
    """Return the trials for TPE, which ranks pruned ones by their last step, then their value.

    With several objectives they are equally poor to it, behind all complete ones.
    """
    seen: list[FrozenTrial] = []
    for trial in trials:
        if is_blamed(trial):
            # To TPE, a pruned trial without a value is worse than every other.
            seen.append(changed(trial, state=TrialState.PRUNED, intermediate_values={}))
        elif trial.state == TrialState.RUNNING or is_evidence(trial):
            seen.append(trial)
    return best_and_latest(seen, *tpe_needs(), minimize)


def tpe_needs() -> tuple[int, int]:
    """Return how many of the best trials TPE sees (it takes 25 good ones at most), and of all."""
    return MAX_TPE_TRIALS // 10, MAX_TPE_TRIALS


def for_complete(
    trials: Sequence[FrozenTrial], joint: Collection[str], minimize: Sequence[bool]
) -> list[FrozenTrial]:
    """Return the trials for a sampler that learns from complete ones and needs every value.

    Args:
        trials: the trials
        joint: names of the parameters that it draws together; trials without them are left out
        minimize: whether lower values are better
    """
    unjudged = (BY_HAND, BY_CALLBACK)
    trials = [t for t in trials if set(joint) <= t.params.keys() and kind_of(t) not in unjudged]

    def worst(rows: Iterable[list[float]], default: Sequence[float]) -> Sequence[float]:
        columns = list(zip(*rows, strict=True))
        pairs = zip(columns, minimize, strict=True)
        return (
            [max(column) if low else min(column) for column, low in pairs] if columns else default
        )

    complete = [t.values for t in trials if t.state == TrialState.COMPLETE and t.values is not None]
    bar = worst(complete, [-math.inf if low else math.inf for low in minimize])
    seen: list[FrozenTrial] = []
    failed: list[FrozenTrial] = []
    for trial in trials:
        if trial.state in (TrialState.COMPLETE, TrialState.RUNNING):
            seen.append(trial)
        elif trial.state == TrialState.PRUNED and trial.values is not None:
            seen.append(completed(trial, *worst([list(bar), trial.values], bar)))
        elif is_blamed(trial):
            failed.append(trial)
    values = [trial.values for trial in seen if trial.values is not None]
    seen += [completed(trial, *worst(values, [0.0] * len(minimize))) for trial in failed]
    return sorted(seen, key=lambda trial: trial.number)


def of_first_generation(trials: Sequence[FrozenTrial], key: str) -> list[FrozenTrial]:
    """Return the trials with those that have no generation, such as starts, in the first one."""
    return [
        changed(t, system_attrs={key: 0, **t.system_attrs}) if t.state == TrialState.COMPLETE else t
        for t in trials
    ]


def best_and_latest(
    trials: list[FrozenTrial], n_best: int, n: int, minimize: Sequence[bool]
) -> list[FrozenTrial]:
    """Keep `n` of those that have ended, `n_best` of them for their values, and all that run."""
    ended = [trial for trial in trials if trial.state != TrialState.RUNNING]
    if len(ended) <= n:
        return trials
    complete = [trial for trial in ended if trial.state == TrialState.COMPLETE]
    rank_of = ranks([trial.values or [0.0] for trial in complete], minimize, n_best)
    best = sorted(zip(rank_of, complete, strict=True), key=lambda pair: pair[0])
    kept = {trial.number for _, trial in best[:n_best]}
    rest = sorted((trial.number for trial in ended), reverse=True)
    kept.update([number for number in rest if number not in kept][: n - len(kept)])
    return [t for t in trials if t.number in kept or t.state == TrialState.RUNNING]


def completed(trial: FrozenTrial, *values: float) -> FrozenTrial:
    """Return it as one that ran its whole budget and has these values, one an objective."""
    copied = changed(trial, state=TrialState.COMPLETE)
    copied.values = list(values)
    return copied


def changed(trial: FrozenTrial, **attributes: Any) -> FrozenTrial:
    """Return a copy with other attributes."""
    copied = copy.copy(trial)
    for name, value in attributes.items():
        setattr(copied, name, value)
    return copied


def running(
    number: int, parameters: dict[str, Any], distributions: dict[str, BaseDistribution]
) -> FrozenTrial:
    """Return a running trial."""
    trial = create_trial(state=TrialState.RUNNING, params=parameters, distributions=distributions)
    trial.number = number
    return trial


def shared_attrs(trials: Sequence[FrozenTrial]) -> dict[str, Any]:
    """Return the attributes that samplers wrote for the whole study."""
    return {
        key[len(_SHARED) :]: value
        for trial in trials
        for key, value in trial.system_attrs.items()
        if key.startswith(_SHARED)
    }
