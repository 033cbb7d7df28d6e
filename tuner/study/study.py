"""The study: the truth about the trials of a search, in an Optuna study that outlives the process.

Every trial is in one state, and the state is honest: WAITING (a start that is still to come),
RUNNING, COMPLETE (ran its whole budget), PRUNED (stopped early; it keeps its intermediate values
and never competes with complete ones), FAIL (with a reason). A reason is `kind` or
`kind: details`; the kinds in `reasons.BLAMED` teach the sampler to keep away.

One process writes. Any tool of Optuna's opens the file: sqlite:///study.db, study "search". There
the hyperparameters have their real values, a schedule the number that it begins with (see
`stored_parameters.py`); the configuration itself is the user attribute "configuration".

With several objectives the study has a direction and every trial a value for each. Intermediate
values are a user attribute then (`INTERMEDIATE`): Optuna allows none in such a study, and its TPE
would break on them.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from optuna.distributions import BaseDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial
from rltune.agents.config import config_hash
from rltune.common.plain import json_dict
from rltune.common.reading import reading
from rltune.study.database import Database
from rltune.study.optuna_log import quiet
from rltune.study.reasons import TIME_LIMIT
from rltune.study.records import (
    PROPOSED_AT,
    Asked,
    Proposal,
    StartConfig,
    TrialRecord,
    is_reference,
    quality,
)
from rltune.study.stored_parameters import StoredParameters

if TYPE_CHECKING:
    from rltune.space.space import Space

INTERMEDIATE = "intermediate"  # {env_steps: [value of each objective]}, of several objectives


class ProposalSource(Protocol):
    """The interface of whatever proposes a study's trials; see `samplers.proposer.Proposer`.

    Attributes:
        directions, minimize: of each objective, the first one first
    """

    directions: list[StudyDirection]
    minimize: tuple[bool, ...]

    def propose(
        self,
        trials: Sequence[FrozenTrial],
        accept: Callable[[dict[str, Any]], bool] | None = None,
    ) -> Proposal | None:
        """Return a configuration for the trial that comes after `trials`; None: there is none."""

    def as_parameters(
        self, values: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
        """Return Optuna's parameters and distributions of a configuration."""

    def describe(self) -> str:
        """Say in one sentence what the sampler does, and what it leaves to chance."""


