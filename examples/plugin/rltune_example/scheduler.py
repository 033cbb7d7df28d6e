"""A scheduler: a trial ends where it is far behind the best one at the same env steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import ClassVar

from rltune.schedulers.base import Reports, Scheduler, Setup
from rltune.schedulers.options import SchedulerOption


class Follow(Scheduler):
    """`share` is an option: --scheduler-options "{share: 0.8}" asks for 80 % of the best value."""

    name = "follow"
    options: ClassVar = {"share": SchedulerOption(0.5, 0.0, 1.0)}

    @classmethod
    def create(cls, setup: Setup) -> Follow:
        return cls(setup.options["share"])

    def __init__(self, share: float) -> None:
        self.share = share
        self.best: dict[int, float] = defaultdict(lambda: float("-inf"))
        self.reasons: dict[int, str] = {}

    def decide(
        self,
        trial: int,
        env_steps: int,
        value: float | None,
        standard_error: float = 0.0,
        training: float | None = None,
    ) -> str:
        if value is None:
            return "continue"
        needed = self.share * self.best[env_steps]
        self.best[env_steps] = max(self.best[env_steps], value)
        if value >= needed:
            return "continue"
        self.reasons[trial] = f"behind the best at {env_steps:,}: {value:g} < {needed:g}"
        return "stop"

    def reason(self, trial: int) -> str:
        return self.reasons.get(trial, "")

    def restore(
        self, reports: Reports, stopped: Iterable[int] = (), training: Reports | None = None
    ) -> None:
        """A resumed search knows what its trials had reached."""
        self.best.clear()
        for values in reports.values():
            for env_steps, value in values.items():
                self.best[env_steps] = max(self.best[env_steps], value)
