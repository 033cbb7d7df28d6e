"""Vector environment backends: in this process, a process each, native, and envpool.

Each steps all environments and gives the true successors; `rltune.agents.envs.vector` decides when
a new episode begins. gymnasium's own autoreset is switched off, or undone where it can't be: its
default hands over a bogus transition from the end of an episode to the start of the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from rltune.agents.envs.make import Env, build
from rltune.agents.envs.masks import KEY, refuse_masks
from rltune.agents.envs.native import VectorEnv, fire_action, make_envpool, make_native
from rltune.agents.errors import UserError
from rltune.agents.spaces import as_model_input

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]


# What environments call it, in the `info` of an episode's last step: gymnasium-robotics and SB3's
# convention, and MetaWorld.
SUCCESS = ("is_success", "success")


class Step(NamedTuple):
    """The outcome of one action per environment; ``next_obs`` is the true successor.

    ``life_lost`` is None where no game has lives, ``valid`` where every row is a transition.
    """

    next_obs: Array
    reward: npt.NDArray[np.float64]
    terminated: Bools
    truncated: Bools
    life_lost: Bools | None = None
    valid: Bools | None = None


class EnvBackend(Protocol):
    """The interface that `Envs` uses; it enforces ``time_limit`` (in steps) itself."""

    observation_space: gymnasium.spaces.Box
    action_space: gymnasium.Space[Any]
    time_limit: int | None
    replays: bool

    def start(self, seeds: Sequence[int]) -> Array:
        """Begin an episode everywhere and return the first observations."""

    def reset(self, which: Indices, seeds: Sequence[int], obs: Array) -> None:
        """Begin an episode where one has just ended; write its observation into ``obs``."""

    def step(self, actions: Array) -> Step:
        """Take one action per environment."""

    def step_some(
        self, which: Sequence[int], actions: Array, obs: Array
    ) -> list[tuple[float, bool]]:
        """Take actions in some environments alone; write what they show into rows of ``obs``.

        Returns:
            the reward of each, and whether its episode has ended
        """
        raise NotImplementedError("only vectorization='sync' steps some environments alone")

    def success(self, i: int) -> bool | None:
        """Say whether environment ``i`` calls its last step a success; None: it does not say."""

    def replay(self, seeds: Sequence[int], episodes: Sequence[Array]) -> None:
        """Begin an episode everywhere and take its actions so far again."""

    def get_states(self) -> list[Any] | None:
        """Return the environments' own states, or None when they offer none."""

    def set_states(self, states: Sequence[Any]) -> None:
        """Take over what ``get_states`` gave."""

    def render(self) -> Any:
        """Return the picture of the first environment."""
        raise NotImplementedError("only vectorization='sync' shows its environments")

    def metadata(self) -> Mapping[str, Any]:
        """Return gymnasium's metadata of the environment, such as ``render_fps``."""
        return {}

    def close(self) -> None:
        """Close the environments."""


