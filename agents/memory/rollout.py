"""Rollout memory: the last steps of all environments, for on-policy learning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.memory.finite import non_finite
from rltune.agents.memory.streams import Rewarding
from rltune.agents.spaces import Spaces

if TYPE_CHECKING:
    from rltune.agents.algorithm import VectorStep
    from typing_extensions import Unpack

Array = NDArray[Any]
_ROWS = ("obs", "action", "reward", "terminated", "truncated", "valid")


class RolloutMemory:
    """The last steps of all environments, in arrays of shape (n_steps, n_envs, ...).

    True successors are kept only where the value of one is needed that is not the next row: at time
    limits and after the last step. With reward signals, those behind terminations are kept too.

    Args:
        n_steps: how many steps of each environment it holds
        spaces: of one environment, and how many there are
        action_shape: of one action
        action_dtype: of the actions

    Attributes:
        signals: reward its steps beside the environment; None: nothing does
        log_prob: of the actions under the policies that acted, (n_steps, n_envs); None: that is
            the policy that learns
    """

    signals: Rewarding | None = None
    log_prob: Array | None = None

    def __init__(
        self,
        n_steps: int,
        spaces: Spaces,
        action_shape: tuple[int, ...],
        action_dtype: type[np.generic],
    ) -> None:
        shape, dtype = spaces.observation.shape, spaces.observation.dtype
        assert shape is not None
        rows = (n_steps, spaces.n_envs)
        self.n_steps = n_steps
        self.obs = np.zeros((*rows, *shape), np.uint8 if dtype == np.uint8 else np.float32)
        self.action = np.zeros((*rows, *action_shape), action_dtype)
        self.reward = np.zeros(rows, np.float32)
        self.terminated = np.zeros(rows, np.bool_)
        self.truncated = np.zeros(rows, np.bool_)
        self.valid = np.zeros(rows, np.bool_)
        self._whole: dict[str, Array] = {name: getattr(self, name) for name in _ROWS}
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        vars(self).update(self._whole)
        self.position = 0
        self.final_index: list[tuple[int, int]] = []  # (step, env) of the kept successors
        self.final_obs: list[Array] = []
        self._next_obs: Array | None = None

    interrupt = clear  # a rollout whose episodes are gone can't be completed

    @property
    def full(self) -> bool:
        """Whether the rollout is complete."""
        return self.position == len(self.reward)

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays, filled or not."""
        return sum(array.nbytes for array in self._whole.values())

    def non_finite(self) -> list[str]:
        """Return those of "an observation" and "a reward" that have NaN or infinity in them."""
        return non_finite(self.obs, self.reward)

    def end_rollout(self) -> None:
        """End the rollout here: until it is cleared, the arrays have only the steps so far."""
        if self.full or self._next_obs is None:
            return
        for name in _ROWS:
            setattr(self, name, getattr(self, name)[: self.position])
        last = self.position - 1
        kept = {env for step, env in self.final_index if step == last}
        self._keep(last, [n for n in range(len(self._next_obs)) if n not in kept], self._next_obs)

    def add(self, **step: Unpack[VectorStep]) -> None:
        """Append one step of all environments; the first axis of every array is n_envs."""
        t, truncated, next_obs = self.position, step["truncated"], step["next_obs"]
        if t == len(self.reward):
            raise RuntimeError("the rollout is full: update() has to clear it first")
        self.obs[t] = step["obs"]
        self.action[t] = step["action"]
        self.reward[t] = step["reward"]
        self.terminated[t] = step["terminated"]
        self.truncated[t] = truncated
        self.valid[t] = step["valid"]
        self.position = t + 1
        self._next_obs = next_obs
        if self.full:
            self._keep(t, range(len(next_obs)), next_obs)
            return
        if self.signals is not None:
            truncated = truncated | step["terminated"]
        if np.count_nonzero(truncated):  # any() takes five times as long
            self._keep(t, np.flatnonzero(truncated).tolist(), next_obs)

    def successors(self) -> Array:
        """Return the true successors of all steps: (n_steps, n_envs, ...).

        Behind terminations they are known with reward signals alone.
        """
        next_obs = np.empty_like(self.obs)
        next_obs[:-1] = self.obs[1:]
        for (step, env), obs in zip(self.final_index, self.final_obs, strict=True):
            next_obs[step, env] = obs
        return next_obs

    def _keep(self, t: int, envs: Any, next_obs: Array) -> None:
        self.final_index += [(t, env) for env in envs]
        self.final_obs += [next_obs[env].copy() for env in envs]

    def state_dict(self) -> dict[str, Any]:
        """Return the filled part as tensors."""
        state: dict[str, Any] = {
            name: torch.from_numpy(getattr(self, name)[: self.position].copy()) for name in _ROWS
        }
        finals = np.array(self.final_obs, self.obs.dtype)
        return {**state, "final_index": self.final_index, "final_obs": torch.from_numpy(finals)}

    def hold(self, state: dict[str, Any]) -> None:
        """Hold a rollout until it is cleared, however short: what ``state_dict`` gave elsewhere."""
        for name in _ROWS:
            setattr(self, name, state[name].numpy())
        self.position = len(self.obs)
        self.final_index = [(int(t), int(env)) for t, env in state["final_index"]]
        self.final_obs = list(state["final_obs"].numpy())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        self.position = len(state["obs"])
        for name in _ROWS:
            getattr(self, name)[: self.position] = state[name].numpy()
        self.final_index = [(int(t), int(env)) for t, env in state["final_index"]]
        self.final_obs = list(state["final_obs"].numpy())
