"""Unity builds as environments, through ML-Agents' mlagents_envs in a process of its own.

mlagents_envs needs a protobuf that Ray can't work with. So each environment starts an interpreter
that has it (`rltune.agents.envs.unity_process`), which starts the build; they talk through pipes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from rltune.agents.envs import unity_process
from rltune.agents.envs.masks import KEY
from rltune.agents.errors import UserError
from rltune.agents.user_code import run_directory_of

Array = npt.NDArray[Any]
PATIENCE = 10  # seconds for a process whose pipe is closed to end
SUFFIXES = ("", ".x86_64", ".x86", ".app", ".exe")
INSTALL = 'pip install mlagents_envs "protobuf<3.21"'


class Unity(gymnasium.Env[Any, Any]):
    """A Unity build with ML-Agents in it, in which one agent of one behavior acts.

    One sensor's observation is a Box, several are a Dict by their names. Images are uint8, channels
    first. Actions are a Box from -1 to 1, Discrete, or MultiDiscrete for several branches. With
    discrete actions, the observation stands in a Dict beside the action mask.

    The build starts with the first reset, whose seed it gets; Unity takes none later. Each reset
    with a seed hands it over as the environment parameter "seed", for scenes that read it. What the
    agent sees and does is asked once in a Python process, of a build that is closed again.

    Args:
        file: the build
        python: the interpreter that has mlagents_envs; "": this one
        behavior: the name of the behavior; "": the only one
        time_scale: how many times as fast as real time physics runs
        no_graphics: whether the build draws nothing; None: where no sensor is an image
        parameters: ML-Agents' environment parameters, name -> number
        images: whether sensors of three dimensions are images; else they are numbers
        action_masks: whether masks are handed over; agents are faster without
        timeout: seconds in which the build has to answer
        render_mode: "human" for the build's window in real time, "rgb_array" for the picture of the
            first sensor that is an image

    Raises:
        UserError: no such build, interpreter or behavior, several agents, actions of both kinds.
    """

    metadata: dict[str, Any] = {"render_modes": ["human", "rgb_array"]}  # noqa: RUF012

    def __init__(
        self,
        file: str,
        *,
        python: str = "",
        behavior: str = "",
        time_scale: float = 20.0,
        no_graphics: bool | None = None,
        parameters: Mapping[str, float] | None = None,
        images: bool = True,
        action_masks: bool = True,
        timeout: int = 60,
        render_mode: str | None = None,
    ) -> None:
        self.render_mode = render_mode
        self._name = f"Unity environment {file!r}"
        self._python = _interpreter(self._name, python)
        self._process: _Process | None = None
        self._picture: Array | None = None
        shown = render_mode == "human"
        self._settings: dict[str, Any] = {
            "file": _build(self._name, file),
            "behavior": behavior,
            "no_graphics": no_graphics is not False,
            "time_scale": 1.0 if shown else _positive(self._name, "time_scale", time_scale),
            "as_fast_as_possible": not shown,
            "parameters": _numbers(self._name, parameters or {}),
            "images": images,
            "timeout": _positive(self._name, "timeout", timeout),
            "seed": 0,
        }
        changed = Path(self._settings["file"]).stat().st_mtime
        found = _described(self._name, self._python, json.dumps(self._settings), changed)
        self._sensors = cast("list[dict[str, Any]]", found["sensors"])
        if shown or no_graphics is None:
            draws = any(sensor["is_image"] for sensor in self._sensors)
            self._settings["no_graphics"] = not (shown or draws)
        self.action_space = _action_space(self._name, found)
        self._n_mask = sum(found["branches"])
        self._keys = _unique([sensor["name"] for sensor in self._sensors])
        self._heeds_masks = bool(action_masks and self._n_mask)
        self.observation_space = self._observation_space()

    def _observation_space(self) -> spaces.Space[Any]:
        boxes = [_box(sensor) for sensor in self._sensors]
        inner: spaces.Space[Any] = boxes[0]
        if len(boxes) > 1:
            inner = spaces.Dict(dict(zip(self._keys, boxes, strict=True)))
        if not self._heeds_masks:
            return inner
        return spaces.Dict({"observation": inner, KEY: spaces.MultiBinary(self._n_mask)})

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; the first one starts the build."""
        super().reset(seed=seed)
        if self._process is None:
            first = int(self.np_random.integers(2**31)) if seed is None else seed % 2**31
            self._process = _Process(self._name, self._python)
            self._process.ask({**self._settings, "do": "launch", "seed": first})
        _, arrays = self._process.ask({"do": "reset", "seed": seed})
        return self._observation(arrays), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take an action; ``truncated`` is what Unity calls interrupted, such as by Max Step."""
        assert self._process is not None, "reset() comes first"
        dtype = np.float32 if isinstance(self.action_space, spaces.Box) else np.int32
        header, arrays = self._process.ask({"do": "step"}, [np.array(action, dtype).reshape(-1)])
        ended = header["terminated"], header["truncated"]
        return self._observation(arrays), header["reward"], *ended, {}

    def _observation(self, arrays: list[Array]) -> Any:
        seen = arrays[: len(self._sensors)]
        if self.render_mode == "rgb_array":
            images = (i for i, sensor in enumerate(self._sensors) if sensor["is_image"])
            self._picture = next((seen[i] for i in images), None)
        inner: Any = seen[0] if len(seen) == 1 else dict(zip(self._keys, seen, strict=True))
        if not self._heeds_masks:
            return inner
        allowed = arrays[len(seen)] if len(arrays) > len(seen) else np.ones(self._n_mask)
        return {"observation": inner, KEY: allowed.astype(np.int8)}

    def render(self) -> Any:
        """Return the first image that the agent sees, (height, width, 3); None: it sees none."""
        if self._picture is None:
            return None
        channels = self._picture[:3] if len(self._picture) >= 3 else self._picture[[0, 0, 0]]
        return np.moveaxis(channels, 0, -1)

    def close(self) -> None:
        """End the build and its process."""
        if self._process is not None:
            self._process.close(self._settings["timeout"])
            self._process = None


# ------------------------------------------------------------------------------------- process


class _Process:
    """An interpreter that runs a build.

    It ends with the pipe: also where this process is killed, or forgets the environment.
    """

    def __init__(self, name: str, python: str) -> None:
        self._name = name
        self._python = python
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        # Another Python's packages must not get in, and Ctrl-C is for this process.
        environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        # With Python 3.8 and 3.9, a build would abort before it begins, most of the time.
        environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
        self._popen = subprocess.Popen(
            [python, unity_process.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env=environ,
            start_new_session=True,
        )
        self._stdin, self._stdout = cast("tuple[Any, Any]", (self._popen.stdin, self._popen.stdout))

    def ask(self, header: dict[str, Any], arrays: Sequence[Array] = ()) -> tuple[Any, list[Array]]:
        """Send a message and return the answer.

        Raises:
            UserError: the other side refuses; or it has failed, and a new one may do better
                (then its cause is an OSError).
        """
        try:
            unity_process.send(self._stdin, header, arrays)
            reply, values = unity_process.receive(self._stdout)
        except (EOFError, OSError, ValueError):
            reply, values = {"failed": self._last_words()}, []
        if text := reply.get("refused"):
            raise UserError(f"{self._name} {text}")
        if text := reply.get("missing"):
            raise UserError(
                f"{self._name} needs mlagents_envs, which {self._python} can't import ({text}); "
                f"install it for a Python 3.8 to 3.11 of its own, {INSTALL}, and name that: "
                "--env-kwargs '{python: FOLDER/bin/python}'"
            )
        if text := reply.get("failed"):
            raise UserError(f"{self._name} has failed: {text}") from ConnectionError(text)
        return reply, values

    def _last_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(PATIENCE)
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        ended = f"its process ended with code {self._popen.returncode}"
        return f"{ended}, and said last: {said}" if said else ended

    def close(self, timeout: float) -> None:
        """Let it end the build, which may take ``timeout`` seconds, and wait for it."""
        # Closing the pipe alone may not be enough: a process forked from this one has it, too.
        with contextlib.suppress(OSError, ValueError):
            unity_process.send(self._stdin, {"do": "close"})
        for stream in (self._stdin, self._stdout):
            with contextlib.suppress(OSError):
                stream.close()
        try:
            self._popen.wait(timeout + PATIENCE)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._said.close()


@lru_cache(maxsize=64)
def _described(name: str, python: str, settings: str, changed: float) -> dict[str, Any]:
    """Return what a build's agent sees and does, as `unity_process.Scene.describe` does.

    Args:
        name: begins errors
        python: the interpreter
        settings: as JSON
        changed: when the build was written
    """
    known = json.loads(settings)
    process = _Process(name, python)
    try:
        process.ask({**known, "do": "launch"})
        return cast("dict[str, Any]", process.ask({"do": "describe"})[0])
    finally:
        process.close(known["timeout"])


# ------------------------------------------------------------------------------------ arguments


def _build(name: str, file: str) -> str:
    """Return the path of a build."""
    for suffix in SUFFIXES:
        place = _place(file + suffix)
        if file and place is not None and not (suffix == "" and place.is_dir() and _more(place)):
            _check_origin(name, place)
            return str(place)
    raise UserError(
        f"{name}: there is no such build; write its path, with or without .x86_64, .app or .exe"
    )


def _more(folder: Path) -> bool:
    """Tell whether a build of a folder's name stands beside the folder."""
    return any(folder.with_name(folder.name + suffix).exists() for suffix in SUFFIXES[1:])


