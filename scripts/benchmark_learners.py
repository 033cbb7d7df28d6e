"""Benchmark data-parallel learners: seconds for an update that one or two processes compute.

    python scripts/benchmark_learners.py                # every case, in turn
    python scripts/benchmark_learners.py "SAC, large"   # one

No environment is stepped: memories are filled with random steps. One learner and several take
turns. "clock" is the median seconds for an update on the clock, with the quartiles. "CPU" are the
CPU seconds for an update of the learner that needs most: what an update takes where each learner
has an idle core, but for the time in which messages travel. It holds on a busy machine, too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces as gym_spaces
from rltune.agents.algorithm import Algorithm
from rltune.agents.config import make_config
from rltune.agents.machine.threads import hold_threads
from rltune.agents.parallel.learners import Learners
from rltune.agents.registry import agent_class
from rltune.agents.spaces import Spaces

SECONDS = 8.0  # of updates in each turn
TURNS = 3
TICK = os.sysconf("SC_CLK_TCK")
VECTOR = gym_spaces.Box(-np.inf, np.inf, (17,), np.float32)
BOX = gym_spaces.Box(-1, 1, (6,), np.float32)
IMAGE = gym_spaces.Box(0, 255, (4, 84, 84), np.uint8)
ROLLOUT = {"n_envs": 8, "n_steps": 64, "batch_size": 256, "n_epochs": 1}


class Case(NamedTuple):
    """An agent whose updates are timed."""

    agent: str
    observation: gym_spaces.Box
    action: gym_spaces.Space[Any]
    config: dict[str, Any]


LARGE = {"net_arch": [1024, 1024], "batch_size": 2048}
CASES = {
    "SAC": Case("sac", VECTOR, BOX, {}),
    "SAC, large": Case("sac", VECTOR, BOX, LARGE),
    "DQN": Case("dqn", VECTOR, gym_spaces.Discrete(6), {"train_freq": 4, "gradient_steps": 4}),
    "PPO": Case("ppo", VECTOR, BOX, {"n_steps": 256}),
    "PPO, images": Case("ppo", IMAGE, gym_spaces.Discrete(6), ROLLOUT),
}


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def filled(algorithm: Algorithm[Any], steps: int) -> Any:
    """Return a memory of the algorithm's with random steps."""
    memory = algorithm.make_memory()
    rng, n = np.random.default_rng(0), algorithm.spaces.n_envs
    space = algorithm.spaces.observation
    assert space.shape is not None
    for _ in range(steps):
        if space.dtype == np.uint8:
            obs = rng.integers(0, 256, (n, *space.shape), np.uint8)
        else:
            obs = rng.normal(size=(n, *space.shape)).astype(np.float32)
        memory.add(
            obs=obs,
            action=np.stack([algorithm.spaces.action.sample() for _ in range(n)]),
            reward=rng.normal(size=n),
            terminated=np.zeros(n, np.bool_),
            truncated=np.zeros(n, np.bool_),
            next_obs=obs,
            valid=np.ones(n, np.bool_),
        )
    return memory


class Timed:
    """Updates of one case with a number of learners, timed.

    Args:
        case: what is updated
        n: how many learners
    """

    def __init__(self, case: Case, n: int) -> None:
        found = agent_class(case.agent)
        config: Any = make_config(found.Config, {**case.config, "n_learners": n})
        spaces = Spaces(case.observation, case.action, config.n_envs)
        self.algorithm = found(config, spaces, seed=0)
        self.algorithm.use_engine("auto")
        self.learners: Learners | None = None
        if n > 1:
            self.learners = Learners(
                self.algorithm, case.agent, spaces, seed=0, changes_beside=False
            )
        on_policy = self.algorithm.on_policy
        self.memory = filled(self.algorithm, config.n_steps if on_policy else 5000)
        self.rollout = self.memory.state_dict() if on_policy else None
        self.seconds: list[float] = []
        self.cpu: dict[int, float] = {}
        while not self._update():  # `learning_starts` are over, and the others there
            pass

    def _update(self) -> dict[str, float]:
        if self.rollout is not None:
            self.memory.load_state_dict(self.rollout)
        update: Callable[..., dict[str, float]] = (self.learners or self.algorithm).update
        return update(self.memory, 0.5)

    def turn(self) -> None:
        """Update for some seconds."""
        others = [process.pid for process in self.learners._processes] if self.learners else []
        pids = [os.getpid(), *others]
        before = {pid: cpu_seconds(pid) for pid in pids}
        until = time.perf_counter() + SECONDS
        while time.perf_counter() < until:
            began = time.perf_counter()
            self._update()
            self.seconds.append(time.perf_counter() - began)
        for pid in pids:
            self.cpu[pid] = self.cpu.get(pid, 0.0) + cpu_seconds(pid) - before[pid]

    def line(self) -> str:
        """Return what was measured."""
        low, middle, high = (1000 * t for t in statistics.quantiles(self.seconds, n=4))
        cpu = 1000 * max(self.cpu.values()) / len(self.seconds)
        n = self.algorithm.config.n_learners
        return (
            f"  {n} learner{'s' if n > 1 else ' '}  clock {middle:9.2f} ms "
            f"({low:.2f} to {high:.2f})  CPU {cpu:9.2f} ms  {self.algorithm.engine}, "
            f"{len(self.seconds)} updates"
        )


def main() -> None:
    """Time what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="default: all")
    parser.add_argument("--learners", type=int, default=2, help="against one")
    args = parser.parse_args()
    hold_threads(1)
    print(f"torch {torch.__version__}, numpy {np.__version__}, {os.cpu_count()} cores, "
          f"load {os.getloadavg()[0]:.1f}")  # fmt: skip
    for name in args.cases or CASES:
        sides = [Timed(CASES[name], n) for n in (1, args.learners)]
        for _ in range(TURNS):
            for side in sides:
                side.turn()
        print(name, *(side.line() for side in sides), sep="\n", flush=True)
        for side in sides:
            if side.learners is not None:
                side.learners.close()


if __name__ == "__main__":
    main()
