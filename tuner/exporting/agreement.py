"""Agreement of an exported policy with its agent: their actions on the same observations."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from rltune.agents.envs.vector import ActionEncoder, Envs
from rltune.agents.loop.acting import RecurrentActing
from rltune.agents.spaces import InputParts

if TYPE_CHECKING:
    from rltune.agents.loop.agent import Agent

Array = NDArray[Any]
N_OBSERVATIONS = 1000
TOLERANCE = 1e-5
SECONDS = 20.0  # in which episodes are played; a slow environment gives fewer observations
ROWS = 64  # of observations at once
SEED = 7


@dataclass(frozen=True)
class Agreement:
    """How well the actions of two policies agree.

    Attributes:
        n: observations, of which ``n_drawn`` were drawn at random
        n_drawn: the others are of episodes
        differing: choices: actions that are not equal; None: the actions are numbers
        difference: numbers: the largest difference, relative where an action is above 1
    """

    n: int
    n_drawn: int
    differing: int | None
    difference: float

    def __bool__(self) -> bool:
        return self.differing == 0 if self.differing is not None else self.difference <= TOLERANCE

    def __str__(self) -> str:
        where = f"on {self.n:,} observations"
        if self.n_drawn:
            where += f" ({self.n_drawn:,} of them drawn at random)"
        if self.differing is None:
            return f"largest difference from the agent's actions {where}: {self.difference:.2g}"
        if self.differing == 0:
            return f"largest difference from the agent's actions {where}: 0, all are equal"
        return f"{self.differing:,} of the agent's actions differ {where}"


@dataclass(frozen=True)
class Observations:
    """Observations in the order of episodes, as an agent is shown them.

    Attributes:
        rows: (n, ...)
        begins: where episodes begin: bool (n,)
        n_drawn: how many, at the end, were drawn at random
    """

    rows: Array
    begins: NDArray[np.bool_]
    n_drawn: int

    @classmethod
    def of(cls, agent: Agent) -> Observations:
        """Return `N_OBSERVATIONS` of the agent's greedy episodes.

        Where `SECONDS` are over, the others are drawn at random.
        """
        n = N_OBSERVATIONS
        envs = Envs(
            agent.env, 1, seed=SEED, env_kwargs=agent.env_kwargs, **agent.view, training=False
        )
        acting = RecurrentActing(agent.algorithm)
        rows: list[Array] = []
        begins: list[bool] = []
        until = time.monotonic() + SECONDS
        try:
            obs, starts = envs.reset(), np.ones(1, np.bool_)
            while len(rows) < n and (not rows or time.monotonic() < until):
                rows.append(obs[0].copy())
                begins.append(bool(starts[0]))
                inputs = acting.inputs(agent.normalised(obs), starts)
                step = envs.step(acting.act(inputs, explore=False))
                obs, starts = step.obs, step.terminated | step.truncated
        finally:
            envs.close()
        drawn = _drawn(InputParts(agent.observation_space), rows[0], n - len(rows))
        return cls(
            np.stack([*rows, *drawn]),
            np.array(begins + [True] * len(drawn)),
            len(drawn),
        )


def _drawn(parts: InputParts, like: Array, n: int) -> list[Array]:
    """Draw observations: pixels, and numbers that are normally distributed within their bounds."""
    rng = np.random.default_rng(SEED)
    box = parts.observation_space
    assert isinstance(box, spaces.Box)
    found = []
    for _ in range(n):
        if like.dtype == np.uint8:
            row = rng.integers(0, 256, like.size)
        else:
            low, high = box.low.reshape(-1), box.high.reshape(-1)
            row = np.clip(rng.normal(size=low.size), low, high)
            if parts.n_mask:
                row = np.concatenate([row, np.ones(parts.n_mask)])
        if parts.n_mask and like.dtype == np.uint8:
            row[-parts.n_mask :] = 1
        found.append(row.astype(like.dtype).reshape(like.shape))
    return found


def agreement(agent: Any, other: Any, observations: Observations) -> Agreement:
    """Return how well two agents agree, which are in the form of `Agent`, on observations."""
    encoder = ActionEncoder(agent.action_space)
    ours, theirs = (encoder.encode(_actions(one, observations)) for one in (agent, other))
    n, n_drawn = len(observations.rows), observations.n_drawn
    if not isinstance(agent.action_space, spaces.Box):
        differing = (ours != theirs).reshape(n, -1).any(1)
        return Agreement(n, n_drawn, int(np.count_nonzero(differing)), 0.0)
    distance = np.abs(ours.astype(np.float64) - theirs) / np.maximum(1.0, np.abs(ours))
    largest = float(distance.max()) if distance.size else 0.0
    return Agreement(n, n_drawn, None, np.inf if np.isnan(largest) else largest)


def _actions(agent: Any, observations: Observations) -> Array:
    """Return the actions on the observations: a state goes from each to the next."""
    rows, begins = observations.rows, observations.begins
    acting = RecurrentActing(agent.algorithm)
    if agent.algorithm.state_size:
        found = [
            acting.act(acting.inputs(agent.normalised(obs), begun), explore=False)
            for obs, begun in zip(rows[:, None], begins[:, None], strict=True)
        ]
        return np.concatenate(found)
    # One alone, then more at once: files take any number.
    starts = [0, *range(1, len(rows), ROWS)]
    parts = [rows[i:j] for i, j in pairwise([*starts, len(rows)])]
    return np.concatenate(
        [acting.act(agent.normalised(part), explore=False) for part in parts if len(part)]
    )
