"""An agent that costs nothing and fails on demand, with its environment, for the search tests."""

from __future__ import annotations

import math
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from rltune.agents.algorithm import Algorithm
from rltune.agents.config import AgentConfig, hp
from rltune.agents.errors import UserError


class ToyEnv(gymnasium.Env[Any, Any]):
    """Episodes of ten steps; the return is the mean action, minus its distance to the best one."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Box(-10, 10, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        self.noise = float(self.np_random.normal()) * 0.01
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        reward = (float(action[0]) + self.noise) / 10
        return np.zeros(1, np.float32), reward, self.steps >= 10, False, {}


class EndlessEnv(ToyEnv):
    """No episode ever ends."""

    def step(self, action: Any) -> Any:
        obs, reward, *_ = super().step(action)
        return obs, reward, False, False, {}


class SteepEnv(ToyEnv):
    """The same with three times the return."""

    def step(self, action: Any) -> Any:
        obs, reward, *rest = super().step(action)
        return obs, 3 * reward, *rest


class GoalEnv(ToyEnv):
    """An episode is a success when its last action was above the goal."""

    def __init__(self, goal: float = 0.5) -> None:
        self.goal = goal

    def step(self, action: Any) -> Any:
        *step, _ = super().step(action)
        # Before its end, an episode says nothing that counts.
        last = self.steps >= 10
        return (*step, {"is_success": np.float32(float(action[0]) > self.goal if last else 1.0)})


class BrokenEnv(ToyEnv):
    """Nobody can use it for long."""

    def step(self, action: Any) -> Any:
        raise KeyError("position")


# What the metrics say of a policy that has come to nothing, by the mode.
SICK: dict[str, dict[str, float]] = {
    "frozen": {},
    "collapsed": {"entropy": -1000.0},
    "thrown": {"approx_kl": 7.0},
    "dead_values": {"explained_variance": -0.5},
    "exploding": {"critic_loss": 1e12},
}


@dataclass(frozen=True, kw_only=True)
class ToyConfig(AgentConfig):
    n_envs: int = hp(1, low=1, high=8, help="environments")
    quality: float = hp(0.5, low=0.0, high=1.0, help="the return that training leads to")
    mode: str = hp(
        "ok",
        choices=(
            *("ok", "nan", "raise", "raise_once", "kill", "kill_once", "hang", "hang_once", "hog"),
            "mistake",
            *SICK,
        ),
        help="how it fails",
    )
    at: int = hp(50, low=1, high=1000, help="update at which it fails")
    luck: float = hp(0.0, low=0.0, high=1.0, help="how much the return depends on the seed")
    sleep: float = hp(0.0, low=0.0, high=1.0, help="seconds that an update takes")


@dataclass(frozen=True, kw_only=True)
class DescentConfig(AgentConfig):
    n_envs: int = hp(1, low=1, high=8, mutable=False, help="environments")
    rate: float = hp(0.5, low=1e-3, high=1.0, scale="log", help="step size")
    width: int = hp(4, low=1, high=8, minimum=1, mutable=False, help="decides on the weights' form")
    momentum: str = hp("no", choices=("no", "yes"), help="without effect")


class NoMemory:
    def add(self, **step: Any) -> None:
        """Forget."""

    def interrupt(self) -> None:
        """Nothing."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing."""


class ToyAgent(Algorithm[ToyConfig]):
    """Its return rises to `quality` as it is updated."""

    Config = ToyConfig
    update_every = 10

    def __init__(self, config: ToyConfig, spaces: Any, *, seed: int, device: str = "cpu") -> None:
        super().__init__(config, spaces, seed=seed, device=device)
        self.updates = 0
        self.fortune = config.luck * float(np.random.default_rng(seed).normal())

    @property
    def sick(self) -> bool:
        return self.config.mode in SICK and self.updates >= self.config.at

    def make_memory(self) -> NoMemory:
        return NoMemory()

    def act(self, obs: Any, *, explore: bool) -> Any:
        skill = self.config.quality * (1 - math.exp(-self.updates / 20)) + self.fortune
        if self.sick:
            skill = -1.0
        return np.full((len(obs), 1), skill, np.float32)

    def update(self, memory: Any, progress: float) -> dict[str, float]:
        self.updates += 1
        if self.config.sleep:
            time.sleep(self.config.sleep)
        if self.sick:
            return {"loss": 1.0, **SICK[self.config.mode]}
        if self.updates == self.config.at and self.config.mode != "ok":
            once = self.config.mode.endswith("_once")
            marker = Path(os.environ["TOY_FOLDER"]) / f"{self.config.mode}-{self.config.quality}"
            if not (once and marker.exists()):
                marker.touch()
                if self.config.mode == "nan":
                    return {"loss": math.nan}
                if self.config.mode == "hog":
                    hoard = []
                    while True:
                        hoard.append(np.ones(1 << 27, np.uint8))
                        time.sleep(0.05)
                if self.config.mode == "mistake":
                    raise UserError("no such thing; write another")
                if self.config.mode.startswith("hang"):
                    time.sleep(10_000)
                if self.config.mode.startswith("raise"):
                    raise RuntimeError("the environment broke")
                os.kill(os.getpid(), signal.SIGKILL)
        return {"loss": 1 / self.updates}

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.updates = state["updates"]


@dataclass(frozen=True, kw_only=True)
class SlowConfig(ToyConfig):
    sleep: float = hp(0.02, low=0.0, high=1.0, help="seconds that an update takes")


class SlowAgent(ToyAgent):
    """It takes its time with its defaults, too: two seconds for 1,000 env_steps."""

    Config = SlowConfig


class DescentAgent(Algorithm[DescentConfig]):
    """Descends a noisy slope: no constant rate leads as far as one that falls.

    The expected squared error of stochastic gradient descent on a parabola; the return is its
    negative logarithm.
    """

    Config = DescentConfig
    update_every = 10

    def __init__(
        self, config: DescentConfig, spaces: Any, *, seed: int, device: str = "cpu"
    ) -> None:
        super().__init__(config, spaces, seed=seed, device=device)
        self.errors = [1.0] * config.width

    def make_memory(self) -> NoMemory:
        return NoMemory()

    def act(self, obs: Any, *, explore: bool) -> Any:
        return np.full((len(obs), 1), -math.log10(self.errors[0]), np.float32)

    def update(self, memory: Any, progress: float) -> dict[str, float]:
        rate = self.config.rate
        self.errors = [(1 - rate) ** 2 * error + rate**2 * 0.3 for error in self.errors]
        return {"rate": rate}

    def state_dict(self) -> dict[str, Any]:
        return {"errors": self.errors}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if len(state["errors"]) != self.config.width:
            raise ValueError("another width")
        self.errors = list(state["errors"])
