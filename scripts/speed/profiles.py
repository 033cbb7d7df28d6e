"""Where the CPU time of rltune's side goes, and the floor under it."""

from __future__ import annotations

import re
import signal
import time
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

from speed.rows import Row
from speed.slices import cpu_seconds, make_rltune

GROUPS = (
    *("environment", "acting", "memory", "look-back, GAE", "forward and backward"),
    *("optimizer, targets", "metrics", "rest"),
)
INTERVAL = 0.002  # CPU seconds between two samples
# The first rule that fits a frame decides, from the innermost frame outwards.
_RULES = [
    (group, re.compile(file), re.compile(function))
    for group, file, function in (
        ("environment", r"/(gymnasium|Box2D)/|/agents/envs/", ""),
        ("memory", r"/agents/memory/|/agents/kernels/rollouts", ""),
        ("memory", r"/agents/(algorithms|kernels)/", r"^(_prepared|normalised|_shuffled)$"),
        ("memory", r"/agents/algorithms/on_policy", r"^rows$"),
        ("memory", r"/agents/(algorithms|kernels)/ppo", r"^_minibatches$"),
        ("look-back, GAE", r"/agents/algorithms/returns\.py", ""),
        ("look-back, GAE", r"/agents/", r"^(look_back|take_rollout)$"),
        ("acting", r"/agents/(algorithms|kernels)/", r"^act$"),
        ("forward and backward", r"/torch/autograd/", ""),
        ("optimizer, targets", r"/agents/learner\.py", ""),
        ("metrics", r"/agents/", r"^(means|explained_variance|_note|add)$"),
    )
]
# Where no rule fits a frame around it, this is learning.
_LEARNING = re.compile(r"/agents/(networks|kernels|algorithms/trust_region|algorithms/dqn_targets)")


def group_of(frame: FrameType | None) -> str:
    """Return the group that the running code belongs to."""
    found = "rest"
    while frame is not None:
        file, function = frame.f_code.co_filename, frame.f_code.co_name
        for group, of_file, of_function in _RULES:
            if of_file.search(file) and of_function.search(function):
                return group
        if _LEARNING.search(file) or function.endswith("loss") or "/torch/nn/" in file:
            found = "forward and backward"
        frame = frame.f_back
    return found


def profiled(work: Callable[[], Any]) -> dict[str, float]:
    """Return the share of each group in the CPU time of the work, by samples of the stack."""
    counts: Counter[str] = Counter()
    before = signal.signal(signal.SIGPROF, lambda _, frame: counts.update([group_of(frame)]))
    signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)
    try:
        work()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)
    total = max(1, sum(counts.values()))
    return {group: counts[group] / total for group in GROUPS}


def profile(row: Row, seed: int, engine: str | None) -> dict[str, Any]:
    """Return the shares of the groups, and of the floor's two parts, in an env step's CPU time."""
    agent = make_rltune(row, seed, engine)
    agent.learn(row.first)
    started, from_step = cpu_seconds(), agent.env_steps
    shares = profiled(lambda: agent.learn(row.last))
    an_env_step = (cpu_seconds() - started) / (agent.env_steps - from_step)
    agent.close()
    bare = sum(n * seconds_of(shape) for shape, n in products(row, seed).items())
    return {
        "engine": getattr(agent, "engine", "torch"),
        "shares": shares,
        "products": bare / an_env_step,
        "env_step": seconds_of_env_step(row.env) / an_env_step,
    }


# ------------------------------------------------------------------------------------------- floor

Shape = tuple[int, int, int, int]  # matrices at once; rows, columns and rows, columns


def products(row: Row, seed: int, env_steps: int = 400) -> dict[Shape, float]:
    """Return how many products of each shape an env step takes, by the definition in PyTorch."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    counts: Counter[Shape] = Counter()

    class Count(TorchDispatchMode):
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            name = function.overloadpacket.__name__
            if name in ("mm", "addmm", "bmm", "baddbmm", "linear"):
                a, b = (a for a in args if isinstance(a, torch.Tensor) and a.dim() >= 2)
                many = a.shape[0] if name in ("bmm", "baddbmm") else 1
                columns = b.shape[0] if name == "linear" else b.shape[-1]
                counts[many, a.shape[-2], a.shape[-1], columns] += 1
            return function(*args, **(kwargs or {}))

    agent = make_rltune(row, seed, "torch")
    cycle = agent.algorithm.update_every
    part = row.shrunk(cycle * -(-env_steps // cycle))
    agent.learn(part.first)
    from_step = agent.env_steps
    with Count():
        agent.learn(part.last)
    return {shape: n / (agent.env_steps - from_step) for shape, n in counts.items()}


def seconds_of(shape: Shape) -> float:
    """Return the CPU seconds of a product into a given array, by the faster of the two."""
    import numpy as np
    import torch

    many, rows, inner, columns = shape
    generator = np.random.default_rng(0)
    a = generator.normal(size=(many, rows, inner)).astype(np.float32)
    b = generator.normal(size=(many, inner, columns)).astype(np.float32)
    out = np.empty((many, rows, columns), np.float32)
    if many == 1:
        a, b, out = a[0], b[0], out[0]
    x, y, z = (torch.from_numpy(array) for array in (a, b, out))
    multiply = torch.mm if many == 1 else torch.bmm
    return min(_timed(lambda: np.matmul(a, b, out=out)), _timed(lambda: multiply(x, y, out=z)))


def _timed(work: Callable[[], Any], slices: int = 5) -> float:
    """Return the median CPU seconds of a call."""
    work()
    calls = 1
    while _total(work, calls) < 0.01:
        calls *= 2
    return sorted(_total(work, calls) / calls for _ in range(slices))[slices // 2]


def _total(work: Callable[[], Any], calls: int) -> float:
    started = time.process_time()
    for _ in range(calls):
        work()
    return time.process_time() - started


def seconds_of_env_step(name: str, env_steps: int = 20_000) -> float:
    """Return the CPU seconds of the environment's own step, with random actions, without resets."""
    import gymnasium

    env = gymnasium.make(name)
    limit = env.spec.max_episode_steps or env_steps if env.spec else env_steps
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(1000)]
    own = env.unwrapped
    own.reset(seed=0)
    resets, length, started = 0.0, 0, time.process_time()
    for step in range(env_steps):
        ended = own.step(actions[step % 1000])[2]
        length += 1
        if ended or length == limit:
            begun = time.process_time()
            own.reset()
            resets, length = resets + time.process_time() - begun, 0
    return (time.process_time() - started - resets) / env_steps
