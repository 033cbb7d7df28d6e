"""Backends of vector environments, brought to one meaning for `rltune.agents.envs.vector`.

Each steps all environments and says what truly came next; `Envs` says when a new episode begins.
gymnasium's own autoreset is switched off, or undone where it can't be (PITFALLS: its default hands
over a bogus transition from the end of an episode to the start of the next).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from rltune.agents.envs.atari import FRAME_SKIP
from rltune.agents.envs.make import Env, build, find_spec, is_atari, is_own, split_limit
from rltune.agents.envs.masks import KEY, refuse_masks
from rltune.agents.envs.wrappers import WRAPPER
from rltune.agents.errors import UserError
from rltune.agents.spaces import as_model_input

Array = npt.NDArray[Any]
VectorEnv = gymnasium.vector.VectorEnv[Any, Any, Any]
Bools = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]


# What environments call it, in the `info` of an episode's last step: gymnasium-robotics and SB3's
# convention, and MetaWorld.
SUCCESS = ("is_success", "success")


class Step(NamedTuple):
    """What came of one action per environment; ``next_obs`` is the true successor."""

    next_obs: Array
    reward: npt.NDArray[np.float64]
    terminated: Bools
    truncated: Bools
    life_lost: Bools
    valid: Bools


class Backend(Protocol):
    """What `Envs` needs. ``time_limit`` is what it still has to enforce, in steps."""

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
        """Return what gymnasium's environments say about their rendering."""
        return {}

    def close(self) -> None:
        """Close the environments."""


class _Sync(Backend):
    """A loop in this process: the default, and for light environments the fastest."""

    replays = True

    def __init__(self, n_envs: int, env: str, **options: Any) -> None:
        made = [build(env, **options) for _ in range(n_envs)]
        self._name = env
        self._envs = [one for one, _ in made]
        self.time_limit = made[0][1]
        self.observation_space = as_model_input(self._envs[0].observation_space)
        self.action_space = self._envs[0].action_space
        self._shape = self.observation_space.shape
        self._atari = bool(options.get("atari"))
        self._takes_int = _takes_int(self._envs[0])
        self._infos: list[Mapping[str, Any]] = [{}] * n_envs  # of the last step
        self._all, self._none = _constant(n_envs, True), _constant(n_envs, False)

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
        """Return what a step gave with a plain number for the reward, or complain."""
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
        n = len(self._envs)
        obs = np.empty((n, *self._shape), self.observation_space.dtype)
        reward = np.empty(n)
        terminated = np.empty(n, np.bool_)
        truncated = np.empty(n, np.bool_)
        life_lost = np.empty(n, np.bool_) if self._atari else self._none
        choices = actions.tolist() if self._takes_int else actions
        for i, (env, choice) in enumerate(zip(self._envs, choices, strict=True)):
            result = env.step(choice)
            try:
                obs[i], reward[i], terminated[i], truncated[i], info = result
            except (TypeError, ValueError):
                obs[i], reward[i], terminated[i], truncated[i], info = self._amended(result)
            self._infos[i] = info
            if self._atari:
                life_lost[i] = info["life_lost"]
        return Step(obs, reward, terminated, truncated, life_lost, self._all)

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


class _Async(Backend):
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
        self._atari = bool(options.get("atari"))
        self._all, self._none = _constant(n_envs, True), _constant(n_envs, False)

    def start(self, seeds: Sequence[int]) -> Array:
        obs, info = self._envs.reset(seed=list(seeds))
        refuse_masks(self._name, self.action_space, info)
        return np.asarray(obs, self.observation_space.dtype)

    def reset(self, which: Indices, seeds: Sequence[int], obs: Array) -> None:
        all_seeds: list[int | None] = [None] * len(self._all)
        mask = np.zeros(len(self._all), np.bool_)
        for i, seed in zip(which, seeds, strict=True):
            all_seeds[i], mask[i] = seed, True
        first, _ = self._envs.reset(seed=all_seeds, options={"reset_mask": mask})
        obs[which] = first[which]

    def step(self, actions: Array) -> Step:
        obs, reward, terminated, truncated, info = self._envs.step(actions)
        self._info = info
        life_lost = info["life_lost"] if self._atari else self._none
        obs = np.asarray(obs, self.observation_space.dtype)
        return Step(obs, reward, terminated, truncated, life_lost, self._all)

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


class _Native(Backend):
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


BACKENDS: dict[str, Callable[..., Backend]] = {
    "sync": _Sync,
    "async": _Async,
    "native": _Native,
    "envpool": _EnvPool,
}


def _success(info: Mapping[str, Any], i: int) -> bool | None:
    """Read it from the info of a gymnasium vector: arrays, and masks of who filled them."""
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


def fire_action(env: str) -> int | None:
    """Return the action that starts the ball of an Atari game, None where there is none."""
    made, _ = build(env, frame_stack=1, atari=True)
    meanings: list[str] = cast(Any, made.unwrapped).get_action_meanings()
    made.close()  # type: ignore[no-untyped-call]
    return meanings.index("FIRE") if "FIRE" in meanings else None


