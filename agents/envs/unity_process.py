"""The process beside `rltune.agents.envs.unity` that runs a Unity build through mlagents_envs.

mlagents_envs needs a protobuf that Ray can't work with, so it has an interpreter of its own, which
runs this file as a script. It needs Python 3.8, NumPy and mlagents_envs, and nothing of rltune.

The two sides talk through pipes. A message is a header in JSON, with its length before it, and then
arrays as they lie in memory: numbers and texts, and nothing that would be executed.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import struct
import sys
from typing import Any, BinaryIO, Dict, List, Sequence, Tuple  # noqa: UP035

import numpy as np

Message = Tuple[Dict[str, Any], List[Any]]  # noqa: UP006  # a header, and its arrays

DTYPES = ("|b1", "|u1", "<i4", "<f4")
PORTS = 20  # that are tried
PATIENCE = 1000  # simulation steps without a decision of the agent
# Environment parameters are float32, which has all whole numbers up to this one.
LARGEST_SEED = 2**24
TRANSLATIONAL_EQUIVARIANCE = 2  # of a sensor's dimension: a convolution suits it


class RefusedError(Exception):
    """What the user has to change, as the rest of a sentence that begins with the build's name."""


class MissingError(Exception):
    """mlagents_envs can't be imported; the text says why."""


# ------------------------------------------------------------------------------------- messages


def send(stream: BinaryIO, header: dict[str, Any], arrays: Sequence[Any] = ()) -> None:
    """Write a message."""
    described = [(array.dtype.str, array.shape) for array in arrays]
    text = json.dumps({**header, "arrays": described}).encode()
    parts = [struct.pack("<I", len(text)), text, *(array.tobytes() for array in arrays)]
    stream.write(b"".join(parts))
    stream.flush()


def receive(stream: BinaryIO) -> Message:
    """Read a message.

    Raises:
        EOFError: the other side has gone
        ValueError: an array is of no known type
    """
    (size,) = struct.unpack("<I", _read(stream, 4))
    header = json.loads(_read(stream, size))
    arrays = []
    for dtype, shape in header.pop("arrays"):
        if dtype not in DTYPES:
            raise ValueError(f"an array of {dtype!r}")
        n_bytes = np.dtype(dtype).itemsize * int(np.prod(shape))
        arrays.append(np.frombuffer(_read(stream, n_bytes), dtype).reshape(shape).copy())
    return header, arrays


def _read(stream: BinaryIO, n_bytes: int) -> bytes:
    data = stream.read(n_bytes)
    if len(data) < n_bytes:
        raise EOFError
    return data


# ---------------------------------------------------------------------------------------- Unity


