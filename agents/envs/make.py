"""Environment construction from a name: gymnasium ids, Atari games, Unity, and users' own classes.

Whatever the environment gives, an agent sees one of two observations: a float32 vector ``(d,)``
or a uint8 image ``(channels, height, width)``; of images beside other numbers, a vector that knows
where they lie (`rltune.agents.images`). Time limits are left to the caller (``build``),
because `Envs` counts the steps of every episode anyway.
"""

from __future__ import annotations

import contextlib
import copy
import difflib
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from rltune.agents.envs.masks import Masked, mask_to_info, offers_masks
from rltune.agents.envs.unity import Unity
from rltune.agents.envs.wrappers import FrameStack, take_wrappers, wrapped
from rltune.agents.errors import UserError
from rltune.agents.images import ImageLayout, image_layout, with_images
from rltune.agents.spaces import as_model_input
from rltune.agents.user_code import check_single_agent, import_module
from rltune.agents.user_code import factory as own_factory

Env = gymnasium.Env[Any, Any]
Array = npt.NDArray[Any]

UNITY = "unity:"  # before the path of a build

# The part of rltune to install for the environments of a package.
EXTRAS = {
    "gymnasium.envs.box2d": "box2d",
    "gymnasium.envs.mujoco": "mujoco",
    "ale_py": "atari",
    "rltune.agents.envs.pybullet": "bullet",
}


def make_env(
    env: str,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    frame_stack: int = 0,
    atari: bool | None = None,
    render_mode: str | None = None,
    max_episode_steps: int | None = None,
) -> Env:
    """Return one environment with vectors or uint8 images, and its time limit.

    ``max_episode_steps`` counts where it is below the environment's limit: the registered one, or
    the ``max_episode_steps`` among ``env_kwargs`` that takes its place, as in gymnasium.

    ``env`` is a gymnasium id, ``module:Class`` (or ``module:function``) of the user's own, or
    ``unity:FILE``.
    Raises `UserError` for an unknown name, a missing package or an unsupported space.
    """
    made, limit = build(
        env,
        env_kwargs=env_kwargs,
        frame_stack=frame_stack,
        atari=atari,
        render_mode=render_mode,
        max_episode_steps=max_episode_steps,
    )
    return made if limit is None else gymnasium.wrappers.TimeLimit(made, limit)


def build(
    env: str,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    frame_stack: int = 0,
    atari: bool | None = None,
    render_mode: str | None = None,
    max_episode_steps: int | None = None,
    small_images: bool = False,
) -> tuple[Env, int | None]:
    """Return the environment without a time limit, and the limit in steps (None: none)."""
    made, limit = as_made(env, env_kwargs=env_kwargs, atari=atari, render_mode=render_mode)
    is_masked = mask_to_info(made) is not made or (not is_atari(env) and offers_masks(made))
    made = as_shown(
        env, made, is_masked, frame_stack=frame_stack, atari=atari, small_images=small_images
    )
    limits = [steps for steps in (limit, max_episode_steps) if steps is not None]
    return made, min(limits, default=None)


def as_made(
    env: str,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    atari: bool | None = None,
    render_mode: str | None = None,
) -> tuple[Env, int | None]:
    """Return the environment as it was written, Atari games preprocessed, and its limit in steps.

    Raises:
        UserError: as `make_env`, but for observations.
    """
    kwargs, limit = split_limit(env, env_kwargs)
    wrappers = take_wrappers(kwargs)
    if render_mode is not None:
        kwargs["render_mode"] = render_mode
    if is_own(env):
        made = _make_own(env, kwargs)
        _check_env(env, made)
    else:
        spec = find_spec(env)
        made = _make_registered(spec, is_atari(env) if atari is None else atari, kwargs)
        limit = limit or spec.max_episode_steps
    made = wrapped(made, wrappers)
    _check_action_space(env, made.action_space)
    return made, limit


def as_shown(
    env: str,
    made: Env,
    is_masked: bool,
    *,
    frame_stack: int = 0,
    atari: bool | None = None,
    small_images: bool = False,
) -> Env:
    """Return an environment that gives the observations of ``made`` as agents see them.

    Args:
        env: its name
        made: as `as_made` gives it
        is_masked: whether it offers action masks
        frame_stack, atari, small_images: as in `build`

    Raises:
        UserError: the observations can't be shown.
    """
    unmasked = mask_to_info(made)
    frames = frame_stack_of(env, frame_stack, atari)
    made = _with_layout(env, unmasked, frames, small_images)
    if is_masked:
        made = Masked(env, made, as_model_input(made.observation_space))
    return made


