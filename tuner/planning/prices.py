"""Prices of trials in a running search: seconds that they took, and that others will take."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rltune.samplers.cost_model import CostModel
from rltune.space.surroundings import LENGTH

if TYPE_CHECKING:
    from rltune.space.space import Space
    from rltune.study.records import TrialRecord

MIN_TRIALS = 3  # before it speaks
NEWS_SHARE = 0.05  # it learns anew when so much is new: a fit takes milliseconds


class Prices:
    """Learns from every result of the search; predicts seconds of a worker's time.

    Args:
        space: what is searched
        budget: env steps of a whole budget
        first_rung: env steps after which a trial is compared for the first time

    Attributes:
        refused: how many proposals were not started because time was too short for them
    """

    def __init__(self, space: Space, budget: int, first_rung: int) -> None:
        self.refused = 0
        self.first_rung = first_rung
        self._model = CostModel(space, budget)
        self._budget = budget
        self._seen: dict[int, tuple[Mapping[str, Any], float, int]] = {}
        self._news = 0  # results since the last fit

    def restore(self, trials: Iterable[TrialRecord]) -> None:
        """Learn from the trials of an earlier process."""
        for trial in trials:
            seconds, steps = trial.attrs.get("seconds"), trial.attrs.get("env_steps")
            if seconds and steps:
                self.observe(trial.number, trial.config, seconds, steps)

    def observe(
        self, number: int, config: Mapping[str, Any], seconds: float, env_steps: int
    ) -> None:
        """Take what a trial has cost so far."""
        if env_steps > 0:
            self._seen[number] = (config, seconds / env_steps, env_steps)
            self._news += 1

    def seconds(self, config: Mapping[str, Any], env_steps: int | None = None) -> float | None:
        """Return the seconds of so many env steps (None: the whole budget); None while unknown."""
        if len(self._seen) < MIN_TRIALS:
            return None
        if self._news >= NEWS_SHARE * len(self._seen):
            configs, rates, steps = zip(*self._seen.values(), strict=True)
            self._model.fit(configs, rates, steps)
            self._news = 0
        steps_to_go = env_steps or config.get(LENGTH, self._budget)
        return float(self._model.predict([config], steps_to_go)[0]) * steps_to_go

    def of_retraining(self, number: int, config: Mapping[str, Any]) -> float | None:
        """Return the seconds that training a finalist again takes; None while unknown.

        They are measured for a trial that ran its whole budget.
        """
        _, rate, env_steps = self._seen.get(number, (config, 0.0, 0))
        whole = env_steps == config.get(LENGTH, self._budget)
        return rate * env_steps if whole else self.seconds(config)

    def affordable(self, config: Mapping[str, Any], seconds_left: float) -> bool:
        """Whether a trial gets to its first rung in time; those that don't are counted."""
        if math.isinf(seconds_left):
            return True
        needed = self.seconds(config, self.first_rung)
        if needed is None or needed <= seconds_left:
            return True
        self.refused += 1
        return False
