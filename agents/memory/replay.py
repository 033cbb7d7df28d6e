"""Replay memory: transitions that are kept and learned from again."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.errors import UserError
from rltune.agents.machine.memory import free_memory
from rltune.agents.memory.batch import Batch
from rltune.agents.memory.finite import non_finite
from rltune.agents.memory.frames import FrameLayout
from rltune.agents.memory.streams import Rewarding
from rltune.agents.spaces import InputParts, Spaces
from torch import Tensor

if TYPE_CHECKING:
    from rltune.agents.algorithm import VectorStep
    from typing_extensions import Unpack

Array = NDArray[Any]
_SAVED = ("action", "reward", "terminated", "truncated", "valid")


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
        n_frames: how many frames an image is a stack of, each of which is stored once; None: as
            many as it has channels, unless these are 1 or 3

    Attributes:
        signals: reward sampled steps beside the environment; None: nothing does. With them, the
            last observations of episodes that terminated are kept beside, too

    Raises:
        UserError: there is not enough free memory.
    """

    signals: Rewarding | None = None
    _extra_bytes = 0  # of each step and environment, that a class below keeps

    def __init__(
        self,
        capacity: int,
        spaces: Spaces,
        action_shape: tuple[int, ...],
        action_dtype: type[np.generic],
        *,
        gamma: float,
        n_step: int = 1,
        n_frames: int | None = None,
    ) -> None:
        self.n_envs = spaces.n_envs
        self.capacity = max(1, capacity // self.n_envs)  # in steps of all environments
        self.gamma = gamma
        self.n_step = n_step
        self._flag = InputParts(spaces.observation).flag
        layout = FrameLayout.of(spaces, n_frames)
        # More rows than steps: the newest step's successor stands in the row that comes next, and
        # the oldest step's stack of frames begins in rows before it.
        self.n_rows = self.capacity + layout.n_frames
        rows = (self.n_rows, self.n_envs)
        step_bytes = math.prod(action_shape) * np.dtype(action_dtype).itemsize + 7
        step_bytes += self._extra_bytes
        self._refuse_too_much(capacity, math.prod(rows) * (layout.frame_bytes + step_bytes))
        self.observations = layout.memory(rows)
        self.action = np.zeros((*rows, *action_shape), action_dtype)
        self.reward = np.zeros(rows, np.float32)
        self.terminated = np.zeros(rows, np.bool_)
        self.truncated = np.zeros(rows, np.bool_)
        self.valid = np.zeros(rows, np.bool_)
        self.final_obs: dict[tuple[int, int], Array] = {}  # by (row, env), see `_ends`
        self.position = 0  # the row to be written next
        self.steps = 0  # rows that hold a step to learn from
        self.held = 0  # the same with those that only complete the oldest stack of frames

    @staticmethod
    def _refuse_too_much(capacity: int, needed: int) -> None:
        """Check before it is allocated: the system hands out more than it has, and kills later."""
        free = free_memory()
        if free is not None and needed > free:
            raise UserError(
                f"buffer_size {capacity:,} needs {needed / 1e9:.1f} GB of memory, but only "
                f"{free / 1e9:.1f} GB are free; choose at most {int(capacity * free / needed):,}."
            )

    def __len__(self) -> int:
        """Return the number of transitions, those that are not valid included."""
        return self.steps * self.n_envs

    @property
    def mass(self) -> float:
        """The number of transitions, or the sum of their priorities: how likely a draw is here."""
        return float(len(self))

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays, filled or not."""
        arrays: list[Array] = [getattr(self, name) for name in _SAVED]
        return self.observations.nbytes + sum(array.nbytes for array in arrays)

    def non_finite(self) -> list[str]:
        """Return those of "an observation" and "a reward" that have NaN or infinity in them."""
        return non_finite(self.observations.frames, self.reward)

    def add(self, **step: Unpack[VectorStep]) -> None:
        """Append one step of all environments; the first axis of every array is n_envs."""
        t, next_obs, truncated = self.position, step["next_obs"], step["truncated"]
        if self.final_obs and np.count_nonzero(ends := self._ends(t)):
            for key in [(t, env) for env in np.flatnonzero(ends).tolist()]:
                self.final_obs.pop(key, None)
        self.action[t] = step["action"]
        self.reward[t] = step["reward"]
        self.terminated[t] = step["terminated"]
        self.truncated[t] = False
        self.valid[t] = step["valid"]
        if np.count_nonzero(truncated):
            self.truncated[t] = truncated & ~step["terminated"]
        if np.count_nonzero(ends := self._ends(t)):
            for env in np.flatnonzero(ends).tolist():
                self.final_obs[t, env] = next_obs[env].astype(self.observations.dtype)
        self.position = (t + 1) % self.n_rows
        self.observations.put(t, step["obs"])
        self.observations.put_successor(self.position, step["obs"], next_obs)
        self.steps = min(self.steps + 1, self.capacity)
        self.held = min(self.held + 1, self.n_rows - 1)

    def _ends(self, row: Any, env: Any = slice(None)) -> Array:
        """Return where an episode's last observation is kept beside: bool."""
        ends: Array = self.truncated[row, env]
        if self.signals is not None and self.signals.reads_successors:
            ends = ends | self.terminated[row, env]
        return ends

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Return transitions drawn uniformly, with repetition, on the generator's device."""
        age, env = self._draw(batch_size, generator)
        return self._rewarded(self._sampled(age, env, generator))

    def _sampled(self, age: Array, env: Array, generator: torch.Generator) -> Batch:
        """Return what was drawn; a class below may draw more for it."""
        return self._gather(age, env, generator.device)

    def sample_sequences(
        self, n: int, length: int, burn_in: int, generator: torch.Generator
    ) -> Batch:
        """Return ``n`` sequences drawn uniformly: consecutive steps of one environment each.

        Episodes may end within them. ``obs`` and ``next_obs`` are (n, burn_in + length, ...), with
        the marks of where a recurrent state begins anew; all else is of the last ``length`` steps,
        in rows.

        Args:
            n: how many
            length: steps to learn from; there must be ``burn_in + length`` steps at least, and all
                of them valid
            burn_in: steps before them
            generator: of the draws, on whose device the result is
        """
        total = burn_in + length
        n_starts = (self.steps - total + 1) * self.n_envs
        drawn = torch.randint(n_starts, (n,), generator=generator, device=generator.device)
        start, env = np.divmod(drawn.cpu().numpy(), self.n_envs)
        age = (start[:, None] + np.arange(total, 0, -1)).reshape(-1)
        env = env.repeat(total)
        batch = self._rewarded(self._gather(age, env, generator.device))
        next_obs = batch.next_obs.view(n, total, -1)
        # A successor that does not follow the one before begins anew, from its stored state.
        _, _, last = self._returns(age, env)
        ended = (self.terminated | self.truncated)[last, env].reshape(n, total)
        last = last.reshape(n, total)
        anew = ended[:, :-1] | (last[:, 1:] == last[:, :-1])
        next_obs[:, 1:, self._flag] = torch.from_numpy(anew).to(next_obs)

        def learned_from(rows: Tensor) -> Tensor:
            return rows.view(*rows.shape[:-1], n, total)[..., burn_in:].flatten(-2)

        actions = batch.action.view(n, total, *batch.action.shape[1:])
        return Batch(
            obs=batch.obs.view(n, total, -1),
            action=actions[:, burn_in:].flatten(0, 1),
            reward=learned_from(batch.reward),
            next_obs=next_obs,
            discount=learned_from(batch.discount),
        )

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
        return (self.position - age) % self.n_rows

    def _gather(self, age: Array, env: Array, device: torch.device) -> Batch:
        """Return the transitions that began ``age`` steps ago in the environments ``env``."""
        first = self._row(age)
        reward, discount, last = self._returns(age, env)
        next_obs = self.observations.get((last + 1) % self.n_rows, env)
        for i in np.flatnonzero(self._ends(last, env)).tolist():
            next_obs[i] = self.final_obs[int(last[i]), int(env[i])]
        discount = discount * ~self.terminated[last, env]

        def tensor(array: Array) -> Tensor:
            return torch.from_numpy(array).to(device)

        return Batch(
            obs=tensor(self.observations.get(first, env)),
            action=tensor(self.action[first, env]),
            reward=tensor(reward.astype(np.float32, copy=False)),
            next_obs=tensor(next_obs),
            discount=tensor(discount.astype(np.float32, copy=False)),
        )

    def _rewarded(self, batch: Batch) -> Batch:
        """Return transitions with the rewards of the signals, where there are some."""
        return batch if self.signals is None else self.signals.relabelled(batch)

    def _returns(self, age: Array, env: Array) -> tuple[Array, Array, Array]:
        """Return the sums of the rewards, what follows counts, and the rows of the last ones."""
        last = self._row(age)
        reward = self.reward[last, env]
        discount: Array = np.full(len(age), self.gamma, np.float32)
        for _ in range(1, self.n_step):
            age = age - 1
            goes_on = (age > 0) & ~self.terminated[last, env] & ~self.truncated[last, env]
            last = np.where(goes_on, self._row(age), last)
            reward = reward + np.where(goes_on, discount * self.reward[last, env], 0.0)
            discount = np.where(goes_on, discount * self.gamma, discount)
        return reward, discount, last

    def interrupt(self) -> None:
        """Note that new episodes begin although none has ended: the newest steps have no successor.

        Their rows count as time limits, and what followed them is what stands behind them.
        """
        if not self.steps:
            return
        t = (self.position - 1) % self.n_rows
        envs = np.flatnonzero(~self.terminated[t] & ~self.truncated[t])
        successors = self.observations.get(np.full(len(envs), self.position), envs)
        self.truncated[t, envs] = True
        for env, obs in zip(envs.tolist(), successors, strict=True):
            self.final_obs[t, env] = obs

    def state_dict(self) -> dict[str, Any]:
        """Return the filled part as tensors, the oldest step first; images are compressed."""
        rows = self._row(np.arange(self.held, -1, -1))  # and the successor of the newest
        state: dict[str, Any] = {
            name: torch.from_numpy(getattr(self, name)[rows]) for name in _SAVED
        }
        order = {int(row): i for i, row in enumerate(rows)}
        finals = {key: obs for key, obs in self.final_obs.items() if key[0] in order}
        return {
            **state,
            "position": self.position,
            "steps": self.steps,
            "observations": self.observations.state_dict(rows),
            "final_index": [(order[t], env) for t, env in finals],
            "final_obs": torch.from_numpy(np.array(list(finals.values()), self.observations.dtype)),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        self.held, self.steps = len(state["reward"]) - 1, state["steps"]
        self.position = state["position"]
        rows = self._row(np.arange(self.held, -1, -1))
        for name in _SAVED:
            getattr(self, name)[rows] = state[name].numpy()
        self.observations.load_state_dict(rows, state["observations"])
        self.final_obs = {
            (int(rows[i]), int(env)): obs
            for (i, env), obs in zip(state["final_index"], state["final_obs"].numpy(), strict=True)
        }
