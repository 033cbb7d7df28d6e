"""PyBullet environments (``MinitaurBulletEnv-v0`` and its relatives) as gymnasium's.

pybullet_envs was written for the old ``gym`` package, of which it needs next to nothing. While it
is imported, small stand-ins take the places of ``gym`` and ``pkg_resources``; then they are gone
again, so that no other library takes them for the real ones.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import random
import sys
import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import gymnasium
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# They want mpi4py, want a protobuf of long ago, or share one simulation among all environments.
UNUSABLE = ("deep_mimic", "pybullet_envs.minitaur.", "Kuka", "Racecar")


def register() -> None:
    """Add PyBullet's environments to gymnasium's registry.

    Raises:
        ImportError: there is no PyBullet.
    """
    with _old_gym():
        # Its import registers them: with our stand-in, and the first time only.
        importlib.import_module("pybullet_envs")


def _register(id: str, entry_point: str, **options: Any) -> None:
    if not any(part in entry_point for part in UNUSABLE):
        gymnasium.register(
            id,
            "rltune.agents.envs.pybullet:BulletEnv",
            kwargs={"entry_point": entry_point},
            **options,
        )


class BulletEnv(gymnasium.Env[Array, Array]):
    """An environment of pybullet_envs, which draws from generators of its own.

    A reset with a seed begins the same episode whatever was played before. Time limits are left to
    gymnasium's wrapper: ``terminated`` is what the environment itself calls done.

    Args:
        entry_point: ``module:Class`` below pybullet_envs
        render_mode: "human" for PyBullet's window, "rgb_array" for pictures
        kwargs: handed to the class
    """

    metadata: dict[str, Any] = {"render_modes": ["human", "rgb_array"]}  # noqa: RUF012

    def __init__(self, entry_point: str, render_mode: str | None = None, **kwargs: Any) -> None:
        module, _, name = entry_point.partition(":")
        self.render_mode = render_mode
        self._random_state = random.getstate()
        self._numpy_bits = np.random.MT19937()
        with self._own_randomness(), _quiet():
            with _old_gym():
                made = getattr(importlib.import_module(module), name)
            if render_mode == "human":
                kwargs["render"] = True
            self._env: Any = made(**kwargs)
        # Only these wipe their simulation in a reset; in the others, something of it stays.
        wipes = ".bullet:" in entry_point
        self._make_anew = None if wipes or render_mode == "human" else partial(made, **kwargs)
        frames_per_second = self._env.metadata.get("video.frames_per_second", 50)
        self.metadata = {**self.metadata, "render_fps": frames_per_second}
        self.observation_space = self._env.observation_space
        self.action_space = self._env.action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begin an episode."""
        if seed is not None:
            self._random_state = random.Random(seed).getstate()
            self._numpy_bits = np.random.MT19937(seed)
        with self._own_randomness(), _quiet():
            if seed is not None:
                if self._make_anew is not None:
                    self._env.close()
                    self._env = self._make_anew()
                self._env.seed(seed)
            return self._cast(self._env.reset()), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Take an action; ``truncated`` is always False."""
        with _numpy_random(self._numpy_bits):
            obs, reward, done, info = self._env.step(action)
        return self._cast(obs), float(reward), bool(done), False, info

    def _cast(self, obs: Any) -> Array:
        return np.asarray(obs, self.observation_space.dtype)

    def render(self) -> Any:
        """Return a picture (height, width, 3), or None with "human"."""
        if self.render_mode != "rgb_array":
            return None
        return np.asarray(self._env.render(mode="rgb_array"), np.uint8)

    def close(self) -> None:
        """Close the simulation."""
        self._env.close()

    @contextlib.contextmanager
    def _own_randomness(self) -> Iterator[None]:
        """Give Python's and numpy's global generators this environment's states for a moment.

        The randomizer of Minitaur draws its masses and frictions from both.
        """
        outside = random.getstate()
        random.setstate(self._random_state)
        try:
            with _numpy_random(self._numpy_bits):
                yield
        finally:
            self._random_state = random.getstate()
            random.setstate(outside)


@contextlib.contextmanager
def _numpy_random(bits: np.random.MT19937) -> Iterator[None]:
    # numpy's is exchanged in microseconds; Python's would take a tenth of a millisecond, and only
    # resets draw from that.
    outside = np.random.mtrand.get_bit_generator()
    np.random.mtrand.set_bit_generator(bits)
    try:
        yield
    finally:
        np.random.mtrand.set_bit_generator(outside)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Connect to new simulations only, without the words that PyBullet has for each."""
    import pybullet

    def connect_anew(mode: int, options: str = "") -> int:
        # Its client tries the shared memory first, which may be another program's simulation.
        return -1 if mode == pybullet.SHARED_MEMORY else connect(mode)

    connect = pybullet.connect
    pybullet.connect = connect_anew
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        pybullet.connect = connect


# --------------------------------------------------------------------------- what it needs of gym


class _OldEnv:
    """The old ``gym.Env``, as far as pybullet_envs uses it."""

    metadata: Mapping[str, Any] = {}

    def close(self) -> None:
        """Nothing to close."""


def _np_random(seed: int | None = None) -> tuple[np.random.RandomState, int | None]:
    return np.random.RandomState(seed), seed


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _stand_ins() -> dict[str, ModuleType]:
    seeding = SimpleNamespace(np_random=_np_random)
    registration = SimpleNamespace(
        register=_register,
        registry=SimpleNamespace(env_specs=gymnasium.registry),
        make=gymnasium.make,
        spec=gymnasium.spec,
    )
    utils = SimpleNamespace(seeding=seeding)
    envs = SimpleNamespace(registration=registration)
    gym = SimpleNamespace(
        __version__="0.21.0", Env=_OldEnv, spaces=gymnasium.spaces, utils=utils, envs=envs
    )
    modules = {
        "gym": gym,
        "gym.spaces": gymnasium.spaces,
        "gym.utils": utils,
        "gym.utils.seeding": seeding,
        "gym.envs": envs,
        "gym.envs.registration": registration,
        "pkg_resources": SimpleNamespace(parse_version=_version),
    }
    return cast("dict[str, ModuleType]", modules)


@contextlib.contextmanager
def _old_gym() -> Iterator[None]:
    """Let pybullet_envs be imported; leave ``sys.modules`` and ``sys.path`` as they were."""
    names = [name for name in sys.modules if name.split(".")[0] in ("gym", "pkg_resources")]
    outside = {name: sys.modules.pop(name) for name in names}
    stand_ins = _stand_ins()
    path = sys.path.copy()
    sys.modules.update(stand_ins)
    # Some of its modules are imported by their bare names; they put their folders in front of all.
    sys.path += [str(Path(place) / "pybullet_envs") for place in path]
    try:
        yield
    finally:
        for name in stand_ins:
            del sys.modules[name]
        sys.modules.update(outside)
        sys.path[:] = path
