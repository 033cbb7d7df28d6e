"""Vector environments: environments stepped side by side, whatever their autoreset mode.

A step hands over true transitions: the successor that the environment showed (also at the end of an
episode), terminated and truncated apart. Every episode has a number and is reset with a seed made
from (seed, number) alone, so episode 7 is the same however many environments run beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, cast

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from rltune.agents.envs import waiting
from rltune.agents.envs.atari import FRAME_SKIP
from rltune.agents.envs.backends import BACKENDS, EnvBackend
from rltune.agents.envs.make import check_env_name, frame_stack_of, is_atari, make_env
from rltune.agents.errors import UserError, unknown

__all__ = ["Envs", "Finished", "Transition", "check_env_name", "episode_seed", "make_env"]

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
SEED_BLOCK = 256
# In steps, where neither training nor a time limit ends it; that of Atari games (108,000 frames).
LONGEST_EPISODE = 27_000


class Finished(NamedTuple):
    """An episode that ended in this step; its return is undiscounted, of the raw rewards.

    ``success`` is what the environment says of it in its last ``info``; None: it says nothing.
    """

    env: int
    episode_return: float
    length: int
    number: int
    success: bool | None


class Transition(NamedTuple):
    """One step of all environments; the first axis of every array is n_envs.

    ``next_obs`` is the true successor of the observation that was acted on; ``obs`` is the one to
    act on next, which differs where an episode ended. Rows that are not ``valid`` are no
    transitions and must not enter a memory; only "native" and "envpool" have such rows. ``ended``
    is where the learner's episode ends: terminated or truncated.
    """

    action: Array
    reward: npt.NDArray[np.float64]
    terminated: Bools
    truncated: Bools
    next_obs: Array
    obs: Array
    valid: Bools
    episodes: list[Finished]
    ended: Bools


def episode_seed(seed: int, number: int) -> int:
    """Return the seed (31 bits) of one episode: a function of the run's seed and its number."""
    return _episode_seeds(seed, number // SEED_BLOCK)[number % SEED_BLOCK]


@lru_cache(maxsize=64)
def _episode_seeds(seed: int, block: int) -> list[int]:
    # One by one they would cost as much as some steps of CartPole.
    seeds: list[int] = (
        np.random.default_rng((seed, block)).integers(2**31, size=SEED_BLOCK).tolist()
    )
    return seeds


class Envs:
    """``n_envs`` environments of one kind.

    Observations are float32 ``(n_envs, d)`` or uint8 images ``(n_envs, channels, height, width)``.
    Discrete actions count from 0 whatever the space's start; Box actions are clipped to its bounds.

    Args:
        env: a gymnasium id, or ``module:Class`` of the user's own
        n_envs: how many run side by side
        seed: all randomness of the environments comes from it
        env_kwargs: handed to the environment's constructor
        frame_stack: how many frames make one observation (0: one; preprocessed Atari games: 4)
        atari: the standard Atari preprocessing; None means for Atari games
        vectorization: "sync" (a loop in this process), "async" (a process each), "native" (the
            environment's own vector version), "envpool" (its C++ version, where it has one)
        max_episode_steps: a time limit, where it is below the environment's own
        training: Atari only: clip rewards to their sign and end the learner's episode with a life.
            The game goes on, and the returns of episodes are always the game's own score.
            When it is not training, `LONGEST_EPISODE` is the limit of those that have none.
        autoreset: begin the next episode where one ends; otherwise `reset` begins it
        render_mode: "human" for a window, "rgb_array" for `render`; only with "sync"
        small_images: images below 36 x 36, and those of bits, are images too, not vectors

    Raises:
        UserError: an unknown environment, a missing package, an unsupported space.
    """

    def __init__(
        self,
        env: str,
        n_envs: int,
        *,
        seed: int,
        env_kwargs: Mapping[str, Any] | None = None,
        frame_stack: int = 0,
        atari: bool | None = None,
        vectorization: str = "sync",
        max_episode_steps: int | None = None,
        training: bool = True,
        autoreset: bool = True,
        render_mode: str | None = None,
        small_images: bool = False,
    ) -> None:
        if vectorization not in BACKENDS:
            raise unknown("vectorization", vectorization, BACKENDS)
        atari = is_atari(env) if atari is None else atari
        self.name = env
        self.n_envs = n_envs
        self.seed = seed
        self.frame_skip = FRAME_SKIP if atari else 1
        self._learner_view = atari and training
        self._autoreset = autoreset
        with waiting.calling("constructor"):
            self._backend: EnvBackend = BACKENDS[vectorization](
                n_envs,
                env,
                env_kwargs=env_kwargs,
                frame_stack=frame_stack_of(env, frame_stack, atari),
                atari=atari,
                max_episode_steps=max_episode_steps,
                render_mode=render_mode,
                small_images=small_images,
            )
        limit = self._backend.time_limit
        self._is_cut = limit is None and vectorization == "sync" and not training and not atari
        if self._is_cut:
            limit = LONGEST_EPISODE
        self._time_limit = math.inf if limit is None else limit
        self.single_observation_space = self._backend.observation_space
        self.single_action_space = self._backend.action_space
        self._actions = ActionEncoder(self.single_action_space)
        self._next_number = 0
        self._numbers = np.zeros(n_envs, np.int64)
        self._returns = np.zeros(n_envs)
        self._time = 0  # steps so far
        self._begun = np.zeros(n_envs, np.int64)  # when the episodes began, without invalid rows
        self._due = math.inf  # before this time no episode is at its limit
        self._all: Bools = np.ones(n_envs, np.bool_)
        self._all.flags.writeable = False  # handed out in every step
        self._none, self._indices = np.zeros(n_envs, np.bool_), np.arange(n_envs)
        self._log = _ActionLog(n_envs, self.single_action_space)

    def reset(self) -> Array:
        """Start new episodes everywhere and return their first observations."""
        everywhere = np.arange(self.n_envs)
        self._begin(everywhere)
        with waiting.calling("reset()"):
            self.obs = self._backend.start(self._seeds(everywhere))
        return self.obs

    def step(self, action: Array) -> Transition:
        """Take one action per environment; where an episode ends, the next one begins."""
        actions = self._actions.encode(action)
        self._log.append(actions)
        waiting.began("step()")
        try:
            step = self._backend.step(actions)
        finally:
            waiting.ended()
        next_obs, reward, terminated, truncated, life_lost, valid = step
        self._time += 1
        if valid is None:
            valid = self._all
        else:
            self._begun += ~valid
        self._returns += reward
        if self._time >= self._due:
            truncated = truncated | (self._lengths >= self._time_limit)
        ended = terminated | truncated
        episodes: list[Finished] = []
        self.obs = next_obs
        if np.count_nonzero(ended):
            episodes = self._end(ended.nonzero()[0])
        if self._learner_view:
            reward = np.sign(reward)
            if life_lost is not None:
                terminated, ended = terminated | life_lost, ended | life_lost
        return Transition(
            action, reward, terminated, truncated, next_obs, self.obs, valid, episodes, ended
        )

    def _end(self, which: npt.NDArray[np.int64]) -> list[Finished]:
        """Return the episodes of these environments, which end; the next ones begin."""
        lengths = self._lengths
        episodes = [
            Finished(
                env=i,
                episode_return=float(self._returns[i]),
                length=int(lengths[i]),
                number=int(self._numbers[i]),
                success=self._backend.success(i),
            )
            for i in which.tolist()
        ]
        if self._autoreset:
            self.obs = self.obs.copy()
            self._begin(which)
            with waiting.calling("reset()"):
                self._backend.reset(which, self._seeds(which), self.obs)
        return episodes

    def run(self, act: Callable[[Array, Bools], Array], numbers: range) -> list[Finished]:
        """Run whole episodes from their beginning; return them by number.

        Only with "sync". No environment is stepped that has no episode: what it shows then is what
        it began with. Nothing is kept of the steps, so they cost less than with `step`.

        Args:
            act: observations (n_envs, ...), and where they are the first of an episode -> actions
            numbers: of the episodes, as many as there are environments, or more

        Raises:
            UserError: the environment answered an action with a reward that is none.
        """
        backend, coming = self._backend, iter(numbers)
        current = [next(coming) for _ in range(self.n_envs)]
        with waiting.calling("reset()"):
            first = backend.start([episode_seed(self.seed, number) for number in current])
        obs, begins = first.copy(), np.ones(self.n_envs, np.bool_)
        returns, lengths = [0.0] * self.n_envs, [0] * self.n_envs
        limit = self._time_limit
        awake, done = list(range(self.n_envs)), list[Finished]()
        while awake:
            action = act(obs, begins)
            actions = self._actions.encode(action)
            waiting.began("step()")
            try:
                outcomes = backend.step_some(awake, actions, obs)
            finally:
                waiting.ended()
            begins = self._none
            for i, (reward, ended) in zip(tuple(awake), outcomes, strict=True):
                returns[i] += reward
                lengths[i] += 1
                if not ended and lengths[i] < limit:
                    continue
                self._check_return(returns[i], action)
                done.append(Finished(i, returns[i], lengths[i], current[i], backend.success(i)))
                if (number := next(coming, None)) is None:
                    awake.remove(i)
                    obs[i] = first[i]
                    continue
                current[i], returns[i], lengths[i] = number, 0.0, 0
                begins = begins | (self._indices == i)
                with waiting.calling("reset()"):
                    seeds = [episode_seed(self.seed, number)]
                    backend.reset(self._indices[i : i + 1], seeds, obs)
        return sorted(done, key=lambda episode: episode.number)

    def _check_return(self, episode_return: float, action: Array) -> None:
        # The actions of a policy that has come to nothing are NaN, too.
        if np.isnan(episode_return) and np.isfinite(action).all():
            raise UserError(f"environment {self.name!r}: step() gave a reward of NaN or None")

    def cuts(self, episode: Finished) -> bool:
        """Tell whether it ended for want of a time limit alone."""
        return self._is_cut and episode.length >= LONGEST_EPISODE

    @property
    def _lengths(self) -> npt.NDArray[np.int64]:
        return self._time - self._begun

    def _begin(self, which: npt.NDArray[np.int64]) -> None:
        """Number the next episodes, of the environments ``which``, and count from 0."""
        self._numbers[which] = self._next_number + np.arange(len(which))
        self._next_number += len(which)
        self._begun[which] = self._time
        self._due = int(self._begun.min()) + self._time_limit
        self._returns[which] = 0.0
        self._log.start(which)

    def _seeds(self, which: npt.NDArray[np.int64]) -> list[int]:
        return [episode_seed(self.seed, int(self._numbers[i])) for i in which]

    def state_dict(self) -> dict[str, Any]:
        """Return the state from which `load_state_dict` continues the same episodes.

        An episode is its seed and the actions so far, played again on loading. An environment that
        has both ``get_state()`` (plain Python or tensors, its generator included) and
        ``set_state(state)`` is asked instead. "native" and "envpool" can do neither: there, new
        episodes begin.
        """
        states = self._backend.get_states()
        replayed = range(self.n_envs) if states is None and self._backend.replays else ()
        return {
            "next_number": self._next_number,
            "numbers": self._numbers.tolist(),
            "lengths": self._lengths.tolist(),
            "returns": self._returns.tolist(),
            "obs": torch.from_numpy(self.obs.copy()),
            "states": states,
            "actions": [torch.from_numpy(self._log.episode(i)) for i in replayed],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to where `state_dict` was taken; ``obs`` is then the observation to act on."""
        self._next_number = state["next_number"]
        if not self._backend.replays:
            self.reset()
            return
        self._numbers[:] = state["numbers"]
        self._begun[:] = self._time - np.array(state["lengths"])
        self._due = int(self._begun.min()) + self._time_limit
        self._returns[:] = state["returns"]
        self.obs = state["obs"].numpy().copy()
        seeds = self._seeds(np.arange(self.n_envs))
        if state["states"] is not None:
            self._backend.start(seeds)
            self._backend.set_states(state["states"])
        else:
            episodes = [actions.numpy() for actions in state["actions"]]
            self._backend.replay(seeds, episodes)
            self._log.load(episodes)

    @property
    def replays(self) -> bool:
        """Whether `load_state_dict` goes on with the same episodes, or begins new ones."""
        return self._backend.replays

    def render(self) -> Any:
        """Return the picture of the first environment, (height, width, 3) with "rgb_array"."""
        return self._backend.render()

    @property
    def steps_per_second(self) -> float:
        """The steps a second that look natural."""
        return float(self._backend.metadata().get("render_fps") or 30) / self.frame_skip

    def close(self) -> None:
        """Close the environments."""
        self._backend.close()


class ActionEncoder:
    """Turns an algorithm's actions into those that the environments take."""

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self._start: Any = None
        self._low = self._high = np.zeros(0)
        if isinstance(space, spaces.Box):
            self._low, self._high = space.low, space.high
        elif isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
            self._start = space.start if np.any(space.start) else None
        self._dtype = space.dtype
        self._is_box = isinstance(space, spaces.Box)
        self._shape = cast("tuple[int, ...]", space.shape)

    def encode(self, action: Array) -> Array:
        action = np.asarray(action).reshape(-1, *self._shape)
        if self._is_box:
            if self._low.shape != action.shape:  # broadcast once, not with every step
                self._low, self._high = (
                    np.resize(bound, action.shape) for bound in (self._low, self._high)
                )
            action = np.minimum(np.maximum(action, self._low), self._high)
        elif self._start is not None:
            action = action + self._start
        return action.astype(self._dtype, copy=False)


class _ActionLog:
    """The actions of the running episodes: ``(time, n_envs, ...)``, so that a step is one write."""

    def __init__(self, n_envs: int, space: gymnasium.Space[Any]) -> None:
        self._starts = np.zeros(n_envs, np.int64)
        self._buffer: Array = np.empty(
            (64, n_envs, *cast("tuple[int, ...]", space.shape)), space.dtype
        )
        self._time = 0

    def append(self, actions: Array) -> None:
        if self._time == len(self._buffer):
            self._make_room()
        self._buffer[self._time] = actions
        self._time += 1

    def start(self, which: npt.NDArray[np.int64]) -> None:
        self._starts[which] = self._time

    def episode(self, i: int) -> Array:
        return self._buffer[self._starts[i] : self._time, i].copy()

    def load(self, episodes: list[Array]) -> None:
        """Take over running episodes; they all end now."""
        self._time = max(len(actions) for actions in episodes)
        self._starts[:] = [self._time - len(actions) for actions in episodes]
        self._buffer = np.zeros((64 + 2 * self._time, *self._buffer.shape[1:]), self._buffer.dtype)
        for i, actions in enumerate(episodes):
            self._buffer[self._starts[i] : self._time, i] = actions

    def _make_room(self) -> None:
        """Forget what no running episode needs; grow when that frees less than half."""
        oldest = int(np.min(self._starts))
        kept = self._buffer[oldest:]
        size = len(self._buffer) * (2 if oldest < self._time // 2 else 1)
        self._buffer = np.empty((size, *kept.shape[1:]), kept.dtype)
        self._buffer[: len(kept)] = kept
        self._time = len(kept)
        self._starts -= oldest
