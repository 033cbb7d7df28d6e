"""The events of a search, as its callbacks hear of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rltune.common.callbacks import Callbacks, RunInfo, TrialInfo

if TYPE_CHECKING:
    from rltune.search.jobs import RunningTrial
    from rltune.study.records import TrialRecord


class SearchEvents:
    """Tells the callbacks of a search what happens, each thing once.

    Args:
        callbacks: of the search
        incumbent: the best trial of a search that is resumed

    Attributes:
        search_is_over: whether a callback has asked for the end of the search
    """

    def __init__(
        self, callbacks: Callbacks | None = None, incumbent: TrialRecord | None = None
    ) -> None:
        self._callbacks = callbacks or Callbacks()
        self._incumbent = incumbent and incumbent.number
        self._started: set[int] = set()
        self.search_is_over = False

    def search_started(self, search: RunInfo) -> None:
        """Tell that the first trial is about to begin."""
        self._tell("on_search_start", search)

    def trial_begins(self, trial: RunningTrial) -> bool:
        """Tell of a trial before its first training here; return whether it is to end at once."""
        if trial.number in self._started:
            return False
        self._started.add(trial.number)
        return self._callbacks.call("on_trial_start", _info(trial))

    def reported(self, trial: RunningTrial, row: Mapping[str, Any]) -> bool:
        """Tell of a row of the history; return whether the trial is to end."""
        if not self._callbacks.wants("on_report"):
            return False
        return self._callbacks.call("on_report", _info(trial), row)

    def trial_ended(
        self, trial: RunningTrial, state: str, value: float | None, reason: str
    ) -> None:
        """Tell that a trial has ended."""
        self._tell("on_trial_end", _info(trial, state, value, reason))

    def incumbent_is(self, best: TrialRecord | None) -> None:
        """Tell of the best trial if it is another one than before."""
        if best is None or best.number == self._incumbent:
            return
        self._incumbent = best.number
        steps = max(best.intermediate, default=0)
        about = TrialInfo(best.number, best.config, best.origin, steps, best.state, best.value)
        self._tell("on_new_incumbent", about)

    def answered(self, answer: Mapping[str, Any]) -> None:
        """Tell the answer."""
        self._tell("on_answer", answer)

    def search_ended(self, search: RunInfo) -> None:
        """Tell that this is the end."""
        self._tell("on_search_end", search)

    def _tell(self, event: str, about: object) -> None:
        self.search_is_over |= self._callbacks.call(event, about)


def _info(
    trial: RunningTrial, state: str = "RUNNING", value: float | None = None, reason: str = ""
) -> TrialInfo:
    return TrialInfo(
        trial.number,
        trial.config,
        trial.origin,
        max((run.env_steps for run in trial.seeds.runs.values()), default=0),
        state,
        trial.value if state == "RUNNING" else value,
        reason,
    )