def split_limit(
    env: str, env_kwargs: Mapping[str, Any] | None
) -> tuple[dict[str, Any], int | None]:
    """Return the constructor's arguments, and ``max_episode_steps`` among them, as gymnasium does.

    A constructor of the user's own that knows it gets it, too.

    Raises:
        UserError: it is no number of steps.
    """
    kwargs = dict(env_kwargs or {})
    limit = kwargs.get("max_episode_steps")
    if limit is None:
        return kwargs, None
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise UserError(
            f"environment {env!r}: max_episode_steps must be a whole number from 1, not {limit!r}"
        )
    if not (is_own(env) and _takes(factory(env), "max_episode_steps")):
        del kwargs["max_episode_steps"]
    return kwargs, limit


def _takes(made: Callable[..., Any], name: str) -> bool:
    parameters = inspect.signature(made).parameters
    kinds = [parameter.kind for parameter in parameters.values()]
    return name in parameters or inspect.Parameter.VAR_KEYWORD in kinds


def check_env_name(env: str) -> None:
    """Raise `UserError` when there is no such id (with the close match) or class."""
    if is_own(env):
        factory(env)
    else:
        find_spec(env)


def is_own(env: str) -> bool:
    """Tell whether ``env`` is ``module:Class`` or ``unity:FILE`` rather than a gymnasium id."""
    # `module:Name-v0` is gymnasium's own syntax: import the module, then look the id up.
    return env.startswith(UNITY) or (":" in env and not re.search(r"-v\d+$", env))


def factory(env: str) -> Callable[..., Any]:
    """Return what makes an environment that is not of gymnasium's registry.

    Raises:
        UserError: as `rltune.agents.user_code.factory`
    """
    if env.startswith(UNITY):
        return partial(Unity, env.removeprefix(UNITY))
    return own_factory(env)


def is_atari(env: str) -> bool:
    """Tell whether ``env`` is an Atari game of ale-py."""
    return not is_own(env) and str(find_spec(env).entry_point).startswith("ale_py")


def frame_stack_of(env: str, frame_stack: int, atari: bool | None) -> int:
    """Return the number of frames in an observation: 4 for preprocessed Atari unless asked."""
    if frame_stack == 0 and atari is not False and is_atari(env):
        return 4
    return frame_stack


# ---------------------------------------------------------------------------------------- names


def find_spec(env: str) -> gymnasium.envs.registration.EnvSpec:
    """Return the registered specification of a gymnasium id, or raise `UserError`."""
    module, _, env_id = env.rpartition(":")
    if module:
        import_module(module, f"environment {env!r}")
    if env_id not in gymnasium.registry:
        _register_extras()
    if env_id not in gymnasium.registry:
        raise _unknown_id(env_id)
    return gymnasium.registry[env_id]


def _register_extras() -> None:
    from rltune.agents.envs import pybullet

    with contextlib.suppress(ImportError):
        gymnasium.register_envs(importlib.import_module("ale_py"))
    with contextlib.suppress(ImportError):
        pybullet.register()


def _unknown_id(env_id: str) -> UserError:
    if env_id.startswith("ALE/") and "ALE/Pong-v5" not in gymnasium.registry:
        return UserError(
            f'environment {env_id!r} needs the Atari games: pip install "rltune[atari]"'
        )
    if "BulletEnv" in env_id and "MinitaurBulletEnv-v0" not in gymnasium.registry:
        return UserError(f'environment {env_id!r} needs PyBullet: pip install "rltune[bullet]"')
    name = _unversioned(env_id)
    newest = _newest()
    if name in newest:
        wrong = "needs a version" if name == env_id else "does not exist in this version"
        return UserError(f"environment {env_id!r} {wrong}; write {newest[name]!r}")
    names = {known.lower(): known for known in newest}
    close = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f"did you mean {newest[names[close[0]]]!r}?" if close else "no known id is close to it."
    return UserError(
        f"unknown environment {env_id!r}; {hint} Your own is written 'module:Class', one that a "
        f"package registers 'package:{env_id}'."
    )


def _unversioned(env_id: str) -> str:
    return re.sub(r"-v\d+$", "", env_id)


def _newest() -> dict[str, str]:
    """Return the newest id of every registered environment by its name without a version."""
    specs = sorted(gymnasium.registry.values(), key=lambda spec: spec.version or 0)
    return {_unversioned(spec.id): spec.id for spec in specs}


# -------------------------------------------------------------------------------------- making


def _make_own(env: str, kwargs: dict[str, Any]) -> Env:
    made = factory(env)
    try:
        return cast(Env, made(**kwargs))
    except TypeError:
        _check_arguments(env, made, kwargs)
        raise  # the constructor's own


def _check_arguments(env: str, made: Callable[..., Any], kwargs: dict[str, Any]) -> None:
    try:
        inspect.signature(made).bind(**kwargs)
    except TypeError as error:
        if "render_mode" in kwargs and not _takes(made, "render_mode"):
            raise UserError(
                f"environment {env!r} can't be shown: its constructor takes no render_mode, "
                "as gymnasium's environments do"
            ) from error
        raise UserError(f"environment {env!r} does not take these arguments: {error}") from error