class _Sync(EnvBackend):
    """A loop in this process: the default, and for light environments the fastest."""

    replays = True

    def __init__(self, n_envs: int, env: str, **options: Any) -> None:
        made = [build(env, **options) for _ in range(n_envs)]
        self._name = env
        self._envs = [env for env, _ in made]
        self.time_limit = made[0][1]
        self.observation_space = as_model_input(self._envs[0].observation_space)
        self.action_space = self._envs[0].action_space
        self._shape = self.observation_space.shape
        self._atari = bool(options.get("atari"))
        self._takes_int = _takes_int(self._envs[0])
        self._infos: list[Any] = [{}] * n_envs  # of the last step
        self._none = _constant(n_envs, False)

    def start(self, seeds: Sequence[int]) -> Array:
        obs = np.empty((len(self._envs), *self._shape), self.observation_space.dtype)
        self.reset(np.arange(len(self._envs)), seeds, obs)
        return obs

    def reset(self, which: Indices, seeds: Sequence[int], obs: Array) -> None:
        for i, seed in zip(which, seeds, strict=True):
            obs[i] = self._checked(self._envs[i].reset(seed=seed))

    def _checked(self, result: object) -> Array:
        if not (isinstance(result, tuple) and len(result) == 2):
            raise self._wrong("reset() must return (observation, info)")
        refuse_masks(self._name, self.action_space, result[1] or {})
        return self._fitting(result[0], "reset()")

    def _fitting(self, observation: Any, method: str) -> Array:
        obs = np.asarray(observation)
        if obs.shape != self._shape:
            raise self._wrong(
                f"{method} gave an observation of shape {obs.shape}, but its observation_space "
                f"says {self._shape}"
            )
        return obs

    def _wrong(self, what: str) -> UserError:
        return UserError(f"environment {self._name!r}: {what}")

    def _amended(self, result: Any) -> tuple[Any, float, bool, bool, Any]:
        """Return a step's result with a plain number for the reward, or complain."""
        if not (isinstance(result, tuple) and len(result) == 5):
            raise self._wrong(
                "step() must return (observation, reward, terminated, truncated, info)"
            )
        obs, reward, terminated, truncated, info = result
        number = np.asarray(reward)
        if number.size != 1:
            raise self._wrong(f"step() gave a reward of shape {number.shape}, not a number")
        return self._fitting(obs, "step()"), number.item(), terminated, truncated, info

    def step(self, actions: Array) -> Step:
        choices = actions.tolist() if self._takes_int else actions
        results = [env.step(choice) for env, choice in zip(self._envs, choices, strict=True)]
        step = self._side_by_side(results) or self._one_by_one(results)
        if self._atari:
            lost = np.array([info["life_lost"] for info in self._infos])
            step = step._replace(life_lost=lost)
        return step

    def _side_by_side(self, results: Sequence[Any]) -> Step | None:
        """Return what the environments gave, or None where one gave something unusual."""
        n = len(results)
        try:
            observations, rewards, terminations, truncations, infos = zip(*results, strict=True)
            obs = np.array(observations, self.observation_space.dtype)
            reward = np.array(rewards, np.float64)
            terminated = np.array(terminations, np.bool_) if any(terminations) else self._none
            truncated = np.array(truncations, np.bool_) if any(truncations) else self._none
        except (TypeError, ValueError):
            return None
        if obs.shape != (n, *self._shape) or any(
            array.shape != (n,) for array in (reward, terminated, truncated)
        ):
            return None
        self._infos = list(infos)
        return Step(obs, reward, terminated, truncated)

    def _one_by_one(self, results: Sequence[Any]) -> Step:
        n = len(results)
        obs = np.empty((n, *self._shape), self.observation_space.dtype)
        reward = np.empty(n)
        terminated, truncated = np.empty((2, n), np.bool_)
        infos: list[Any] = [{}] * n
        self._infos = infos
        for i, result in enumerate(results):
            try:
                obs[i], reward[i], terminated[i], truncated[i], infos[i] = result
            except (TypeError, ValueError):
                obs[i], reward[i], terminated[i], truncated[i], infos[i] = self._amended(result)
        return Step(obs, reward, terminated, truncated)

    def step_some(
        self, which: Sequence[int], actions: Array, obs: Array
    ) -> list[tuple[float, bool]]:
        choices = actions.tolist() if self._takes_int else actions
        outcomes = []
        for i in which:
            result = self._envs[i].step(choices[i])
            try:
                obs[i], reward, terminated, truncated, self._infos[i] = result
                outcomes.append((float(reward), bool(terminated or truncated)))
            except (TypeError, ValueError):
                obs[i], reward, terminated, truncated, self._infos[i] = self._amended(result)
                number = math.nan if reward is None else float(reward)
                outcomes.append((number, bool(terminated or truncated)))
        return outcomes

    def success(self, i: int) -> bool | None:
        info = self._infos[i] or {}
        return next((bool(info[name]) for name in SUCCESS if name in info), None)

    def replay(self, seeds: Sequence[int], episodes: Sequence[Array]) -> None:
        for env, seed, actions in zip(self._envs, seeds, episodes, strict=True):
            _replay(env, seed, actions)

    def get_states(self) -> list[Any] | None:
        if not all(_keeps_state(env) for env in self._envs):
            return None
        return [cast(Any, env).get_state() for env in self._envs]

    def set_states(self, states: Sequence[Any]) -> None:
        for env, state in zip(self._envs, states, strict=True):
            cast(Any, env).set_state(state)

    def render(self) -> Any:
        return self._envs[0].render()

    def metadata(self) -> Mapping[str, Any]:
        return self._envs[0].metadata

    def close(self) -> None:
        for env in self._envs:
            env.close()  # type: ignore[no-untyped-call]


