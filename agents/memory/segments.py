"""Segment memory: rollouts that are kept and learned from again, step by step in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.memory.finite import non_finite
from rltune.agents.memory.streams import Rewarding
from rltune.agents.spaces import Spaces
from torch import Tensor

if TYPE_CHECKING:
    from rltune.agents.algorithm import VectorStep
    from typing_extensions import Unpack

Array = NDArray[Any]
_SAVED = ("obs", "action", "reward", "mu", "terminated", "cut", "valid")


class Segments(NamedTuple):
    """Consecutive steps; the first axes of every tensor are (n_envs, n_steps)."""

    obs: Tensor  # (n_envs, n_steps + 1, ...): the last one follows the last step
    action: Tensor
    reward: Tensor
    mu: Tensor  # (n_envs, n_steps, n_actions): the probabilities that the actions were drawn from
    terminated: Tensor  # bool
    cut: Tensor  # bool: a time limit before the last step; the row behind is another episode's
    valid: Tensor  # bool
    final_obs: Tensor  # (k, ...): the true successors of the k steps that are cut
    final_index: Tensor  # (k,): where these steps are, in the order of reshape(-1)


class SegmentMemory:
    """The latest rollouts, in a ring of arrays of shape (rollouts, n_envs, n_steps, ...).

    `add` fills a rollout, `keep` makes it one of those that are sampled. A sample has for each
    environment a segment of a rollout of its own: segments of one environment never mix.

    Args:
        capacity: transitions that are kept, whatever the number of environments
        n_steps: of each environment in a rollout
        spaces: of one environment, and how many there are
        n_actions: how many there are to choose from

    Attributes:
        signals: reward its steps beside the environment; None: nothing does
    """

    signals: Rewarding | None = None

    def __init__(self, capacity: int, n_steps: int, spaces: Spaces, n_actions: int) -> None:
        shape, dtype = spaces.observation.shape, spaces.observation.dtype
        assert shape is not None
        self.n_envs = spaces.n_envs
        self.n_steps = n_steps
        self.capacity = max(1, capacity // (n_steps * self.n_envs))  # in rollouts
        # One more, which is being filled.
        rows = (self.capacity + 1, self.n_envs, n_steps)
        obs_dtype = np.uint8 if dtype == np.uint8 else np.float32
        self.obs = np.zeros((*rows[:2], n_steps + 1, *shape), obs_dtype)
        self.action = np.zeros(rows, np.int64)
        self.reward = np.zeros(rows, np.float32)
        self.mu = np.zeros((*rows, n_actions), np.float32)
        self.terminated = np.zeros(rows, np.bool_)
        self.cut = np.zeros(rows, np.bool_)
        self.valid = np.zeros(rows, np.bool_)
        self.final_obs: dict[tuple[int, int, int], Array] = {}  # by (rollout, env, step)
        self._next_obs: Array | None = None  # what followed the last step
        self._ends: dict[tuple[int, int], Array] = {}  # behind terminations, by (env, step)
        self.slot = 0  # the rollout that is being filled
        self.position = 0  # its step to be written next
        self.kept = 0  # rollouts that can be sampled

    def __len__(self) -> int:
        """Return the number of transitions to sample from, those that are not valid included."""
        return self.kept * self.n_envs * self.n_steps

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays, filled or not."""
        return sum(getattr(self, name).nbytes for name in _SAVED)

    def non_finite(self) -> list[str]:
        """Return those of "an observation" and "a reward" that have NaN or infinity in them."""
        return non_finite(self.obs, self.reward)

    @property
    def full(self) -> bool:
        """Whether the next rollout that is kept pushes another one out."""
        return self.kept == self.capacity

    def add(self, **step: Unpack[VectorStep]) -> None:
        """Append one step of all environments; the first axis of every array is n_envs."""
        slot, t = self.slot, self.position
        terminated, next_obs = step["terminated"], step["next_obs"]
        if t == self.n_steps:
            raise RuntimeError("the rollout is full: update() has to keep it first")
        last = t == self.n_steps - 1
        cut = step["truncated"] & ~terminated & (not last)
        self.obs[slot, :, t] = step["obs"]
        self.action[slot, :, t] = step["action"]
        self.reward[slot, :, t] = step["reward"]
        self.terminated[slot, :, t] = terminated
        self.cut[slot, :, t] = cut
        self.valid[slot, :, t] = step["valid"]
        for env in np.flatnonzero(cut).tolist():
            self.final_obs[slot, env, t] = next_obs[env].copy()
        if self.signals is not None:
            for env in np.flatnonzero(terminated).tolist():
                self._ends[env, t] = next_obs[env].copy()
        if last:
            self.obs[slot, :, t + 1] = next_obs
        self._next_obs = next_obs
        self.position = t + 1

    def end_rollout(self) -> None:
        """End the rollout here: the steps that it lacks are never learned from."""
        slot, t, follows = self.slot, self.position, self._next_obs
        if follows is None or t == self.n_steps:
            return
        for env in np.flatnonzero(~self.terminated[slot, :, t - 1]).tolist():
            self.cut[slot, env, t - 1] = True
            self.final_obs[slot, env, t - 1] = follows[env].copy()
        for array in (self.action, self.reward, self.terminated, self.cut, self.valid):
            array[slot, :, t:] = 0
        self.obs[slot, :, t:] = follows[:, None]
        self.position = self.n_steps

    @property
    def fresh_obs(self) -> Array:
        """The observations of the rollout that is being filled: (n_envs, n_steps, ...)."""
        obs: Array = self.obs[self.slot, :, :-1]
        return obs

    def keep(self, mu: Array) -> None:
        """Add the full rollout to those that are sampled, and begin the next one.

        Args:
            mu: the probabilities of all actions when it was acted: (n_envs, n_steps, n_actions)
        """
        if self.position != self.n_steps:
            raise RuntimeError("the rollout is not full yet")
        if self.signals is not None:
            self._reward_signals(self.signals)
        self.mu[self.slot] = mu
        self.slot = (self.slot + 1) % (self.capacity + 1)
        self.kept = min(self.kept + 1, self.capacity)
        self.interrupt()

    def _reward_signals(self, signals: Rewarding) -> None:
        """Add the rewards of signals to those of the full rollout, once: replays have them too."""
        slot = self.slot
        next_obs = self.obs[slot, :, 1:].copy()
        for (env, t), obs in self._ends.items():
            next_obs[env, t] = obs
        for (rollout, env, t), obs in self.final_obs.items():
            if rollout == slot:
                next_obs[env, t] = obs
        (stream,) = signals.streams(
            obs=self.fresh_obs,
            action=self.action[slot],
            next_obs=next_obs,
            reward=self.reward[slot],
            terminated=self.terminated[slot],
            valid=self.valid[slot],
        )
        self.reward[slot] = stream.reward

    def interrupt(self) -> None:
        """Forget the rollout that is being filled."""
        self.position = 0
        self._ends = {}
        self._next_obs = None
        for key in [key for key in self.final_obs if key[0] == self.slot]:
            del self.final_obs[key]

    def newest(self, device: torch.device) -> Segments:
        """Return the rollout that was kept last."""
        return self._gather(np.zeros(self.n_envs, np.int64), device)

    def sample(self, generator: torch.Generator) -> Segments:
        """Return for each environment a segment drawn uniformly, on the generator's device."""
        device = generator.device
        age = torch.randint(self.kept, (self.n_envs,), generator=generator, device=device)
        return self._gather(age.cpu().numpy(), device)

    def _gather(self, age: Array, device: torch.device) -> Segments:
        """Return one segment of each environment; ``age`` 0 is the newest."""
        slot, env = self._slot(age), np.arange(self.n_envs)
        cut = self.cut[slot, env]
        finals = [self.final_obs[int(slot[i]), int(i), int(t)] for i, t in np.argwhere(cut)]
        final_obs = np.array(finals, self.obs.dtype).reshape(len(finals), *self.obs.shape[3:])

        def tensor(array: Array) -> Tensor:
            return torch.from_numpy(array).to(device)

        return Segments(
            obs=tensor(self.obs[slot, env]),
            action=tensor(self.action[slot, env]),
            reward=tensor(self.reward[slot, env]),
            mu=tensor(self.mu[slot, env]),
            terminated=tensor(self.terminated[slot, env]),
            cut=tensor(cut),
            valid=tensor(self.valid[slot, env]),
            final_obs=tensor(final_obs),
            final_index=tensor(np.flatnonzero(cut)),
        )

    def _slot(self, age: Array) -> Array:
        return (self.slot - 1 - age) % (self.capacity + 1)

    def state_dict(self) -> dict[str, Any]:
        """Return the rollouts as tensors, the oldest first, the one that is being filled last."""
        slots = self._slot(np.arange(self.kept - 1, -2, -1))
        state: dict[str, Any] = {
            name: torch.from_numpy(getattr(self, name)[slots]) for name in _SAVED
        }
        order = {int(slot): i for i, slot in enumerate(slots)}
        state["final_index"] = [(order[slot], env, t) for slot, env, t in self.final_obs]
        finals = np.array(list(self.final_obs.values()), self.obs.dtype)
        ends = np.array(list(self._ends.values()), self.obs.dtype)
        return {
            **state,
            "final_obs": torch.from_numpy(finals),
            "position": self.position,
            "ends_index": list(self._ends),
            "ends": torch.from_numpy(ends),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        self.slot = self.kept = len(state["obs"]) - 1
        self.position = state["position"]
        for name in _SAVED:
            getattr(self, name)[: self.slot + 1] = state[name].numpy()
        self.final_obs = {
            (int(slot), int(env), int(t)): obs
            for (slot, env, t), obs in zip(
                state["final_index"], state["final_obs"].numpy(), strict=True
            )
        }
        if state.get("ends_index"):  # older ones had no signals
            ends = zip(state["ends_index"], state["ends"].numpy(), strict=True)
            self._ends = {(int(env), int(t)): obs for (env, t), obs in ends}
