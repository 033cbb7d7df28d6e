#!/usr/bin/env python
"""Benchmark collection, all of a training but policy and update, against Stable-Baselines3.

    pip install stable-baselines3==2.9.2
    taskset -c 1 python scripts/benchmark_stepping.py collect CartPole-v1 LunarLander-v3
    taskset -c 1 python scripts/benchmark_stepping.py collect PongNoFrameskip-v4
    python scripts/benchmark_stepping.py collect PongNoFrameskip-v4 --reference subproc

A row for each environment: microseconds for one step of all environments, and their ratio. Both
sides step, normalise (with --normalize) and fill a rollout memory, with random actions; each has a
process of its own, and they take turns. Atari games are preprocessed by both, four frames stacked.
CPU time is that of all processes of a side. The reference "subproc" has a process for each
environment; on a quiet machine, wall time then says what further cores are good for.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

ROLLOUT = 16  # steps that a memory holds


def ours(env: str, args: argparse.Namespace) -> Callable[[], Any]:
    """Return a function that takes one step of all environments with rltune."""
    from rltune.agents.loop.agent import Agent

    config = {
        "n_envs": args.n_envs,
        "n_steps": ROLLOUT,
        "vectorization": args.vectorization,
        "normalize_observations": args.normalize,
        "normalize_rewards": args.normalize,
    }
    agent = Agent("a2c", env, config, total_timesteps=10**9)
    draw = random_actions(agent.action_space, args.n_envs)
    collector = agent._collector
    agent.algorithm.act = lambda obs, explore: draw()  # type: ignore[method-assign]
    collector.begin()

    def step() -> None:
        collector.step()
        if agent.memory.full:
            agent.memory.clear()

    return step


def sb3(env: str, args: argparse.Namespace) -> Callable[[], Any]:
    """Return the same with Stable-Baselines3: its environments, wrappers and rollout buffer."""
    import torch
    from rltune.agents.envs.make import is_atari
    from stable_baselines3.common.buffers import RolloutBuffer
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import (
        DummyVecEnv,
        SubprocVecEnv,
        VecFrameStack,
        VecNormalize,
        VecTransposeImage,
    )

    vec: Any = DummyVecEnv if args.reference == "dummy" else SubprocVecEnv
    if is_atari(env):
        made = make_atari_env(env, n_envs=args.n_envs, seed=0, vec_env_cls=vec)
        envs: Any = VecTransposeImage(VecFrameStack(made, 4))
    else:
        envs = make_vec_env(env, n_envs=args.n_envs, seed=0, vec_env_cls=vec)
        envs = VecNormalize(envs) if args.normalize else envs
    draw = random_actions(envs.action_space, args.n_envs)
    buffer = RolloutBuffer(
        ROLLOUT, envs.observation_space, envs.action_space, n_envs=args.n_envs, device="cpu"
    )
    number = torch.zeros(args.n_envs)
    obs, begins = envs.reset(), np.ones(args.n_envs, np.bool_)

    def step() -> None:
        nonlocal obs, begins
        action = draw()
        new_obs, reward, ended, _ = envs.step(action)
        if buffer.full:
            buffer.reset()
        buffer.add(obs, action.reshape(args.n_envs, -1), reward, begins, number, number)
        obs, begins = new_obs, ended

    return step


def random_actions(space: Any, n_envs: int) -> Callable[[], Any]:
    """Return a function that gives one of many random actions of all environments."""
    space.seed(0)
    drawn = np.array([[space.sample() for _ in range(n_envs)] for _ in range(500)])
    turn = iter(range(10**12))
    return lambda: drawn[next(turn) % len(drawn)]


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its children."""
    import psutil

    times = [process.cpu_times() for process in psutil.Process().children(recursive=True)]
    return time.process_time() + sum(t.user + t.system for t in times)


def work(args: argparse.Namespace) -> None:
    """Answer each line of the standard input with the times of a slice, as JSON."""
    warnings.simplefilter("ignore")
    step = {"ours": ours, "sb3": sb3}[args.side](args.env[0], args)
    has_children = args.reference == "subproc" or args.vectorization == "async"
    cpu = cpu_seconds if has_children else time.process_time
    for _ in range(ROLLOUT):
        step()
    print("ready", flush=True)
    for _ in sys.stdin:
        steps, wall, used = 0, time.perf_counter(), cpu()
        while time.perf_counter() - wall < args.seconds:
            step()
            steps += 1
        wall, used = time.perf_counter() - wall, cpu() - used
        print(json.dumps({"cpu": used / steps * 1e6, "wall": wall / steps * 1e6}), flush=True)


def start(side: str, env: str, words: list[str]) -> subprocess.Popen[str]:
    """Start one side, and wait until it has made its environments."""
    command = [sys.executable, __file__, "work", env, "--side", side, *words]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line == "ready\n":
            return process
    raise SystemExit(f"{side}: {' '.join(command)} has failed")


def time_slice(process: subprocess.Popen[str]) -> dict[str, float]:
    """Let one side work for a slice."""
    assert process.stdin is not None
    assert process.stdout is not None
    print(file=process.stdin, flush=True)
    found: dict[str, float] = json.loads(process.stdout.readline())
    return found


def collect(args: argparse.Namespace, words: list[str]) -> None:
    """Print the table: medians of the slices, and the median of the ratios of neighbours."""
    print("| environment | clock | rltune | Stable-Baselines3 | times |\n|---|---|---|---|---|")
    for env in args.env:
        sides = {side: start(side, env, words) for side in ("ours", "sb3")}
        slices = [
            {side: time_slice(process) for side, process in sides.items()}
            for _ in range(args.slices)
        ]
        for process in sides.values():
            process.communicate()
        for clock in ("cpu", "wall") if args.reference == "subproc" else ("cpu",):
            a, b = ([s[side][clock] for s in slices] for side in ("ours", "sb3"))
            ratio = statistics.median(y / x for x, y in zip(a, b, strict=True))
            print(
                f"| {env} | {clock} | {statistics.median(a):,.0f} | {statistics.median(b):,.0f} "
                f"| {ratio:.2f} |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["collect", "work"], help="work: for the script itself")
    parser.add_argument("env", nargs="+")
    parser.add_argument("--n-envs", type=int, default=8)
    parser.add_argument("--normalize", action="store_true", help="observations and rewards")
    parser.add_argument("--vectorization", default="sync", help="rltune's")
    parser.add_argument("--reference", choices=["dummy", "subproc"], default="dummy")
    parser.add_argument("--slices", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a slice")
    parser.add_argument("--side", choices=["ours", "sb3"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.command == "work":
        work(args)
    else:
        collect(args, [word for word in sys.argv[2:] if word not in args.env])


if __name__ == "__main__":
    main()
