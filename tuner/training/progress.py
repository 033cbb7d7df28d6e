"""The progress of a training: a bar in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from rltune.agents.loop.results import Evaluation

SECONDS_PER_LINE = 10.0
NARROW = 90  # columns


class TrainProgress:
    """Use as a context manager; `update` after every piece of training."""

    def __init__(self, total: int, plain: bool = False) -> None:
        self.total = total
        self.console = Console(stderr=True)
        self.bar: Progress | None = None
        if not plain and self.console.is_terminal:
            wide = self.console.width >= NARROW
            self.bar = Progress(
                BarColumn(bar_width=None if wide else 12),
                TaskProgressColumn(),
                TextColumn("{task.description}"),
                *([TimeElapsedColumn()] if wide else []),
                TimeRemainingColumn(compact=not wide),
                console=self.console,
                expand=wide,
                speed_estimate_period=60.0,
            )
            self.task = self.bar.add_task("", total=total, start=False)
        self.evaluated = ""
        self.line_at = self.rate_at = time.monotonic()
        self.rate_from: int | None = None
        self.rate = 0.0

    def __enter__(self) -> TrainProgress:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def note(self, text: str) -> None:
        """Show a sentence above the bar."""
        self.console.print(text, highlight=False)

    def update(
        self, env_steps: int, mean_reward: float | None, evaluation: Evaluation | None = None
    ) -> None:
        """Show the progress and the scores of the training."""
        self._measure(env_steps)
        if evaluation is not None:
            self.evaluated = f"eval {evaluation.mean:.4g}"
            if evaluation.success_rate is not None:
                self.evaluated += f"  success {evaluation.success_rate:.4g}"
        reward = "" if mean_reward is None else f"reward {mean_reward:.4g}"
        rate = f"{self.rate:,.0f} steps/s" if self.rate else ""
        facts = "  ".join(fact for fact in (rate, reward, self.evaluated) if fact)
        if self.bar is not None:
            if not self.bar.tasks[0].started:
                self.bar.start_task(self.task)
            self.bar.update(
                self.task, completed=min(env_steps, self.total), description=facts, refresh=True
            )
        elif evaluation is not None or time.monotonic() - self.line_at >= SECONDS_PER_LINE:
            self.line_at = time.monotonic()
            left = max(0, self.total - env_steps) / self.rate if self.rate else 0.0
            text = f"{env_steps:>11,} of {self.total:,} env steps  {facts}  ETA {_duration(left)}"
            print(text, file=sys.stderr, flush=True)

    def _measure(self, env_steps: int) -> None:
        """Keep a running mean of the training's speed, evaluations included."""
        now = time.monotonic()
        if self.rate_from is None:
            self.rate_from, self.rate_at = env_steps, now
        elif now - self.rate_at >= 1.0:
            rate = (env_steps - self.rate_from) / (now - self.rate_at)
            self.rate = rate if not self.rate else 0.7 * self.rate + 0.3 * rate
            self.rate_from, self.rate_at = env_steps, now


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