class _Async(EnvBackend):
    """A process per environment (gymnasium's AsyncVectorEnv): only for slow environments."""

    replays = True

    def __init__(self, n_envs: int, env: str, **options: Any) -> None:
        self._name = env
        probe, self.time_limit = build(env, **options)
        self.observation_space = as_model_input(probe.observation_space)
        self.action_space = probe.action_space
        probe.close()  # type: ignore[no-untyped-call]
        self._envs: Any = gymnasium.vector.AsyncVectorEnv(
            [partial(_Replayable, i, env, options) for i in range(n_envs)],
            autoreset_mode=AutoresetMode.DISABLED,
        )
        self._n_envs = n_envs

    def start(self, seeds: Sequence[int]) -> Array:
        obs, info = self._envs.reset(seed=list(seeds))
        refuse_masks(self._name, self.action_space, info)
        return np.asarray(obs, self.observation_space.dtype)

    def reset(self, which: Indices, seeds: Sequence[int], obs: Array) -> None:
        all_seeds: list[int | None] = [None] * self._n_envs
        mask = np.zeros(self._n_envs, np.bool_)
        for i, seed in zip(which, seeds, strict=True):
            all_seeds[i], mask[i] = seed, True
        first, _ = self._envs.reset(seed=all_seeds, options={"reset_mask": mask})
        obs[which] = first[which]

    def step(self, actions: Array) -> Step:
        obs, reward, terminated, truncated, info = self._envs.step(actions)
        self._info = info
        obs = np.asarray(obs, self.observation_space.dtype)
        return Step(obs, reward, terminated, truncated, info.get("life_lost"))

    def success(self, i: int) -> bool | None:
        return _success(self._info, i)

    def replay(self, seeds: Sequence[int], episodes: Sequence[Array]) -> None:
        self._envs.reset()
        self._envs.call("replay", seeds, episodes)

    def get_states(self) -> list[Any] | None:
        return None

    def set_states(self, states: Sequence[Any]) -> None:
        raise NotImplementedError("environments in processes of their own replay their actions")

    def close(self) -> None:
        self._envs.close()


class _Native(EnvBackend):
    """The environment's own vector version: gymnasium's CartPole or ALE's AtariVectorEnv.

    They reset by themselves. Where that happens one step late (NEXT_STEP), the row in between is
    marked as not valid. Their episodes can't be seeded or played again one by one.
    """

    replays = False
    time_limit: int | None = None  # they keep it themselves

    def __init__(self, n_envs: int, env: str, **options: Any) -> None:
        self._name = env
        self._envs = self._make(n_envs, env, options)
        self.observation_space = as_model_input(self._envs.single_observation_space)
        self.action_space = self._envs.single_action_space
        self._same_step = self._envs.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
        self._fire = fire_action(env) if options.get("atari") else None
        self._none = _constant(n_envs, False)

    def _make(self, n_envs: int, env: str, options: Mapping[str, Any]) -> VectorEnv:
        return make_native(n_envs, env, **options)

    def _reset(self, seeds: Sequence[int]) -> tuple[Array, dict[str, Any]]:
        return self._envs.reset(seed=seeds[0])

    def start(self, seeds: Sequence[int]) -> Array:
        obs, info = self._reset(seeds)
        if KEY in info:
            raise UserError(
                f"environment {self._name!r}: its native version offers action masks, which are "
                "not read there; use vectorization 'sync'"
            )
        self._resetting = self._fires = self._none
        self._lives = info.get("lives")
        return np.asarray(obs, self.observation_space.dtype)

    def reset(self, which: Indices, seeds: Sequence[int], obs: Array) -> None:
        if self._same_step:
            obs[which] = self._next_obs[which]

    def step(self, actions: Array) -> Step:
        if self._fire is not None and self._fires.any():
            actions = np.where(self._fires, self._fire, actions)
        obs, reward, terminated, truncated, info = self._envs.step(actions)
        obs = np.asarray(obs, self.observation_space.dtype)
        ended = terminated | truncated
        valid = ~(self._resetting | self._fires)
        reward = np.where(self._resetting, 0.0, reward).astype(np.float64)
        life_lost = self._life_lost(info)
        if self._fire is not None:
            self._fires = life_lost & ~ended
        if self._same_step:
            self._next_obs = obs
            if ended.any():
                obs = obs.copy()
                obs[ended] = np.stack(list(info["final_obs"][ended]))
                info = info.get("final_info", info)
        else:
            self._resetting = ended
        self._info = info
        return Step(obs, reward, terminated, truncated, life_lost, valid)

    def success(self, i: int) -> bool | None:
        return _success(self._info, i)

    def _life_lost(self, info: Mapping[str, Any]) -> Bools:
        if self._lives is None:
            return self._none
        before, self._lives = self._lives, info["lives"]
        return cast(Bools, self._lives < before)

    def replay(self, seeds: Sequence[int], episodes: Sequence[Array]) -> None:
        raise NotImplementedError("vector environments of others can't play an episode again")

    def get_states(self) -> list[Any] | None:
        return None

    def set_states(self, states: Sequence[Any]) -> None:
        raise NotImplementedError("vector environments of others keep their state to themselves")

    def close(self) -> None:
        self._envs.close()