class Scene:
    """A running build, in which one agent is acted for.

    Args:
        settings: ``file``, ``seed``, ``behavior`` ("": the only one), ``no_graphics``,
            ``time_scale``, ``as_fast_as_possible``, ``timeout`` (seconds), ``parameters`` (name ->
            number) and ``images`` (whether sensors of three dimensions are), as in `unity.Unity`

    Raises:
        MissingError: there is no mlagents_envs
        RefusedError: there is no such behavior, or no single one
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self._env, self._parameters, self._action_tuple = _launch(settings)
        self._agent: int | None = None  # None: its episode has ended
        try:
            self._behavior = self._find_behavior(settings["behavior"])
        except BaseException:
            self.close()
            raise
        spec = self._env.behavior_specs[self._behavior]
        self._action_spec = spec.action_spec
        self._sensors = list(spec.observation_specs)
        self._layouts = [
            _layout(sensor) if settings["images"] else None for sensor in self._sensors
        ]

    def _find_behavior(self, wanted: str) -> str:
        for _ in range(PATIENCE):
            if self._env.behavior_specs:
                break
            self._env.step()
        known = list(self._env.behavior_specs)
        # Unity appends the team: "Walker?team=0".
        found = [n for n in known if wanted in ("", n, n.partition("?")[0])]
        if len(found) == 1:
            return str(found[0])
        names = ", ".join(name.partition("?")[0] for name in known)
        if not known:
            raise RefusedError("has no behavior whose Behavior Type is Default")
        if wanted:
            raise RefusedError(f"has no behavior {wanted!r}; choose one of: {names}")
        raise RefusedError(f"has several behaviors; name the one to train, behavior: {names}")

    def describe(self) -> dict[str, Any]:
        """Return what the agent sees and does, and begin an episode.

        Keys: behavior, continuous (how many actions), branches (values of each discrete one), and
        sensors: name, shape as it is sent, and is_image (uint8, channels first).
        """
        self.reset(None)
        sensors = []
        for i, sensor in enumerate(self._sensors):
            shape, layout = [int(n) for n in sensor.shape], self._layouts[i]
            if layout == "channels_last":
                shape = [shape[2], *shape[:2]]
            sensors.append({"name": sensor.name, "shape": shape, "is_image": bool(layout)})
        return {
            "behavior": self._behavior,
            "sensors": sensors,
            "continuous": int(self._action_spec.continuous_size),
            "branches": [int(n) for n in self._action_spec.discrete_branches],
        }

    def reset(self, seed: int | None) -> Message:
        """Begin an episode of the whole scene; a seed becomes the parameter "seed"."""
        if seed is not None:
            self._parameters.set_float_parameter("seed", float(seed % LARGEST_SEED))
        self._env.reset()
        for _ in range(PATIENCE):
            decisions, _terminals = self._env.get_steps(self._behavior)
            if len(decisions):
                self._check_alone(len(decisions))
                self._agent = int(decisions.agent_id[0])
                return self._message(decisions)
            self._env.step()
        raise RefusedError(f"has no agent of behavior {self._behavior!r} that asks for decisions")

    def step(self, action: Any) -> Message:
        """Take an action (n,) and go on to the agent's next decision, or its end."""
        if self._agent is None:  # a recorded episode may be longer than the one it is replayed in
            return self.reset(None)
        kind = "continuous" if self._action_spec.continuous_size else "discrete"
        self._env.set_actions(self._behavior, self._action_tuple(**{kind: action[None]}))
        for _ in range(PATIENCE):
            self._env.step()
            decisions, terminals = self._env.get_steps(self._behavior)
            if len(terminals):
                self._check_alone(len(terminals), int(terminals.agent_id[0]))
                self._agent = None
                return self._message(terminals)
            if len(decisions):
                self._check_alone(len(decisions), int(decisions.agent_id[0]))
                return self._message(decisions)
        raise RefusedError(f"has no agent of behavior {self._behavior!r} that asks for decisions")

    def _check_alone(self, n_agents: int, agent: int | None = None) -> None:
        if n_agents > 1 or agent not in (None, self._agent):
            raise RefusedError(
                f"has several agents of behavior {self._behavior!r}, and rltune trains one: leave "
                "one of them in the scene (ML-Agents' examples hold many copies of one area)"
            )

    def _message(self, steps: Any) -> Message:
        """Return what the first agent of decision steps or terminal steps saw and got."""
        arrays = [self._observation(i, steps.obs[i][0]) for i in range(len(self._sensors))]
        mask = getattr(steps, "action_mask", None)
        if mask is not None:  # True is forbidden here, and allowed in what is sent
            arrays.append(~np.concatenate([branch[0] for branch in mask]).astype(np.bool_))
        interrupted = getattr(steps, "interrupted", None)
        header = {
            "reward": float(steps.reward[0]) + float(steps.group_reward[0]),
            "terminated": interrupted is not None and not interrupted[0],
            "truncated": interrupted is not None and bool(interrupted[0]),
        }
        return header, arrays

    def _observation(self, i: int, values: Any) -> Any:
        layout = self._layouts[i]
        if layout is None:
            return np.asarray(values, np.float32)
        if values.min() < 0 or values.max() > 1:
            raise RefusedError(
                f"gives values outside of 0 to 1 in the image of sensor {self._sensors[i].name!r}; "
                "images: false takes its numbers as they are"
            )
        image = np.rint(values * 255).astype(np.uint8)
        return np.moveaxis(image, -1, 0) if layout == "channels_last" else image

    def close(self) -> None:
        """End the build."""
        self._env.close()


