"""The trainer of trainings of the user's own: it runs them from one report to the next."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rltune.agents.config import config_dict, make_config
from rltune.agents.engines import AUTO
from rltune.agents.envs.suite import NO_ENV
from rltune.agents.errors import UserError
from rltune.agents.eval_modes import GREEDY
from rltune.agents.loop.controls import Controls
from rltune.agents.loop.results import Chunk, Evaluation
from rltune.backends.external.config import class_of
from rltune.backends.external.function import FunctionSource, function_of
from rltune.backends.external.source import Nothing, Source
from rltune.backends.external.trial import Report, Trial
from rltune.backends.names import FUNCTION, METRIC_NAME
from rltune.backends.trainer import BaseTrainer

EARLY = 0.9  # of the budget: a training that ends before has ended early


class ExternalAgent(BaseTrainer):
    """A training of the user's own on its way; see `rltune.backends.base.Trainer`.

    ``learn`` ends where a report reaches its point, and the last report up to there counts: it is
    what ``evaluate`` returns. A report beyond the point is kept for the next one. Where the first
    report of all is beyond it, that one counts, and ``env_steps`` are its own.

    A training that goes on after a checkpoint begins anew in its folder, where it may find files of
    its own; reports up to the checkpoint are passed over.

    Args:
        algorithm: ``function:module:name``, or ``script:FILE``
        env: handed to the code
        config: hyperparameters; what is not given is left to the code
        total_timesteps: the budget
        seed: handed to the code
        device: handed to a function
        controls: of these, the target reward stops it
        env_kwargs: handed to a function; the name of the metric is among them
        engine: of no meaning
    """

    env_steps = 0
    kind = ""  # what stands before its name

    def __init__(
        self,
        algorithm: str,
        env: str,
        config: Mapping[str, object] | None = None,
        *,
        total_timesteps: int,
        seed: int = 0,
        device: str = "auto",
        controls: Controls | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
        engine: str = AUTO,
    ) -> None:
        super().__init__(
            algorithm,
            env,
            make_config(class_of(config or {}), config or {}),
            total_timesteps=total_timesteps,
            seed=seed,
            controls=controls,
            env_kwargs=env_kwargs,
        )
        self.device = device
        self.folder: Path | None = None
        self._last: Report | None = None  # up to env_steps
        self._ahead: Report | None = None  # beyond
        self._passed_over = 0  # env steps up to which reports are known
        self._is_over = False
        self._source: Source | None = None

    @abstractmethod
    def _make_source(self, values: dict[str, Any]) -> Source:
        """Return what runs the training with these hyperparameters."""

    @property
    def name(self) -> str:
        """The name of the code in messages."""
        return self.algorithm_spec.removeprefix(self.kind)

    @property
    def metric(self) -> str:
        """The name of what is reported."""
        return str(self.env_kwargs.get(METRIC_NAME, "")).removeprefix("-")

    def work_in(self, folder: Path) -> None:
        """Keep the files of the training there."""
        self.folder = folder

    # ------------------------------------------------------------------------------------ training

    def _watched(self, controls: Controls) -> Controls:
        return replace(controls, reward_buffer_size=1)

    @property
    def cpu_elsewhere(self) -> float:
        """Seconds that other processes have computed for it."""
        return 0.0 if self._source is None else self._source.cpu_seconds

    def learn(self, until: int, deadline: float | None = None) -> Chunk:
        """Run it until its reports reach ``until``, or until the deadline (Unix seconds)."""
        started = time.perf_counter()
        values: dict[str, list[float]] = {}
        notes: list[str] = []
        taken = 0
        while not self._is_done(until):
            report = self._next(deadline)
            if report is Nothing.YET:
                break
            if isinstance(report, Nothing):
                notes += self._end(until)
            elif report.env_steps > until and self._last is not None:
                self._ahead, self.env_steps = report, until
            else:
                self._take(report)
                taken += 1
                for name, number in report.metrics.items():
                    if math.isfinite(number):
                        values.setdefault(name, []).append(number)
        value = None if self._last is None else self._last.value
        return Chunk(
            env_steps=self.env_steps,
            seconds=time.perf_counter() - started,
            values=values,
            episodes=[],
            mean_reward=value,
            best_reward=self.monitor.best_reward,
            stop_reason=self.stop_reason,
            diverged=self.diverged,
            updates=taken,
            notes=notes,
        )

    def _next(self, deadline: float | None) -> Report | Nothing:
        if self._ahead is not None:
            report, self._ahead = self._ahead, None
            return report
        if self._is_over:
            return Nothing.MORE
        if self._source is None:
            given = config_dict(self.config)
            self._source = self._make_source({n: v for n, v in given.items() if v is not None})
        while True:
            came = self._source.next(deadline)
            if isinstance(came, Nothing) or came.env_steps > self._passed_over:
                return came

    def _take(self, report: Report) -> None:
        self._last = report
        self.env_steps = max(self.env_steps, report.env_steps)
        if not math.isfinite(report.value):
            self.diverged = f"{self.name} reported {report.value} at {report.env_steps:,} env_steps"
            return
        self.monitor.episode(report.value, report.env_steps)

    def _end(self, until: int) -> list[str]:
        """Note that the training has ended: its last value holds from now on."""
        if self._last is None:
            raise UserError(f"{self.name} has ended without a value; {self._how_to_report()}.")
        self.env_steps = until
        if self._is_over:
            return []
        self._is_over = True
        reached = self._last.env_steps
        if reached >= EARLY * self.total_timesteps:
            return []
        return [
            f"{self.name} ended by itself at {reached:,} of {self.total_timesteps:,} env_steps: "
            "its last value counts for the rest"
        ]

    def _how_to_report(self) -> str:
        return "call trial.report(env_steps, value)"

    def evaluate(
        self,
        episodes: int = 10,
        seed: int | None = None,
        max_steps: int | None = None,
        mode: str = GREEDY,
        *,
        first: int = 0,
    ) -> Evaluation:
        """Return the last report as an evaluation of one episode, whatever is asked for."""
        if self._last is None:
            raise UserError(f"{self.name} has reported nothing yet")
        metrics = {**self._last.metrics}
        if self.metric not in ("", "eval_return"):
            metrics.setdefault(self.metric, self._last.value)
        return Evaluation([self._last.value], [1], 0.0, metrics=metrics)

    # --------------------------------------------------------------------------------- checkpoints

    def load_weights(self, path: str | Path) -> None:
        """Raise `UserError`: nobody knows what is in it."""
        raise UserError(f"{self.name} is code of your own, which rltune can't give weights")

    def _state(self, *, memory: bool) -> dict[str, Any]:
        """Return what has been reported; what else it needs to go on, the code keeps itself."""
        return {
            "last": self._last and vars(self._last),
            "ahead": self._ahead and vars(self._ahead),
            "is_over": self._is_over,
        }

    @classmethod
    def _arguments(cls, state: Mapping[str, Any], acts_only: bool) -> dict[str, Any]:
        if acts_only:
            raise UserError(
                f"{state['agent'].removeprefix(cls.kind)} is code of your own: rltune knows its "
                "configuration and its reports, but not its policy, and can't act with it."
            )
        return {}

    def _take_over(self, state: Mapping[str, Any]) -> None:
        self.env_steps = state["env_steps"]
        self._last = state["last"] and Report(**state["last"])
        self._ahead = state["ahead"] and Report(**state["ahead"])
        self._is_over = bool(state["is_over"])
        known = self._ahead or self._last
        self._passed_over = max(self.env_steps, known.env_steps if known else 0)

    def close(self) -> None:
        """End the training, if it has not ended."""
        if self._source is not None:
            self._source.stop()
            self._source = None


class FunctionAgent(ExternalAgent):
    """A function that trains: ``def my_train(config, trial)``."""

    kind = FUNCTION

    def _make_source(self, values: dict[str, Any]) -> Source:
        function = function_of(self.algorithm_spec)

        def make_trial(receive: Any) -> Trial:
            given = {n: v for n, v in self.env_kwargs.items() if n != METRIC_NAME}
            env = None if self.env == NO_ENV else self.env
            return Trial(
                self.seed,
                self.total_timesteps,
                env=env,
                env_kwargs=given,
                device=self.device,
                folder=self.folder,
                receive=receive,
            )

        return FunctionSource(self.name, function, values, make_trial)
