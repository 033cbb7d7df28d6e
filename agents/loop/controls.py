"""Training controls: early stopping, and a learning rate that falls on plateaus."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, fields
from typing import Any

from rltune.agents.errors import UserError

MOST_EPISODES = 10_000_000


@dataclass(frozen=True)
class Controls:
    """The rules; each is off by default.

    Args:
        target_reward: stop when the mean reward reaches it
        reward_buffer_size: the mean reward is that of so many last training episodes
        plateau_patience: so many finished episodes without a new best mean reward are a plateau
        plateau_factor: a plateau multiplies the learning rate by it
        early_stop_patience: stop after so many reductions
        monitor_from: env steps before which episodes neither set a best nor trigger anything
    """

    target_reward: float | None = None
    reward_buffer_size: int = 100
    plateau_patience: int | None = None
    plateau_factor: float = 0.9
    early_stop_patience: int | None = None
    monitor_from: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            is_number = isinstance(value, (int, float)) and math.isfinite(value)
            if isinstance(value, bool) or not (is_number or value is field.default):
                raise UserError(f"{field.name} must be a number, not {value!r:.60}")
        if not 1 <= self.reward_buffer_size <= MOST_EPISODES:
            raise UserError(f"reward_buffer_size must be from 1 to {MOST_EPISODES:,}")
        for name in ("plateau_patience", "early_stop_patience"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise UserError(f"{name} must be at least 1, not {value:g}")
        if not 0 < self.plateau_factor <= 1:
            raise UserError(
                f"plateau_factor must be above 0 and at most 1, not {self.plateau_factor:g}"
            )
        if self.plateau_patience is None and self.early_stop_patience is not None:
            raise UserError(
                "early_stop_patience counts the plateaus, of which there are none without "
                "plateau_patience; give both"
            )


class Monitor:
    """Watches the training episodes of one agent and applies the controls."""

    def __init__(self, controls: Controls) -> None:
        self.controls = controls
        self.returns: deque[float] = deque(maxlen=controls.reward_buffer_size)
        self.best_reward: float | None = None
        self.episodes_without_best = 0
        self.reductions = 0
        self.stop_reason: str | None = None

    @property
    def mean_reward(self) -> float | None:
        """The mean return of the last training episodes; None before the first one ends."""
        return math.fsum(self.returns) / len(self.returns) if self.returns else None

    @property
    def learning_rate_factor(self) -> float:
        """The factor on the learning rate after the plateaus so far."""
        return float(self.controls.plateau_factor**self.reductions)

    def episode(self, episode_return: float, env_steps: int) -> None:
        """Take note of a finished training episode."""
        self.returns.append(episode_return)
        mean = self.mean_reward
        if mean is None or env_steps < self.controls.monitor_from:
            return
        if self.best_reward is None or mean > self.best_reward:
            self.best_reward = mean
            self.episodes_without_best = 0
        else:
            self.episodes_without_best += 1
        self._check_target(mean)
        self._check_plateau()

    def _check_target(self, mean: float) -> None:
        target = self.controls.target_reward
        # One lucky first episode is no mean: wait for a full buffer.
        full = len(self.returns) == self.controls.reward_buffer_size
        if target is not None and full and mean >= target:
            self.stop_reason = f"mean reward {mean:.6g} reached the target {target:g}"

    def _check_plateau(self) -> None:
        patience = self.controls.plateau_patience
        if patience is None or self.episodes_without_best < patience:
            return
        self.reductions += 1
        self.episodes_without_best = 0
        stop_after = self.controls.early_stop_patience
        if stop_after is not None and self.reductions >= stop_after:
            self.stop_reason = f"no better mean reward after {self.reductions} reductions"

    def go_on(self, controls: Controls) -> None:
        """Take other controls, and forget that the old ones ended the training."""
        self.controls = controls
        self.returns = deque(self.returns, maxlen=controls.reward_buffer_size)
        self.episodes_without_best = 0
        self.stop_reason = None

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain Python."""
        return {
            "returns": list(self.returns),
            "best_reward": self.best_reward,
            "episodes_without_best": self.episodes_without_best,
            "reductions": self.reductions,
            "stop_reason": self.stop_reason,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        self.returns = deque(state["returns"], maxlen=self.controls.reward_buffer_size)
        self.best_reward = state["best_reward"]
        self.episodes_without_best = state["episodes_without_best"]
        self.reductions = state["reductions"]
        self.stop_reason = state["stop_reason"]