def _layout(sensor: Any) -> str | None:
    """Return "channels_first" (from mlagents_envs 1.0 on) or "channels_last"; None: no image."""
    if len(sensor.shape) != 3:
        return None
    equivariant = [bool(int(n) & TRANSLATIONAL_EQUIVARIANCE) for n in sensor.dimension_property]
    if equivariant == [False, True, True]:
        return "channels_first"
    if equivariant == [True, True, False]:
        return "channels_last"
    return "channels_first" if sensor.shape[0] < sensor.shape[2] else "channels_last"


def _launch(settings: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return a UnityEnvironment, its channel of parameters, and the class of actions."""
    try:
        from mlagents_envs.base_env import ActionTuple
        from mlagents_envs.environment import UnityEnvironment
        from mlagents_envs.exception import UnityWorkerInUseException
        from mlagents_envs.side_channel.engine_configuration_channel import (
            EngineConfigurationChannel,
        )
        from mlagents_envs.side_channel.environment_parameters_channel import (
            EnvironmentParametersChannel,
        )
    except Exception as error:  # with a wrong protobuf, a TypeError
        raise MissingError((str(error).splitlines() or [type(error).__name__])[0]) from error
    logging.disable(logging.INFO)
    engine, parameters = EngineConfigurationChannel(), EnvironmentParametersChannel()
    engine.set_configuration_parameters(time_scale=settings["time_scale"])
    if settings["as_fast_as_possible"]:  # as mlagents-learn sets it: frames are of equal time
        engine.set_configuration_parameters(target_frame_rate=-1, capture_frame_rate=60)
    for name, value in settings["parameters"].items():
        parameters.set_float_parameter(name, value)
    for tried in range(PORTS):
        try:
            env = UnityEnvironment(
                file_name=settings["file"],
                worker_id=0,
                base_port=_free_port(),
                seed=settings["seed"],
                no_graphics=settings["no_graphics"],
                timeout_wait=settings["timeout"],
                side_channels=[engine, parameters],
            )
            return env, parameters, ActionTuple
        except UnityWorkerInUseException:  # another process was faster
            if tried == PORTS - 1:
                raise
    raise AssertionError


def _free_port() -> int:
    """Return a port of this machine that nothing uses now: the system chooses one at random."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# --------------------------------------------------------------------------------- the process


def main() -> None:
    """Answer messages until the other side closes the pipe, or goes away."""
    # The folder of this file has modules with everyday names.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [place for place in sys.path if os.path.abspath(place) != here]
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what others print must not enter the pipe
    scene: Scene | None = None
    try:
        while True:
            header, arrays = receive(requests)
            if header["do"] == "close":
                break
            try:
                if header["do"] == "launch":
                    scene = Scene(header)
                    reply: Message = ({}, [])
                else:
                    assert scene is not None
                    reply = _answer(scene, header, arrays)
            except RefusedError as error:
                reply = {"refused": str(error)}, []
            except MissingError as error:
                reply = {"missing": str(error)}, []
            except Exception as error:
                said = (str(error).splitlines() or [""])[0]
                reply = {"failed": f"{type(error).__name__}: {said}"}, []
            send(replies, *reply)
    except (EOFError, BrokenPipeError):
        pass
    finally:
        if scene is not None:
            scene.close()


def _answer(scene: Scene, header: dict[str, Any], arrays: list[Any]) -> Message:
    if header["do"] == "describe":
        return scene.describe(), []
    if header["do"] == "reset":
        return scene.reset(header["seed"])
    return scene.step(arrays[0])


if __name__ == "__main__":
    main()