def n_threads() -> int:
    """Return how many threads to step with, 0 for one per core.

    Ray gives each trial OMP_NUM_THREADS: the cores that are its own.
    """
    return int(os.environ.get("OMP_NUM_THREADS") or 0)


def make_native(
    n_envs: int,
    env: str,
    *,
    env_kwargs: Mapping[str, Any] | None,
    frame_stack: int,
    atari: bool,
    max_episode_steps: int | None,
    render_mode: str | None,
    small_images: bool,
) -> VectorEnv:
    """Return the environment's own vector version.

    Raises:
        UserError: there is none.
    """
    if is_own(env):
        raise UserError(f"environment {env!r} of your own has no native version; use 'sync'")
    kwargs, limit = split_limit(env, env_kwargs)
    _check_unwrapped(env, kwargs)
    spec = find_spec(env)
    if spec.vector_entry_point is None:
        hint = "use an 'ALE/...-v5' id" if atari else "use 'sync', or 'envpool' where it has it"
        raise UserError(f"environment {env!r} has no native version; {hint}")
    if atari:
        kwargs.update(stack_num=max(1, frame_stack), reward_clipping=False)
        kwargs.update(autoreset_mode="SameStep", num_threads=n_threads())
        if steps := _least(limit, max_episode_steps):
            kwargs["max_num_frames_per_episode"] = steps * FRAME_SKIP
    elif frame_stack > 1:
        raise UserError(f"environment {env!r} has no native version with frame_stack; use 'sync'")
    elif steps := _least(limit or spec.max_episode_steps, max_episode_steps):
        kwargs["max_episode_steps"] = steps
    return gymnasium.make_vec(spec, n_envs, vectorization_mode="vector_entry_point", **kwargs)


def _check_unwrapped(env: str, kwargs: Mapping[str, Any]) -> None:
    if named := [name for name in kwargs if name.startswith(WRAPPER)]:
        raise UserError(f"environment {env!r}: {named[0]} needs vectorization sync or async")


def make_envpool(
    n_envs: int,
    env: str,
    *,
    seeds: Sequence[int],
    env_kwargs: Mapping[str, Any] | None,
    frame_stack: int,
    atari: bool,
    max_episode_steps: int | None,
    render_mode: str | None,
    small_images: bool,
) -> VectorEnv:
    """Return envpool's version of a registered environment, with a seed for each.

    Raises:
        UserError: there is no envpool, or it has no such environment, or a different one.
    """
    ours, limit = build(
        env,
        env_kwargs=env_kwargs,
        frame_stack=frame_stack,
        atari=atari,
        max_episode_steps=max_episode_steps,
        small_images=small_images,
    )
    ours.close()  # type: ignore[no-untyped-call]
    try:
        import envpool
    except ImportError:
        raise UserError("vectorization 'envpool' needs it: pip install \"rltune[fast]\"") from None
    name, (kwargs, asked) = env, split_limit(env, env_kwargs)
    _check_unwrapped(env, kwargs)
    if atari and is_atari(env):
        name, kwargs, limit = _atari_for_envpool(env, kwargs, _least(asked, max_episode_steps))
        kwargs["stack_num"] = max(1, frame_stack)
    elif frame_stack > 1:
        raise UserError(f"environment {env!r} has no frame_stack in envpool; use 'sync'")
    if name not in envpool.list_all_envs():
        raise UserError(f"envpool has no environment {env!r}; use 'sync'")
    if limit is not None:
        kwargs["max_episode_steps"] = limit
    kwargs.update(env_seed=list(seeds), num_threads=n_threads())
    try:
        made = envpool.make(name, env_type="gymnasium", num_envs=n_envs, **kwargs)
    except TypeError as error:
        raise UserError(f"environment {env!r} in envpool: {error}") from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it casts the bounds of its own spaces
        same = _outline(made) == _outline(ours)
    if not same:
        raise UserError(
            f"environment {env!r} has other observations or actions in envpool "
            f"({made.observation_space}, {made.action_space}); use 'sync'"
        )
    return cast(VectorEnv, made)


def _least(*limits: int | None) -> int | None:
    return min((steps for steps in limits if steps is not None), default=None)


def _atari_for_envpool(
    env: str, kwargs: Mapping[str, Any], max_episode_steps: int | None
) -> tuple[str, dict[str, Any], int]:
    """Return envpool's name for an Atari game, its options and the time limit in steps."""
    options = {**find_spec(env).kwargs, **kwargs}
    del options["frameskip"]
    limit = options.pop("max_num_frames_per_episode") // FRAME_SKIP
    name = "".join(word.capitalize() for word in options.pop("game").split("_"))
    return f"{name}-v5", options, min(limit, max_episode_steps or limit)


def _outline(env: Any) -> tuple[Any, ...]:
    """Return what two versions of an environment must have in common."""
    obs, action = env.observation_space, env.action_space
    image = obs.dtype == np.uint8 and len(obs.shape) == 3
    return type(obs), obs.shape, image, type(action), action.shape, getattr(action, "n", None)
