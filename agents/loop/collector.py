"""Experience collection: acts in the environments and fills the memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.algorithm import Algorithm
from rltune.agents.envs.vector import Envs, Transition
from rltune.agents.loop.acting import RecurrentActing
from rltune.agents.loop.normalization import Normalizers

Array = NDArray[Any]


class Collector:
    """Steps the training environments with an exploring policy.

    Args:
        envs: the environments of the training
        algorithm: the policy
        memory: is given every step, normalised
        normalizers: of observations and rewards
    """

    def __init__(
        self, envs: Envs, algorithm: Algorithm[Any], memory: Any, normalizers: Normalizers
    ) -> None:
        self.envs, self.algorithm, self.memory = envs, algorithm, memory
        self.normalizers = normalizers
        self._acting = RecurrentActing(algorithm)
        self._obs: Array | None = None  # what to act on next, as the networks get it
        # From a checkpoint: playing episodes again takes time, and only training needs it.
        self._envs_state: dict[str, Any] | None = None

    @property
    def replays(self) -> bool:
        """Whether environments of a checkpoint go on with their episodes, or begin new ones."""
        return self.envs.replays

    def begin(self) -> None:
        """Bring the environments to where the training stands."""
        if self._envs_state is not None:
            self.envs.load_state_dict(self._envs_state)
            self._envs_state = None
            if not self.envs.replays:
                self._obs = self.normalizers.learn(self.envs.obs)
        elif self._obs is None:
            self._obs = self._acting.first(self.normalizers.learn(self.envs.reset()))

    def step(self) -> Transition:
        """Take one step in all environments and store it; returns it as the environments gave it.

        Raises:
            Exception: whatever an environment raises
        """
        assert self._obs is not None
        action = self._acting.act(self._obs, explore=True)
        step = self.envs.step(action)
        self._store(self._obs, action, step)
        return step

    def _store(self, acted_on: Array, action: Array, step: Transition) -> None:
        """Put the step into the memory as the algorithm shall see it, and move on."""
        normalizers = self.normalizers
        ended = step.ended
        obs = normalizers.learn(step.obs)
        reward = step.reward
        next_obs = obs if step.next_obs is step.obs else normalizers.normalize(step.next_obs)
        if normalizers.rewards is not None:
            reward = normalizers.rewards.normalize(reward, ended, step.valid)
        if self.algorithm.state_size:
            obs = self._acting.inputs(obs, ended)
            next_obs = self._acting.inputs(next_obs, np.zeros_like(ended))
        self.memory.add(
            obs=acted_on,
            action=action,
            reward=reward,
            terminated=step.terminated,
            truncated=step.truncated,
            next_obs=next_obs,
            valid=step.valid,
        )
        if np.count_nonzero(ended):
            self.algorithm.episodes_ended(ended)
        self._obs = obs

    def break_off(self) -> None:
        """Note that all environments begin new episodes although the old ones have not ended."""
        self.memory.interrupt()
        self.algorithm.episodes_ended(np.ones(self.envs.n_envs, np.bool_))

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the environments in their episodes."""
        if self._obs is None:
            return {"envs": None, "obs": None}
        return {
            "envs": self._envs_state or self.envs.state_dict(),
            "obs": torch.from_numpy(self._obs),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` gave; `begin` brings the environments there."""
        if not self.envs.replays:
            self.break_off()
        if state["obs"] is not None:
            self._envs_state = state["envs"]
            self._obs = state["obs"].numpy()
