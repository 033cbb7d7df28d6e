"""Offline training: an algorithm learns from what its memory holds, and no environment is stepped.

What each minibatch has counts as env steps, so that budgets, schedules, evaluations and rungs mean
what they mean elsewhere.
"""

from __future__ import annotations

from typing import Any

from rltune.agents.algorithm import Algorithm
from rltune.agents.envs.vector import Envs
from rltune.agents.errors import UserError
from rltune.agents.loop.collector import Collector
from rltune.agents.loop.controls import Controls
from rltune.agents.loop.normalization import Normalizers
from rltune.agents.loop.training import TrainingLoop, _Tally


class OfflineCollector(Collector):
    """Leaves the environments alone; the normalisation is learned from all of the memory at once.

    Args:
        envs: not stepped
        algorithm: the policy
        memory: what is learned from; see `rltune.agents.demonstrations.memory`
        normalizers: of observations
    """

    def __init__(
        self, envs: Envs, algorithm: Algorithm[Any], memory: Any, normalizers: Normalizers
    ) -> None:
        super().__init__(envs, algorithm, memory, normalizers)
        normalizers.learn(memory.obs)
        memory.normalize_by(normalizers.normalize)

    def begin(self) -> None:
        """Do nothing: all of the memory is there."""


class OfflineLoop(TrainingLoop):
    """Lets the algorithm learn, again and again."""

    def _step(self, tally: _Tally) -> None:
        """Do one update; the last one of a training may have more steps than are counted."""
        progress = self.progress
        left = self.total_timesteps - progress.env_steps
        every = self.algorithm.update_every
        progress.env_steps += min(every, left) if left > 0 else every
        self._update(tally)


def check_controls(controls: Controls, agent: str) -> None:
    """Raise UserError for rules that watch training episodes: there are none."""
    for name in ("target_reward", "plateau_patience"):
        if getattr(controls, name) is not None:
            raise UserError(
                f"{name} watches the episodes of a training, and {agent} plays none; leave it out"
            )
