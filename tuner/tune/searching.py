"""Ray Tune's search algorithm on rltune's durable study."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray.tune.search import Searcher
from rltune.agents.errors import UserError
from rltune.common.files import atomic_write
from rltune.space.space import Space
from rltune.tune.modes import direction_of
from rltune.tune.scheduling import TIME

if TYPE_CHECKING:
    from rltune.study.records import Asked
    from rltune.study.study import SearchStudy


def searcher(
    space: Mapping[str, Any] | str | os.PathLike[str],
    path: str | os.PathLike[str],
    metric: str,
    mode: str = "max",
    *,
    sampler: str = "tpe",
    seed: int = 0,
    time_attr: str = TIME,
    budget: int | None = None,
    **options: Any,
) -> TuneSearcher:
    """Return a search algorithm for Ray Tune.

    Every proposal and result is in an Optuna study on the disk as soon as it is known, so that
    nothing is lost when the process is killed, and ``sqlite:///PATH`` opens in Optuna's tools.

    Args:
        space: in rltune's language: a dict, or a YAML file; its ``start`` comes first
        path: of the study; one that is there goes on
        metric: of the results; Tune does not tell it, even where its configuration has it
        mode: "max" or "min"
        sampler: as in ``rltune run --sampler``
        seed: of the proposals
        time_attr: of the results, at which intermediate values are kept
        budget: the value of ``time_attr`` at which a trial is whole; one that ends before counts as
            stopped. None: all that end are whole
        options: of the sampler, as in ``--sampler-options``

    Raises:
        UserError: a wrong space, sampler or option.
    """
    read = Space.from_dict(space) if isinstance(space, Mapping) else Space.load(Path(space))
    direction_of(mode)
    found = TuneSearcher(
        read, Path(path).absolute(), metric, mode, sampler, options, seed, time_attr, budget
    )
    found.open()
    return found


class TuneSearcher(Searcher):  # type: ignore[misc]
    """Hands a study's trials to Tune, and tells it what came of them.

    Args:
        space: what is searched
        path: of the study
        metric, mode: of the results
        sampler, options, seed: of the proposals
        time_attr: at which intermediate values are kept
        budget: at which a trial is whole; None: all that end are
    """

    def __init__(
        self,
        space: Space,
        path: Path,
        metric: str,
        mode: str,
        sampler: str,
        options: Mapping[str, Any],
        seed: int,
        time_attr: str,
        budget: int | None,
    ) -> None:
        super().__init__(metric=metric, mode=mode)
        self._metric: str = metric
        self.space, self.path, self.time_attr, self.budget = space, path, time_attr, budget
        self._sampler, self._options, self._seed = sampler, dict(options), seed
        self._study: SearchStudy | None = None
        self._numbers: dict[str, int] = {}  # of the study's trials, by the ids of Tune's
        self._last: dict[str, tuple[int, float]] = {}  # the last values, and at what
        self._left: list[Asked] | None = None  # trials that nobody runs: an earlier process did

    def open(self) -> SearchStudy:
        """Return the study, which is opened once."""
        from rltune.samplers.proposer import open_study
        from rltune.study.records import StartConfig

        if self._study is None:
            starts = [
                StartConfig(f"start:{i}", self.space.resolve(start.values))
                for i, start in enumerate(self.space.starts)
            ]
            self._study = open_study(
                self.path,
                self.space,
                sampler=self._sampler,
                sampler_options=self._options,
                seed=self._seed,
                direction=direction_of(self._mode),
                starts=starts,
            )
        return self._study

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any
    ) -> bool:
        """Refuse a search space of Tune's: the searcher has its own."""
        raise UserError("the search space is the searcher's; leave param_space out of the Tuner")

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the configuration of the next trial."""
        study = self.open()
        if self._left is None:
            ours = set(self._numbers.values())
            self._left = [asked for asked in study.unfinished() if asked.number not in ours]
        asked = self._left.pop(0) if self._left else study.ask()
        if asked is None:
            return str(Searcher.FINISHED)
        self._numbers[trial_id] = asked.number
        return dict(asked.config)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Keep an intermediate value."""
        if trial_id not in self._numbers or self._metric not in result:
            return
        value = float(result[self._metric])
        at = int(result.get(self.time_attr, result["training_iteration"]))
        self._last[trial_id] = at, value
        if math.isfinite(value):
            self.open().report(self._numbers[trial_id], at, value)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """End the trial; one that ended before its budget has its last value."""
        number = self._numbers.get(trial_id)
        if number is None:
            return
        if error:
            self.open().tell(number, "FAIL", reason="error: the trial failed in Ray Tune")
            return
        if result:
            self.on_trial_result(trial_id, result)
        at, value = self._last.pop(trial_id, (0, math.nan))
        is_whole = self.budget is None or at >= self.budget
        reason = "" if is_whole else f"stopped by Ray Tune at {at:,}"
        self.open().tell(number, "COMPLETE" if is_whole else "PRUNED", value, reason)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the open file out of what Tune pickles: the study is opened again."""
        return {**self.__dict__, "_study": None, "_left": None}

    def save(self, checkpoint_path: str) -> None:
        """Keep which trial of Tune's is which of the study's."""
        atomic_write(checkpoint_path, json.dumps(self._numbers))

    def restore(self, checkpoint_path: str) -> None:
        """Take over what `save` kept."""
        self._numbers, self._left = json.loads(Path(checkpoint_path).read_text()), None