class _EnvPool(_Native):
    """envpool: C++ threads, always NEXT_STEP, and what it calls an environment may differ a little.

    It takes seeds when it is made and never again: only the first episodes have their own.
    """

    def _make(self, n_envs: int, env: str, options: Mapping[str, Any]) -> VectorEnv:
        self._make_seeded = partial(make_envpool, n_envs, env, **options)
        return self._make_seeded(seeds=range(n_envs))

    def _reset(self, seeds: Sequence[int]) -> tuple[Array, dict[str, Any]]:
        self._envs.close()
        self._envs = self._make_seeded(seeds=seeds)
        return self._envs.reset()


BACKENDS: dict[str, Callable[..., EnvBackend]] = {
    "sync": _Sync,
    "async": _Async,
    "native": _Native,
    "envpool": _EnvPool,
}


def _success(info: Mapping[str, Any], i: int) -> bool | None:
    """Read it from a gymnasium vector's info: arrays, and masks of the rows that are filled."""
    for name in SUCCESS:
        if name in info and ("_" + name not in info or info["_" + name][i]):
            return bool(info[name][i])
    return None


def _takes_int(env: Env) -> bool:
    """Tell whether a Python int will do as an action, which gymnasium checks 20 times as fast.

    Environments of others are given numpy integers, as from gymnasium's own vectors.
    """
    own = env.spec is not None and str(env.spec.entry_point).startswith("gymnasium.envs.")
    return own and isinstance(env.action_space, gymnasium.spaces.Discrete)


def _constant(n_envs: int, value: bool) -> Bools:
    array = np.full(n_envs, value)
    array.flags.writeable = False  # handed out in every step
    return array


def _replay(env: Env, seed: int, actions: Array) -> None:
    env.reset(seed=seed)
    for action in actions:
        env.step(action)


class _Replayable(gymnasium.Wrapper[Any, Any, Any, Any]):
    """One environment in a process of its own, which can be told to play an episode again."""

    def __init__(self, index: int, env: str, options: Mapping[str, Any]) -> None:
        super().__init__(build(env, **options)[0])
        self._index = index

    def replay(self, seeds: Sequence[int], episodes: Sequence[Array]) -> None:
        _replay(self.env, seeds[self._index], episodes[self._index])


def _keeps_state(env: Env) -> bool:
    """Tell whether an environment can be asked for its state; wrappers around it could not.

    MuJoCo's environments have a ``set_state`` of another meaning but no ``get_state``.
    """
    methods = (getattr(env, "get_state", None), getattr(env, "set_state", None))
    return env.unwrapped is env and all(callable(method) for method in methods)
