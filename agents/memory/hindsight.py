"""Hindsight experience replay (Andrychowicz et al. 2017, arXiv:1707.01495)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.config import HindsightConfig
from rltune.agents.memory.batch import Batch
from rltune.agents.memory.prioritised import PrioritisedMemory
from rltune.agents.memory.replay import ReplayMemory
from rltune.agents.spaces import Goals, Spaces

if TYPE_CHECKING:
    from rltune.agents.algorithm import VectorStep
    from typing_extensions import Unpack

Array = NDArray[Any]
RUNNING = np.iinfo(np.int64).max  # in place of the time at which an episode ends


class HindsightMemory(ReplayMemory):
    """Of the transitions drawn, most are given a goal that was reached in the same episode.

    The goal stands in the observation and in its successor, and the rewards are computed anew. As
    in Stable-Baselines3, whether an episode terminated stays as it was. Unlike there, steps of
    running episodes are drawn, too; their goals are those reached so far. Goals of steps that the
    memory has forgotten are gone.

    Args:
        n_sampled_goal: how many have another goal, for each that keeps its own
        strategy: "future": a goal reached in this step or later; "final": in the episode's last
            step; "episode": in any of its steps
        others: as in `ReplayMemory` (or `PrioritisedMemory`); the spaces have goals
    """

    def __init__(
        self,
        capacity: int,
        spaces: Spaces,
        action_shape: tuple[int, ...],
        action_dtype: type[np.generic],
        *,
        n_sampled_goal: int,
        strategy: str,
        **others: Any,
    ) -> None:
        if spaces.goals is None:
            raise ValueError("hindsight needs the goals of an environment")
        self.goals: Goals = spaces.goals
        size = len(self.goals.achieved)
        self._extra_bytes = 4 * size + 16
        super().__init__(capacity, spaces, action_shape, action_dtype, **others)
        self.n_sampled_goal, self.strategy = n_sampled_goal, strategy
        rows = (self.n_rows, self.n_envs)
        self.achieved = np.zeros((*rows, size), np.float32)  # the goal reached by each step
        # In steps of all environments, counted from the first one.
        self.begun = np.zeros(rows, np.int64)  # when the step's episode began
        self.last = np.full(rows, RUNNING)  # when it took its last step
        self._time = 0
        self._running = np.zeros(self.n_envs, np.int64)  # when the running episodes began
        self._discounts: Array = self.gamma ** np.arange(self.n_step)

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays, filled or not."""
        return super().nbytes + self.achieved.nbytes + self.begun.nbytes + self.last.nbytes

    def add(self, **step: Unpack[VectorStep]) -> None:
        """Append one step of all environments; the first axis of every array is n_envs."""
        t = self.position
        super().add(**step)
        self.achieved[t] = step["next_obs"][:, self.goals.achieved]
        self.begun[t] = self._running
        self.last[t] = RUNNING
        self._time += 1
        ended = step["terminated"] | step["truncated"]
        if np.count_nonzero(ended):
            self._end(ended)

    def interrupt(self) -> None:
        """Note that new episodes begin although none has ended."""
        super().interrupt()
        self._end(np.ones(self.n_envs, np.bool_))

    def _end(self, ended: Array) -> None:
        """Note that the newest step is the last one of these episodes: bool (n_envs,)."""
        for env in np.flatnonzero(ended).tolist():
            length = min(self._time - int(self._running[env]), self.held)
            self.last[self._row(np.arange(1, length + 1)), env] = self._time - 1
        self._running[ended] = self._time

    def _sampled(self, age: Array, env: Array, generator: torch.Generator) -> Batch:
        """Return what was drawn, most of it with other goals: evenly spread over the rows."""
        batch = super()._sampled(age, env, generator)
        chosen = np.flatnonzero(np.arange(len(age)) % (self.n_sampled_goal + 1))
        if not len(chosen):
            return batch
        age, env = age[chosen], env[chosen]
        goal = self._reached(age, env, generator)
        reward = torch.from_numpy(self._rewards(age, env, goal))
        desired = self.goals.desired
        places = torch.from_numpy(desired.reshape(-1))
        shown = torch.from_numpy(np.tile(goal, len(desired)))
        rows = torch.from_numpy(chosen)
        batch.reward[rows] = reward.to(batch.reward)
        for seen in (batch.obs, batch.next_obs):
            seen[rows[:, None], places] = shown.to(seen)
        return batch

    def _reached(self, age: Array, env: Array, generator: torch.Generator) -> Array:
        """Return a goal that was reached in the episode of each of these steps: (n, size)."""
        row, time = self._row(age), self._time - age
        last = np.minimum(self.last[row, env], self._time - 1)
        if self.strategy == "final":
            when = last
        else:
            first = time
            if self.strategy == "episode":
                first = np.maximum(self.begun[row, env], self._time - self.steps)
            drawn = torch.rand(
                len(age), generator=generator, device=generator.device, dtype=torch.float64
            )
            when = first + (drawn.cpu().numpy() * (last - first + 1)).astype(np.int64)
        reached: Array = self.achieved[self._row(self._time - when), env]
        return reached

    def _rewards(self, age: Array, env: Array, goal: Array) -> Array:
        """Return the discounted rewards of the ``n_step`` steps for these goals: float32 (n,)."""
        ages = age[:, None] - np.arange(self.n_step)
        within = (
            self._time - ages <= np.minimum(self.last[self._row(age), env], self._time - 1)[:, None]
        )
        achieved = self.achieved[self._row(np.maximum(ages, 1)), env[:, None]]
        reward = self.goals.reward(
            achieved.reshape(-1, goal.shape[1]), goal.repeat(self.n_step, axis=0)
        ).reshape(within.shape)
        summed: Array = np.where(within, reward, 0) @ self._discounts
        return summed.astype(np.float32)

    def state_dict(self) -> dict[str, Any]:
        """Return the content with the goals that were reached."""
        rows = self._row(np.arange(self.held, -1, -1))
        return {**super().state_dict(), "achieved": torch.from_numpy(self.achieved[rows])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave; the ends of episodes are found again."""
        super().load_state_dict(state)
        rows = self._row(np.arange(self.held, -1, -1))
        self.achieved[rows] = state["achieved"].numpy()
        rows, time = rows[:-1], np.arange(self.held)[:, None]
        ended = (self.terminated | self.truncated)[rows]
        begun = np.zeros((self.held + 1, self.n_envs), np.int64)
        np.maximum.accumulate(np.where(ended, time + 1, 0), out=begun[1:])
        self.begun[rows], self._running = begun[:-1], begun[-1].copy()
        last = np.where(ended, time, RUNNING)[::-1]
        self.last[rows] = np.minimum.accumulate(last)[::-1]
        self._time = self.held


class PrioritisedHindsightMemory(HindsightMemory, PrioritisedMemory):
    """The same for transitions drawn by priority, which is the error for the goal shown last."""


def replay_memory(
    config: HindsightConfig,
    spaces: Spaces,
    action_shape: tuple[int, ...],
    action_dtype: type[np.generic],
    *,
    n_step: int,
    n_frames: int | None = None,
    alpha: float | None = None,
) -> ReplayMemory:
    """Return an empty replay memory of the kind that a configuration asks for.

    Args:
        config: of the agent
        alpha: as in `PrioritisedMemory`; None: transitions are drawn uniformly
        spaces, action_shape, action_dtype, n_step, n_frames: as in `ReplayMemory`
    """
    is_prioritised, has_goals = alpha is not None, config.n_sampled_goal > 0
    kind: type[ReplayMemory] = {
        (False, False): ReplayMemory,
        (True, False): PrioritisedMemory,
        (False, True): HindsightMemory,
        (True, True): PrioritisedHindsightMemory,
    }[is_prioritised, has_goals]
    more: dict[str, Any] = {"alpha": alpha} if is_prioritised else {}
    if has_goals:
        more["n_sampled_goal"] = config.n_sampled_goal
        more["strategy"] = config.goal_selection_strategy
    return kind(
        config.buffer_size,
        spaces,
        action_shape,
        action_dtype,
        gamma=config.gamma,
        n_step=n_step,
        n_frames=n_frames,
        **more,
    )