class SearchStudy:
    """The trials of one search.

    Args:
        path: the database, created when it isn't there. When it is, the search goes on: its starts
            and its direction stay.
        space: what is searched
        proposer: of trials; its directions are those of a new study
        starts: configurations to try first, in this order

    Raises:
        UserError: the file cannot be opened or is no study.
    """

    def __init__(
        self,
        path: str | Path,
        space: Space,
        proposer: ProposalSource,
        starts: Sequence[StartConfig] = (),
    ) -> None:
        self.space = space
        self._proposer = proposer
        self._ended: dict[int, TrialRecord] = {}
        self._complete: list[TrialRecord] = []  # the best first
        self._largest = 0  # budget of a complete trial, where budgets differ
        self._ahead: Proposal | None = None
        self._ahead_since = -1  # so many trials had ended then
        self._ahead_at = datetime.now()
        with quiet(), reading(path):
            stored = StoredParameters(space, [start.config for start in starts])
            self._database = Database(Path(path), proposer.directions, stored)
            self._enqueue(starts)
            trials = self._database.trials
            self._waiting = deque(t for t in trials if t.state == TrialState.WAITING)
            is_start = [t.user_attrs["origin"] != "sampler" for t in trials]
            self._starts = len(trials) if all(is_start) else is_start.index(False)
            self.trials()
            for trial in trials:
                if trial.state == TrialState.COMPLETE:
                    self._rank(self._record(trial))

    @property
    def minimize(self) -> tuple[bool, ...]:
        """Whether lower is better, of each objective."""
        return self._proposer.minimize

    @property
    def sampler_note(self) -> str:
        """The sampler's behaviour in this space and what it leaves to chance, in a sentence."""
        return self._proposer.describe()

    # What to run

    def ask(
        self,
        accept: Callable[[dict[str, Any]], bool] | None = None,
        about: Callable[[int], Mapping[str, Any]] = lambda number: {},
    ) -> Asked | None:
        """Return the next trial: the starts in their order, then what the sampler proposes.

        A proposal satisfies every constraint and is no configuration that the study already has.
        None: the space has no further one, or none was accepted.

        Args:
            accept: whether a proposed configuration may become a trial; starts always do. What it
                refuses leaves no trace in the study.
            about: what to keep beside a proposed trial with this number
        """
        if self._waiting:
            trial = self._waiting[0]
            self._database.start(trial)
            self._waiting.popleft()
            return _asked(trial)
        proposal, proposed_at = self._taken_ahead(accept), {}
        if proposal is not None:  # a replay has to know what was known
            proposed_at = {PROPOSED_AT: self._ahead_at.isoformat()}
        else:
            proposal = self._proposer.propose(self._database.trials, accept)
        if proposal is None:
            return None
        config, kept = proposal.config, json_dict(about(len(self._database.trials)))
        parameters, distributions = self._proposer.as_parameters(proposal.values)
        trial = self._database.add(
            create_trial(
                state=TrialState.RUNNING,
                params=parameters,
                distributions=distributions,
                system_attrs=proposal.system_attrs,
                user_attrs={
                    "configuration": config,
                    "hash": config_hash(config),
                    "origin": "sampler",
                    "proposal": proposal.source,
                    **proposed_at,
                    **({"attrs": kept} if kept else {}),
                },
            )
        )
        return _asked(trial)

    def ask_ahead(self) -> None:
        """Propose the next trial while those before it run, so that no worker waits for it.

        The proposal knows one trial less than it would without this: the one that ends last, whose
        place it takes. So it would be with one more worker. When two have ended since, it is
        dropped. It is nowhere in the study before it is taken.
        """
        if not self.is_ahead:
            self._ahead_since, self._ahead_at = len(self._ended), datetime.now()
            self._ahead = self._proposer.propose(self._database.trials)

    @property
    def is_ahead(self) -> bool:
        """Whether it is known, as far as it can be, what the next trial is."""
        return bool(self._waiting) or self._ahead_since == len(self._ended)

    def _taken_ahead(self, accept: Callable[[dict[str, Any]], bool] | None) -> Proposal | None:
        ahead, self._ahead = self._ahead, None
        if ahead is None or len(self._ended) > self._ahead_since + 1:
            return None
        return ahead if accept is None or accept(ahead.config) else None

    def unfinished(self) -> list[Asked]:
        """Return the running trials, to be continued when the search was killed."""
        return [_asked(trial) for trial in self._in_state(TrialState.RUNNING)]

    def reopen_cut(self) -> None:
        """Make the trials that a time limit has cut running ones again, to be continued."""
        for trial in self._in_state(TrialState.PRUNED):
            if str(trial.user_attrs.get("reason", "")).startswith(TIME_LIMIT):
                self._ended.pop(trial.number, None)
                self._database.reopen(trial, {"reason": ""})

    # What came of it

    def report(
        self, number: int, env_steps: int, value: float, others: Sequence[float] = ()
    ) -> None:
        """Keep an intermediate value, and those of the other objectives.

        A value that a resumed trial repeats replaces the earlier one. NaN and infinite values, and
        values of a trial that has ended, are ignored.
        """
        trial = self._database.trials[number]
        if not all(map(math.isfinite, (value, *others))) or trial.state.is_finished():
            return
        if others:
            attrs = _with_intermediate(trial, env_steps, (value, *others))
            self._database.set_attrs([(trial, attrs)])
        else:
            self._database.report(trial, env_steps, float(value))

    def annotate(self, news: Mapping[int, Mapping[str, Any]]) -> None:
        """Keep more about running trials, by number, beside what is kept: all or nothing."""
        trials = self._database.trials
        self._database.set_attrs(
            [(trials[number], {"attrs": _merged(trials[number], attrs)})
             for number, attrs in news.items()]
        )  # fmt: skip

    def tell(
        self,
        number: int,
        state: str,
        value: float | None = None,
        reason: str = "",
        attrs: Mapping[str, Any] | None = None,
        point: int | None = None,
        others: Sequence[float] = (),
    ) -> bool:
        """End a trial, wholly or not at all; return False when it has already ended.

        Args:
            number: of the trial
            state: "COMPLETE" only at the whole budget, "PRUNED" when it was stopped before (by the
                scheduler, a stop rule, or the time limit), else "FAIL"
            value: the objective of a complete trial. Without a finite one the trial is a FAIL. A
                pruned trial has its last intermediate value, whatever is given without a point.
            reason: `kind` or `kind: details`
            attrs: what else is to be kept, JSON types. "objective_mean" breaks ties.
            point: env steps of the value, which is the trial's last intermediate one then
            others: the values of the other objectives, beside the value
        """
        whole = value is not None and all(map(math.isfinite, (value, *others)))
        if state == "COMPLETE" and not whole:
            state, reason = "FAIL", f"diverged: the objective was {value}"
        trial = self._database.trials[number]
        if trial.state.is_finished():
            return False
        values = None if value is None else (float(value), *map(float, others))
        about = {"reason": reason, "attrs": _merged(trial, attrs or {})}
        report = None
        if point is not None and values is not None:
            if others:
                about |= _with_intermediate(trial, point, values)
            else:
                report = (point, values[0])
        elif state == "PRUNED":
            known = intermediate(trial)
            values = known[max(known)] if known else None
        if state == "FAIL":
            values = None
        self._database.finish(trial, TrialState[state], values, about, report)
        record = self._record(trial)
        if state == "COMPLETE":
            self._rank(record)
        return True

    def _rank(self, record: TrialRecord) -> None:
        bisect.insort(self._complete, record, key=self._place)
        self._largest = max(self._largest, record.attrs.get("budget") or 0)

    def _place(self, record: TrialRecord) -> tuple[float, ...]:
        """Return the sort key of complete trials: the best first, of equal ones the earlier."""
        merits = quality(record.values or (), record.objective_mean, self.minimize)
        return (*(-merit for merit in merits), record.number)

    # What is known

    def trials(self) -> list[TrialRecord]:
        """Return all trials, by number."""
        return [self._record(trial) for trial in self._database.trials]

    @property
    def complete(self) -> int:
        """How many trials ran their whole budget."""
        return len(self._complete)

    def contenders(self, top: int) -> list[TrialRecord]:
        """Return the references and the best trials by the first objective, by number."""
        best = {record.number: record for record in self._complete[:top]}
        starts = [t for t in self._database.trials[: self._starts] if t.number not in best]
        return sorted([*best.values(), *map(self._record, starts)], key=lambda r: r.number)

    def incumbent(self) -> TrialRecord | None:
        """Return the best trial that ran its whole budget, by the first objective.

        Ties go to the other objectives where there are some, so it is on the front, then to the
        higher "objective_mean" (the lower one when minimizing), then to the earlier trial. Where
        budgets differ (attribute "budget"), only the largest counts.
        """
        best = self.ties()
        return best[0] if best else None

    def ties(self) -> list[TrialRecord]:
        """Return the incumbent and all trials with the same objective, the incumbent first."""
        full = (r for r in self._complete if (r.attrs.get("budget") or 0) == self._largest)
        if (best := next(full, None)) is None:
            return []
        return [best, *itertools.takewhile(lambda record: record.value == best.value, full)]

    def reports(self) -> dict[int, dict[int, float]]:
        """Return the intermediate values (of the first objective), for `Scheduler.restore`."""
        found = {trial.number: intermediate(trial) for trial in self._database.trials}
        return {
            number: {step: values[0] for step, values in steps.items()}
            for number, steps in found.items()
            if steps
        }

    def stopped(self) -> list[int]:
        """Return the trials that the scheduler stopped, for `Scheduler.restore`."""
        return [
            trial.number
            for trial in self._in_state(TrialState.PRUNED)
            if str(trial.user_attrs.get("reason", "")).startswith("stopped")
        ]

    def close(self) -> None:
        """Close the file; what was written so far is durable without it."""
        self._database.close()

    def _enqueue(self, starts: Sequence[StartConfig]) -> None:
        """Put the starts into the study, once; a kill in between loses and doubles none."""
        if self._database.study.user_attrs.get("ready"):
            return
        origins: dict[str, list[str]] = {}
        for start in sorted(starts, key=lambda start: not is_reference(start.origin)):
            origins.setdefault(config_hash(start.config), []).append(start.origin)
        known = {trial.user_attrs["hash"] for trial in self._database.trials}
        for start in starts:
            hash_ = config_hash(start.config)
            if hash_ in known:
                continue
            known.add(hash_)
            parameters, distributions = self._proposer.as_parameters(start.config)
            self._database.add(
                create_trial(
                    state=TrialState.WAITING,
                    params=parameters,
                    distributions=distributions,
                    user_attrs={
                        "configuration": start.config,
                        "hash": hash_,
                        "origin": origins[hash_][0],
                        "also": origins[hash_][1:],
                    },
                )
            )
        self._database.set_study_attr("ready", True)

    def _record(self, trial: FrozenTrial) -> TrialRecord:
        """Return the trial's record; those of ended ones, maybe thousands, are made once."""
        if not trial.state.is_finished():
            return _record(trial)
        if trial.number not in self._ended:
            self._ended[trial.number] = _record(trial)
        return self._ended[trial.number]

    def _in_state(self, state: TrialState) -> list[FrozenTrial]:
        return [trial for trial in self._database.trials if trial.state == state]


