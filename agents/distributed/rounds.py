"""Lock-step collection: all actors take the steps up to the next update, and wait for it.

The learner's memory is that of a training without actors, with a column for each environment. With
one actor, generators travel to it and back, and everything is as without actors, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rltune.agents.algorithm import Algorithm
from rltune.agents.distributed.fleet import Fleet
from rltune.agents.distributed.fragments import STEP, Fragment, Usage, side_by_side
from rltune.agents.distributed.metrics import ActorMetrics
from rltune.agents.distributed.policies import (
    as_arrays,
    as_tensors,
    learn_from,
    policy_of,
    take_acting,
)
from rltune.agents.envs import waiting
from rltune.agents.envs.vector import Transition
from rltune.agents.loop.normalization import Normalizers

if TYPE_CHECKING:
    from rltune.agents.loop.training import TrainingLoop

Array = NDArray[Any]
MOST_ROWS = 64  # collected at once, so that deadlines and Ctrl-C are heard between
IN_ACTORS = "step() in its actors"


class RoundsCollector:
    """Fills the memory, row by row, with what all actors collect in turn with the updates.

    Args:
        fleet: of the actors
        n_actors: how many there are
        algorithm: the policy that learns
        memory: is given every step
        normalizers: of observations and rewards

    Attributes:
        loop: of the training, which says what is due
        metrics: of the actors
        replays: whether environments of a checkpoint go on with their episodes
    """

    loop: TrainingLoop

    def __init__(
        self,
        fleet: Fleet,
        n_actors: int,
        algorithm: Algorithm[Any],
        memory: Any,
        normalizers: Normalizers,
        *,
        replays: bool,
    ) -> None:
        self.fleet, self.algorithm, self.memory = fleet, algorithm, memory
        self.normalizers, self.replays = normalizers, replays
        self.metrics = ActorMetrics(n_actors)
        self.n_actors, self._whole = n_actors, n_actors == 1
        self._version = -1  # of the policy that the actors have
        self._left: Fragment | None = None  # what is collected and not yet in the memory
        self._row, self._next_obs = 0, np.empty(0)

    def begin(self) -> None:
        """Do nothing: actors begin when they are asked for steps."""

    def step(self) -> Transition:
        """Put the next step of all environments into the memory, and return it.

        Raises:
            Exception: whatever an environment raises
        """
        left = self._left
        if left is None or self._row == left.rows or self._is_stale(left):
            left = self._collect()
        row, steps = self._row, left.steps
        self._row += 1
        taken = {name: steps[name][row] for name in STEP}
        next_obs = self._next_obs[row]
        self.memory.add(obs=left.obs[row], next_obs=next_obs, **taken)
        return Transition(
            next_obs=next_obs,
            obs=left.obs[row + 1] if row + 1 < left.rows else left.last_obs,
            episodes=left.episodes[row],
            ended=taken["terminated"] | taken["truncated"],
            **taken,
        )

    def _is_stale(self, left: Fragment) -> bool:
        """Whether another policy took these steps, and the algorithm learns from its own alone."""
        return self.algorithm.on_policy and left.version != self.loop.progress.updates

    def _collect(self) -> Fragment:
        loop, version = self.loop, self.loop.progress.updates
        policy = policy_of(
            self.algorithm,
            self.normalizers,
            version,
            loop.progress.env_steps,
            whole=self._whole,
            changed=version != self._version,
        )
        rows = min(MOST_ROWS, -(-loop.due // self.algorithm.spaces.n_envs))
        with waiting.calling(IN_ACTORS):
            fragments = self.fleet.collect(policy, rows)
        self._version = version
        for fragment in fragments:
            self._note(fragment)
            if fragment.acting is not None:
                take_acting(self.algorithm, fragment.acting["algorithm"])
                self.normalizers.load_state_dict(as_tensors(fragment.acting["normalizers"]))
            else:
                learn_from(self.normalizers, fragment.statistics)
        if any(fragment.begins for fragment in fragments):
            # What came before has no successor here; a rollout that was begun is lost.
            self.memory.interrupt()
            if self.algorithm.on_policy:
                loop.progress.since_update = 0
        return self._dispense(side_by_side(fragments))

    def _note(self, fragment: Fragment) -> None:
        lag = self.loop.progress.updates - fragment.version
        self.metrics.note(fragment.actor, fragment.env_steps, fragment.usage, lag)

    def _dispense(self, fragment: Fragment) -> Fragment:
        self._left, self._row, self._next_obs = fragment, 0, fragment.next_obs()
        return fragment

    def break_off(self) -> None:
        """Note that all environments begin new episodes although the old ones have not ended."""
        self.memory.interrupt()
        self._left = None

    def state_dict(self) -> dict[str, Any]:
        """Return where the actors stand, and what is collected and not yet in the memory."""
        if self._version < 0:
            return {"actors": None, "collected": None}
        left = self._left
        collected = None
        if left is not None and self._row < left.rows:
            collected = as_tensors(_plain(left.from_row(self._row)))
        return {"actors": self.fleet.states(), "collected": collected}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        if not self.replays:
            self.break_off()
        if state["actors"] is None:
            return
        self.fleet.restore(state["actors"])
        if self.replays and state["collected"] is not None:
            self._dispense(_fragment(as_arrays(state["collected"])))


def _plain(fragment: Fragment) -> dict[str, Any]:
    episodes = [[list(episode) for episode in row] for row in fragment.episodes]
    return vars(replace(fragment, episodes=episodes, acting=None, usage=list(fragment.usage)))  # type: ignore[arg-type]


def _fragment(state: Mapping[str, Any]) -> Fragment:
    from rltune.agents.envs.vector import Finished

    episodes = [[Finished(*episode) for episode in row] for row in state["episodes"]]
    finals = [(int(row), int(env)) for row, env in state["finals"]]
    usage = Usage(*state["usage"])
    return Fragment(**{**state, "episodes": episodes, "finals": finals, "usage": usage})
