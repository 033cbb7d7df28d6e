"""Replay: transitions that are kept and learned from again."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.algorithm import Spaces
from torch import Tensor

Array = NDArray[Any]
_SAVED = ("obs", "action", "reward", "terminated", "truncated", "valid")


class Batch(NamedTuple):
    """Sampled transitions; the first axis of every tensor is the batch."""

    obs: Tensor
    action: Tensor
    reward: Tensor  # of the n steps, discounted
    next_obs: Tensor  # after the n steps
    discount: Tensor  # what the value of next_obs counts: gamma ** n, and 0 after a termination


class ReplayMemory:
    """The latest transitions of all environments, in rings of shape (steps, n_envs, ...).

    Each observation is stored once: the successor of a row is the next row's observation. Only at
    time limits, where an episode's last observation has a value and no row, it is kept beside.

    Args:
        capacity: transitions that are kept, whatever the number of environments
        spaces: of one environment, and how many there are
        action_shape: of one action
        action_dtype: of the actions
        gamma: the discount factor
        n_step: rewards that are summed before a value is asked (Sutton 1988); an episode's end and
            the newest row cut the sum short
    """

    def __init__(
        self,
        capacity: int,
        spaces: Spaces,
        action_shape: tuple[int, ...],
        action_dtype: type[np.generic],
        *,
        gamma: float,
        n_step: int = 1,
    ) -> None:
        shape, dtype = spaces.observation.shape, spaces.observation.dtype
        assert shape is not None
        self.n_envs = spaces.n_envs
        self.capacity = max(1, capacity // self.n_envs)  # in steps of all environments
        self.gamma = gamma
        self.n_step = n_step
        # One row more: the successor of the newest step stands in the row that comes next.
        rows = (self.capacity + 1, self.n_envs)
        self.obs = np.zeros((*rows, *shape), np.uint8 if dtype == np.uint8 else np.float32)
        self.action = np.zeros((*rows, *action_shape), action_dtype)
        self.reward = np.zeros(rows, np.float32)
        self.terminated = np.zeros(rows, np.bool_)
        self.truncated = np.zeros(rows, np.bool_)
        self.valid = np.zeros(rows, np.bool_)
        self.final_obs: dict[tuple[int, int], Array] = {}  # by (row, env), at time limits
        self.position = 0  # the row to be written next
        self.steps = 0  # rows that hold a step

    def __len__(self) -> int:
        """Return how many transitions there are, those that are not valid included."""
        return self.steps * self.n_envs

    def add(
        self,
        *,
        obs: Array,
        action: Array,
        reward: Array,
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        next_obs: Array,
        valid: NDArray[np.bool_],
    ) -> None:
        """Append one step of all environments; the first axis of every array is n_envs."""
        t, rows = self.position, self.capacity + 1
        for key in [key for key in self.final_obs if key[0] == t]:
            del self.final_obs[key]
        self.obs[t] = obs
        self.action[t] = action
        self.reward[t] = reward
        self.terminated[t] = terminated
        self.truncated[t] = truncated & ~terminated
        self.valid[t] = valid
        for env in np.flatnonzero(self.truncated[t]).tolist():
            self.final_obs[t, env] = next_obs[env].copy()
        self.position = (t + 1) % rows
        self.obs[self.position] = next_obs
        self.steps = min(self.steps + 1, self.capacity)

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Return transitions drawn uniformly, with repetition, on the generator's device."""
        age, env = self._draw(batch_size, generator)
        return self._gather(age, env, generator.device)

    def _draw(self, batch_size: int, generator: torch.Generator) -> tuple[Array, Array]:
        """Return valid rows: how many steps ago, and of which environment."""
        device = generator.device

        def draw(n: int) -> Array:
            drawn = torch.randint(len(self), (n,), generator=generator, device=device)
            return drawn.cpu().numpy()

        flat = draw(batch_size)
        while True:
            age, env = flat // self.n_envs + 1, flat % self.n_envs
            wrong = np.flatnonzero(~self.valid[self._row(age), env])
            if not wrong.size:
                return age, env
            flat[wrong] = draw(wrong.size)

    def _row(self, age: Array) -> Array:
        return (self.position - age) % (self.capacity + 1)

    def _gather(self, age: Array, env: Array, device: torch.device) -> Batch:
        """Return the transitions that began ``age`` steps ago in the environments ``env``."""
        first = last = self._row(age)
        reward = self.reward[first, env]
        discount = np.full(len(age), self.gamma, np.float32)
        for _ in range(1, self.n_step):
            age = age - 1
            goes_on = (age > 0) & ~self.terminated[last, env] & ~self.truncated[last, env]
            last = np.where(goes_on, self._row(age), last)
            reward = reward + np.where(goes_on, discount * self.reward[last, env], 0.0)
            discount = np.where(goes_on, discount * self.gamma, discount)
        next_obs = self.obs[(last + 1) % (self.capacity + 1), env]
        for i in np.flatnonzero(self.truncated[last, env]).tolist():
            next_obs[i] = self.final_obs[int(last[i]), int(env[i])]
        discount = discount * ~self.terminated[last, env]

        def tensor(array: Array) -> Tensor:
            return torch.from_numpy(array).to(device)

        return Batch(
            obs=tensor(self.obs[first, env]),
            action=tensor(self.action[first, env]),
            reward=tensor(reward.astype(np.float32, copy=False)),
            next_obs=tensor(next_obs),
            discount=tensor(discount.astype(np.float32, copy=False)),
        )

    def interrupt(self) -> None:
        """Note that new episodes begin although none has ended: the newest steps have no successor.

        Their rows count as time limits, and what followed them is what stands behind them.
        """
        if not self.steps:
            return
        t = (self.position - 1) % (self.capacity + 1)
        for env in np.flatnonzero(~self.terminated[t] & ~self.truncated[t]).tolist():
            self.truncated[t, env] = True
            self.final_obs[t, env] = self.obs[self.position, env].copy()

    def state_dict(self) -> dict[str, Any]:
        """Return the filled part as tensors, the oldest step first."""
        ages = np.arange(self.steps, -1, -1)  # and the successor of the newest
        rows = self._row(ages)
        state: dict[str, Any] = {
            name: torch.from_numpy(getattr(self, name)[rows]) for name in _SAVED
        }
        order = {int(row): i for i, row in enumerate(rows)}
        state["final_index"] = [(order[t], env) for t, env in self.final_obs]
        finals = np.array(list(self.final_obs.values()), self.obs.dtype)
        return {**state, "final_obs": torch.from_numpy(finals)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        self.steps = self.position = len(state["obs"]) - 1
        for name in _SAVED:
            getattr(self, name)[: self.steps + 1] = state[name].numpy()
        self.final_obs = {
            (int(t), int(env)): obs
            for (t, env), obs in zip(state["final_index"], state["final_obs"].numpy(), strict=True)
        }
