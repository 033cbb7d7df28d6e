"""Streams of rewards: what each value function learns, and what adds to the environment's."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray
from rltune.agents.memory.batch import Batch

Array = NDArray[Any]


class Stream(NamedTuple):
    """The rewards of a rollout that one value function learns, and how it discounts them."""

    reward: Array  # (n_steps, n_envs)
    gamma: float
    terminated: Array  # bool, of the same shape: nothing follows


class Rewarding(Protocol):
    """What rewards the steps of a memory beside the environment: `rltune.agents.rewards`.

    Attributes:
        reads_successors: whether it has to know what followed the end of an episode
    """

    reads_successors: bool

    def streams(
        self,
        *,
        obs: Array,
        action: Array,
        next_obs: Array,
        reward: Array,
        terminated: Array,
        valid: Array,
    ) -> list[Stream]:
        """Return the rewards of a rollout, those of each value function.

        The first axes of every array are (n_steps, n_envs), or the other way round.

        Args:
            obs, action: of each step
            next_obs: its true successor
            reward: of the environment
            terminated: bool
            valid: bool, rows to learn from
        """

    def relabelled(self, batch: Batch) -> Batch:
        """Return sampled transitions with all rewards.

        With a value for each signal ``reward`` and ``discount`` are (streams, batch).
        """