def _make_registered(
    spec: gymnasium.envs.registration.EnvSpec, atari: bool, kwargs: dict[str, Any]
) -> Env:
    if atari:
        from rltune.agents.envs.atari import SCREEN_SIZE, preprocess

        if "frameskip" in kwargs:
            raise UserError(f"environment {spec.id!r}: preprocessing fixes the frameskip at 4")
        # Greyscale spares making a colour picture of every frame that is skipped.
        kwargs = {**spec.kwargs, "obs_type": "grayscale", **kwargs, "frameskip": 1}
        sticky = kwargs["repeat_action_probability"]
        kwargs["repeat_action_probability"] = 0.0
        size = kwargs.pop("screen_size", SCREEN_SIZE)
    unchecked = copy.copy(spec)
    unchecked.order_enforce = False
    try:
        # `Envs` steps in order and counts the limit itself: the wrappers cost 30 % of CartPole.
        made: Env = gymnasium.make(
            unchecked, max_episode_steps=-1, disable_env_checker=True, **kwargs
        )
        return preprocess(made, sticky, size) if atari else made
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        raise _missing(spec, error) from error
    except gymnasium.error.Error as error:
        raise UserError(f"environment {spec.id!r} can't be made: {error}") from error
    except TypeError as error:
        if "unexpected keyword argument" in str(error):
            raise UserError(f"environment {spec.id!r}: {str(error).splitlines()[0]}") from error
        raise


def _missing(spec: gymnasium.envs.registration.EnvSpec, error: Exception) -> UserError:
    extras = [e for package, e in EXTRAS.items() if str(spec.entry_point).startswith(package)]
    hint = f': pip install "rltune[{extras[0]}]"' if extras else ""
    return UserError(f"environment {spec.id!r} needs a package that is missing ({error}){hint}")


def _check_env(env: str, made: object) -> None:
    check_single_agent(env, made)
    for attribute in ("reset", "step", "observation_space", "action_space"):
        if not hasattr(made, attribute):
            raise UserError(
                f"environment {env!r} gives a {type(made).__name__} without {attribute!r}; "
                "give a gymnasium.Env"
            )
    try:
        takes = inspect.signature(cast(Any, made).reset).parameters.values()
    except (TypeError, ValueError):  # not written in Python
        return
    if not any(p.name == "seed" or p.kind is p.VAR_KEYWORD for p in takes):
        raise UserError(f"environment {env!r}: reset() must take seed and options, both by name")


# -------------------------------------------------------------------------------------- spaces


def _check_action_space(env: str, space: spaces.Space[Any]) -> None:
    if isinstance(space, spaces.Box):
        if not np.issubdtype(space.dtype, np.floating):
            raise UserError(
                f"environment {env!r}: a Box action space of {space.dtype} is not supported; "
                "use float32, or MultiDiscrete for whole numbers"
            )
    elif isinstance(space, spaces.MultiDiscrete):
        if space.nvec.ndim != 1:
            raise UserError(f"environment {env!r}: MultiDiscrete actions must be one row of counts")
    elif not isinstance(space, spaces.Discrete | spaces.MultiBinary):
        raise UserError(
            f"environment {env!r}: actions in a {type(space).__name__} space are not supported; "
            "use Box, Discrete, MultiDiscrete or MultiBinary"
        )


def _with_layout(env: str, made: Env, frame_stack: int, small_images: bool) -> Env:
    """Flatten, stack frames, and bring the channels of an image to the front, where needed."""
    if not isinstance(made.observation_space, spaces.Box):
        if unfit := _unfit(made.observation_space):
            raise UserError(
                f"environment {env!r}: observations{unfit} can't be made a vector; name a function "
                "of yours, 'module:function', that returns it in a wrapper which leaves that out"
            )
        if (mixed := with_images(made, frame_stack, small_images)) is not None:
            return mixed
        made = gymnasium.wrappers.FlattenObservation(made)
    frame = cast("tuple[int, ...]", made.observation_space.shape)
    if frame_stack > 1:
        made = FrameStack(made, frame_stack)
    elif len(frame) == 1:
        return made
    return ImageLayout(made, image_layout(frame, made.observation_space.dtype, small_images))


def _unfit(space: spaces.Space[Any], where: str = "") -> str:
    """Return the place of the first part of a space without a fixed length, or ""."""
    parts: Iterable[tuple[Any, spaces.Space[Any]]] = ()
    if isinstance(space, spaces.Dict):
        parts = space.spaces.items()
    elif isinstance(space, spaces.Tuple):
        parts = enumerate(space.spaces)
    for name, part in parts:
        if unfit := _unfit(part, f"{where}[{name!r}]"):
            return unfit
    with contextlib.suppress(NotImplementedError):  # a space that gymnasium does not know
        if space.is_np_flattenable:
            return ""
    return f"{where} (a {type(space).__name__})"
