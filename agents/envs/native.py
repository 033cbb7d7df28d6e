"""Native vector environments: gymnasium's and ALE's own vector versions, and envpool's."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, cast

import gymnasium
import numpy as np
from rltune.agents.envs.atari import FRAME_SKIP
from rltune.agents.envs.make import build, find_spec, is_atari, is_own, split_limit
from rltune.agents.envs.wrappers import WRAPPER
from rltune.agents.errors import UserError

VectorEnv = gymnasium.vector.VectorEnv[Any, Any, Any]


def fire_action(env: str) -> int | None:
    """Return the action that starts the ball of an Atari game, None where there is none."""
    made, _ = build(env, frame_stack=1, atari=True)
    meanings: list[str] = cast(Any, made.unwrapped).get_action_meanings()
    made.close()  # type: ignore[no-untyped-call]
    return meanings.index("FIRE") if "FIRE" in meanings else None


def n_threads() -> int:
    """Return the number of threads to step with, 0 for one per core.

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
    """Return the form of the spaces, which two versions of an environment must share."""
    obs, action = env.observation_space, env.action_space
    image = obs.dtype == np.uint8 and len(obs.shape) == 3
    return type(obs), obs.shape, image, type(action), action.shape, getattr(action, "n", None)
