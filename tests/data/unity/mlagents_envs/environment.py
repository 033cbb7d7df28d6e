"""UnityEnvironment, whose builds are JSON files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np

from .base_env import ActionSpec, BehaviorSpec, DecisionSteps, ObservationSpec, TerminalSteps
from .exception import UnityActionException, UnityWorkerInUseException

GOAL, LIMIT = 3.0, 10


class UnityEnvironment:
    """A scene in which each agent walks to x = 3 in at most 10 steps.

    The build's file holds ``behaviors``: name -> ``continuous``, ``branches``, ``sensors`` ([name,
    shape, dimension properties]), ``agents`` (1), ``masks`` (false; value t % n of the first branch
    is forbidden in step t); and ``idle`` (steps before each decision, 0), ``dies_at`` (a step),
    ``ports_in_use`` (0), ``too_bright`` (false). It writes down what is done with it in FILE.log.
    """

    def __init__(
        self,
        file_name=None,
        worker_id=0,
        base_port=None,
        seed=0,
        no_graphics=False,
        timeout_wait=60,
        additional_args=None,
        side_channels=None,
        log_folder=None,
    ):
        place = next(p for p in (file_name, f"{file_name}.x86_64") if os.path.isfile(p))
        self._log = Path(f"{place}.log")
        self._build = json.loads(Path(place).read_text())
        if self._said("in use") < self._build.get("ports_in_use", 0):
            self._say("in use", base_port)
            raise UnityWorkerInUseException(worker_id)
        print("Unity has something to say")
        self._say("launch", {"port": base_port, "seed": seed, "no_graphics": no_graphics})
        self._channels = side_channels
        self._specs, self._steps, self._actions = {}, {}, {}
        self._idle, self._id = 0, 0

    def _say(self, *what):
        with self._log.open("a") as log:
            log.write(json.dumps(what) + "\n")

    def _said(self, what):
        return self._log.read_text().count(f'["{what}"') if self._log.exists() else 0

    @property
    def behavior_specs(self):
        """Name -> `BehaviorSpec`; empty until the first message."""
        return self._specs

    def reset(self):
        """Begin an episode of all agents."""
        for channel in self._channels:
            self._say("channel", channel.taken())
        for name, behavior in self._build["behaviors"].items():
            sensors = [
                ObservationSpec(tuple(shape), tuple(properties), 0, sensor)
                for sensor, shape, properties in behavior["sensors"]
            ]
            actions = ActionSpec(behavior.get("continuous", 0), tuple(behavior.get("branches", ())))
            self._specs[name] = BehaviorSpec(sensors, actions)
        self._x = self._t = 0
        self._id += 1
        self._idle = self._build.get("idle", 0)
        self._write({} if self._idle else dict.fromkeys(self._specs, 0.0))

    def set_actions(self, behavior_name, action):
        """Take the actions of all agents that wait for one."""
        spec = self._specs[behavior_name].action_spec
        n_agents = len(self._steps[behavior_name][0])
        sizes = (n_agents, spec.continuous_size), (n_agents, len(spec.discrete_branches))
        if (action.continuous.shape, action.discrete.shape) != sizes:
            raise UnityActionException(f"actions must have the shapes {sizes}")
        self._actions[behavior_name] = action

    def step(self):
        """Go on to the next message."""
        if not self._specs:
            self.reset()
            return
        if self._idle:
            self._idle -= 1
            self._write({} if self._idle else dict.fromkeys(self._specs, -0.125))
            return
        for name, action in self._actions.items():
            self._act(name, action)
        self._actions = {}
        self._t += 1
        if self._t == self._build.get("dies_at"):
            os._exit(7)
        if self._x >= GOAL or self._t >= LIMIT:
            ended = self._t >= LIMIT and self._x < GOAL
            self._write(dict.fromkeys(self._specs, -1.0 if ended else 1.0), ended)
            return
        self._idle = self._build.get("idle", 0)
        self._write({} if self._idle else dict.fromkeys(self._specs, -0.125))

    def _act(self, name, action):
        if action.continuous.size:
            self._x += float(action.continuous[0, 0])
            return
        if self._masks(name) and self._masks(name)[0][0][action.discrete[0, 0]]:
            raise UnityActionException("a forbidden action")
        self._x += int(action.discrete[0, 0]) - 1

    def _masks(self, name):
        behavior = self._build["behaviors"][name]
        masks = [np.zeros((1, n), np.bool_) for n in behavior.get("branches", ())]
        if behavior.get("masks"):
            masks[0][0, self._t % masks[0].shape[1]] = True
        return masks

    def _write(self, rewards, interrupted=None):
        """Write the steps: of decisions, or where ``interrupted`` is a bool, of ends."""
        for name, spec in self._specs.items():
            n = self._build["behaviors"][name].get("agents", 1) if name in rewards else 0
            obs = [np.stack([self._seen(s)] * n) if n else [] for s in spec.observation_specs]
            reward = np.full(n, rewards.get(name, 0.0), np.float32)
            ids, group = np.arange(n) + 10 * self._id, (np.zeros(n), np.full(n, 0.25))
            none = np.zeros(0)
            decisions = DecisionSteps([], none, none, None, none, none)
            terminals = TerminalSteps([], none, none, none, none, none)
            if interrupted is None:
                masks = [mask.repeat(n, 0) for mask in self._masks(name)] or None
                decisions = DecisionSteps(obs, reward, ids, masks, *group)
            else:  # the next episode begins in the same message, as it often does in Unity
                terminals = TerminalSteps(obs, reward, np.full(n, interrupted), ids, *group)
                next_ones = DecisionSteps(obs, 0 * reward, ids + 10, self._masks(name), *group)
                decisions = next_ones if not self._build.get("idle") else decisions
            self._steps[name] = decisions, terminals

    def _seen(self, sensor):
        if len(sensor.shape) == 1:
            seen = np.zeros(sensor.shape, np.float32)
            seen[:2] = (self._x, self._t)[: len(seen)]
            return seen
        channel_axis = tuple(sensor.dimension_property).index(1)
        shape = [1, 1, 1]
        shape[channel_axis] = -1
        shades = (1 + np.arange(sensor.shape[channel_axis], dtype=np.float32)) / 255
        shades = shades * (200 if self._build.get("too_bright") else 1)
        return np.broadcast_to(shades.reshape(shape), sensor.shape)

    def get_steps(self, behavior_name):
        """Return the decision steps and the terminal steps of the last message."""
        return self._steps[behavior_name]

    def close(self):
        """End the build."""
        if self._log.parent.exists():
            self._say("close")