def _asked(trial: FrozenTrial) -> Asked:
    attrs = trial.user_attrs
    kept = attrs.get("attrs", {})
    return Asked(trial.number, attrs["configuration"], attrs["origin"], kept)


def _record(trial: FrozenTrial) -> TrialRecord:
    attrs = trial.user_attrs
    more = {key: attrs[key] for key in ("proposal", "also") if attrs.get(key)}
    started, finished = trial.datetime_start, trial.datetime_complete
    values, steps = trial.values, intermediate(trial)
    return TrialRecord(
        number=trial.number,
        state=trial.state.name,
        reason=attrs.get("reason", ""),
        origin=attrs["origin"],
        config=attrs["configuration"],
        hash=attrs["hash"],
        value=values[0] if values else None,
        intermediate={step: row[0] for step, row in steps.items()},
        attrs={**more, **attrs.get("attrs", {})},
        started=started.timestamp() if started else None,
        finished=finished.timestamp() if finished else None,
        others=tuple(values[1:]) if values else (),
        other_intermediate={s: row[1:] for s, row in steps.items() if row[1:]},
    )


def intermediate(trial: FrozenTrial) -> dict[int, tuple[float, ...]]:
    """Return env_steps -> the value of each objective."""
    if INTERMEDIATE in trial.user_attrs:
        return {int(step): tuple(row) for step, row in trial.user_attrs[INTERMEDIATE].items()}
    return {step: (value,) for step, value in trial.intermediate_values.items()}


def _with_intermediate(
    trial: FrozenTrial, env_steps: int, values: Sequence[float]
) -> dict[str, Any]:
    """Return the user attribute with the values at a further point."""
    known = trial.user_attrs.get(INTERMEDIATE, {})
    return {INTERMEDIATE: {**known, str(env_steps): list(values)}}


def _merged(trial: FrozenTrial, attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {**trial.user_attrs.get("attrs", {}), **json_dict(attrs)}