def _interpreter(name: str, python: str) -> str:
    """Return the path of an interpreter, links not followed: they lead out of an environment."""
    if not python:
        return sys.executable
    if not re.fullmatch(r"(python|pypy)[\d.]*(\.exe)?", os.path.basename(python)):
        raise UserError(f"{name}: {python!r} is no interpreter; write python: FOLDER/bin/python")
    place = _place(python) if os.path.dirname(python) else shutil.which(python)
    if place is None:
        raise UserError(f"{name}: there is no interpreter {python!r}")
    _check_origin(name, Path(place))
    return str(place)


def _place(path: str) -> Path | None:
    """Return the absolute path of what exists; workers look in the user's folder, too."""
    for folder in ("", *sys.path):
        place = Path(os.path.abspath(os.path.join(folder, os.path.expanduser(path))))
        if place.exists():
            return place
    return None


def _check_origin(name: str, place: Path) -> None:
    # A run may come from anywhere, and names what is started here.
    if run_directory_of(place) or run_directory_of(place.resolve()):
        raise UserError(
            f"{name}: {place} lies in a run directory, from where nothing is started; copy it "
            "elsewhere if you trust it"
        )


def _positive(name: str, argument: str, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise UserError(f"{name}: {argument} must be a number above 0, not {value!r}")
    return value


def _numbers(name: str, parameters: Any) -> dict[str, float]:
    values = parameters.values() if isinstance(parameters, Mapping) else [None]
    if not all(isinstance(value, int | float) for value in values):
        raise UserError(
            f"{name}: parameters are names with numbers, such as {{gravity: 9.81}}, not "
            f"{parameters!r}"
        )
    return {str(key): float(value) for key, value in parameters.items()}


# --------------------------------------------------------------------------------------- spaces


def _action_space(name: str, found: Mapping[str, Any]) -> spaces.Space[Any]:
    n_continuous, branches = found["continuous"], found["branches"]
    if bool(n_continuous) == bool(branches):
        has = "both continuous and discrete actions" if branches else "no actions"
        raise UserError(
            f"{name}: behavior {found['behavior']!r} has {has}; give it actions of one kind"
        )
    if n_continuous:
        return spaces.Box(-1.0, 1.0, (n_continuous,), np.float32)
    return spaces.Discrete(branches[0]) if len(branches) == 1 else spaces.MultiDiscrete(branches)


def _box(sensor: Mapping[str, Any]) -> spaces.Box:
    if sensor["is_image"]:
        return spaces.Box(0, 255, tuple(sensor["shape"]), np.uint8)
    return spaces.Box(-np.inf, np.inf, tuple(sensor["shape"]), np.float32)


def _unique(names: list[str]) -> list[str]:
    """Return names with numbers behind those that come again."""
    return [f"{n} {names[:i].count(n) + 1}" if n in names[:i] else n for i, n in enumerate(names)]
