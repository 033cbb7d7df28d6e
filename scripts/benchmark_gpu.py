"""Benchmark a GPU against the CPU of its machine: updates, trainings on Pong, a search.

    pip install stable-baselines3==2.9.2
    python scripts/benchmark_gpu.py updates
    python scripts/benchmark_gpu.py trainings   # Stable-Baselines3's beside ours
    python scripts/benchmark_gpu.py searches    # trials of Pong that share the GPU, or have a core
    python scripts/benchmark_gpu.py table

Everything is measured on the clock; the sides take turns. Results are stored in
docs/benchmarks/gpu.jsonl.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from benchmark_learners import BOX, IMAGE, VECTOR, filled
from gymnasium import spaces as gym_spaces
from json_lines import append, read
from rltune.agents.config import make_config
from rltune.agents.machine.threads import hold_threads
from rltune.agents.registry import agent_class
from rltune.agents.spaces import Spaces

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "gpu.jsonl"
TURNS = 3
SECONDS = 1.0  # of updates in each turn
PONG = "ALE/Pong-v5"
CHOICES = gym_spaces.Discrete(6)


class Case(NamedTuple):
    """An update that is timed; with images, the CPU's side has all cores as well as one."""

    name: str
    agent: str
    observation: gym_spaces.Box
    action: gym_spaces.Space[Any]
    config: dict[str, Any]

    @property
    def is_large(self) -> bool:
        return self.observation is IMAGE or 1024 in self.config.get("net_arch", ())


def mlp(width: int, **more: Any) -> dict[str, Any]:
    return {"net_arch": [width, width], **more}


ON = {"n_envs": 8, "n_steps": 128, "n_epochs": 4}
CASES = (
    Case("PPO, 64-64, 64", "ppo", VECTOR, BOX, mlp(64, **ON, batch_size=64)),
    Case("PPO, 256-256, 256", "ppo", VECTOR, BOX, mlp(256, **ON, batch_size=256)),
    Case("PPO, 1024-1024, 1024", "ppo", VECTOR, BOX, mlp(1024, **ON, batch_size=1024)),
    Case("SAC, 256-256, 256", "sac", VECTOR, BOX, mlp(256, batch_size=256)),
    Case("SAC, 1024-1024, 2048", "sac", VECTOR, BOX, mlp(1024, batch_size=2048)),
    Case("DQN, 256-256, 64", "dqn", VECTOR, CHOICES, mlp(256, batch_size=64, gradient_steps=1)),
    Case("PPO, images, 256", "ppo", IMAGE, CHOICES, {**ON, "batch_size": 256}),
    Case("DQN, images, 32", "dqn", IMAGE, CHOICES, {"batch_size": 32, "gradient_steps": 1}),
)


class Updates:
    """One side of a case.

    Args:
        case: what is updated
        device: where
        threads: of PyTorch on the CPU
    """

    def __init__(self, case: Case, device: str, threads: int) -> None:
        found = agent_class(case.agent)
        config: Any = make_config(found.Config, {**case.config, "buffer_size": 4000}
                                  if case.agent != "ppo" else case.config)  # fmt: skip
        spaces = Spaces(case.observation, case.action, config.n_envs)
        self.name = "GPU" if device == "cuda" else f"CPU, {threads}"
        self.threads = threads
        self.algorithm = found(config, spaces, seed=0, device=device)
        self.algorithm.use_engine("auto")
        on_policy = self.algorithm.on_policy
        self.memory = filled(self.algorithm, config.n_steps if on_policy else 2000)
        self.rollout = self.memory.state_dict() if on_policy else None
        self.seconds: list[float] = []

    def once(self) -> float:
        """Update; returns the gradient steps taken, 0 before learning has started."""
        if self.rollout is not None:
            self.memory.load_state_dict(self.rollout)
        values = self.algorithm.update(self.memory, 0.5)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return values.get("updates", 1.0) if values else 0.0

    def turn(self) -> None:
        hold_threads(self.threads)
        while not self.once():
            pass
        until = time.perf_counter() + SECONDS
        while time.perf_counter() < until:
            began = time.perf_counter()
            steps = self.once()
            self.seconds.append((time.perf_counter() - began) / steps)


def updates() -> Iterator[dict[str, Any]]:
    """Yield the median milliseconds for a gradient step, acting and memory left out."""
    for case in CASES:
        sides = [Updates(case, "cpu", 1)]
        if case.is_large:
            sides.append(Updates(case, "cpu", os.cpu_count() or 1))
        if torch.cuda.is_available():
            sides.append(Updates(case, "cuda", 1))
        for _ in range(TURNS):
            for side in sides:
                side.turn()
        yield {
            "case": case.name,
            "ms": {s.name: round(1000 * statistics.median(s.seconds), 3) for s in sides},
            "engine": sides[0].algorithm.engine,
        }


def trainings(env_steps: int, turns: int = TURNS) -> Iterator[dict[str, Any]]:
    """Yield env steps a second of whole trainings with rl-zoo3's settings, updates included."""
    import rltune
    from rltune.space.space import Space

    ppo = Space.load("ppo-atari").to_dict()
    settings_of = {
        "ppo": {**ppo["fixed"], **ppo["start"][0]},
        "dqn": {**rltune.preset("dqn", PONG, "zoo"), "learning_starts": 500, "buffer_size": 10_000},
    }
    for agent, settings in settings_of.items():
        settings.pop("name", None)
        rates: dict[str, list[float]] = {}
        for _ in range(turns):
            for side in ("rltune, CPU", "rltune, GPU", "SB3, GPU"):
                if side.endswith("GPU") and not torch.cuda.is_available():
                    continue
                rate = trained(side, agent, settings, env_steps)
                rates.setdefault(side, []).append(round(rate, 1))
        yield {"case": f"{agent} {PONG}", "env_steps_a_second": rates}


def trained(side: str, agent: str, settings: dict[str, Any], env_steps: int) -> float:
    device = "cuda" if side.endswith("GPU") else "cpu"
    hold_threads((os.cpu_count() or 1) if device == "cpu" else 1)
    warm = 1100  # learning has started, and kernels are there
    if side.startswith("SB3"):
        from benchmark_agents import sb3_model

        model = sb3_model(agent, PONG, settings, 0, device=device)
        model.learn(warm)
        started, done = time.perf_counter(), model.num_timesteps
        model.learn(env_steps, reset_num_timesteps=False)
        return float(model.num_timesteps - done) / (time.perf_counter() - started)
    from rltune.agents.loop.agent import Agent

    with_agent = Agent(agent, PONG, settings, total_timesteps=10**6, seed=0, device=device)
    with_agent.learn(warm)
    started, done = time.perf_counter(), with_agent.env_steps
    with_agent.learn(done + env_steps)
    rate = (with_agent.env_steps - done) / (time.perf_counter() - started)
    with_agent.close()
    return rate


def searches(seconds: float) -> Iterator[dict[str, Any]]:
    """Yield env steps a second of all trials together: one a core, on the CPU or on the GPU."""
    import rltune

    n = max(1, (os.cpu_count() or 1) - 1)
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        with tempfile.TemporaryDirectory() as folder:
            found = rltune.Search(
                "ppo", PONG, "ppo-atari", budget=100_000, trials=n, time_limit=seconds, seed=0,
                evaluations=40, eval_episodes=1, eval_share=None, portfolio=False,
                device=device, gpus_per_trial=round(1 / n, 3) if device == "cuda" else 0,
                tournament=False, report=False, wandb="off", storage_path=folder, screen="none",
            ).run()  # fmt: skip
            trials = found.history().groupby("trial")[["env_steps", "timestamp"]]
            passed = trials.max() - trials.min()  # from each trial's first row on
            rate = float((passed["env_steps"] / passed["timestamp"]).sum())
        yield {
            "case": f"{n} trials of {PONG}", "device": device, "trials": len(passed),
            "env_steps_a_second": round(rate, 1),
        }  # fmt: skip


def about() -> dict[str, Any]:
    from speed import machine

    return {
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "processor": machine.processor(),
        "cores": os.cpu_count(),
        "versions": {**machine.versions(), "python": platform.python_version()},
        "when": time.strftime("%Y-%m-%d"),
    }


def table(results: Path) -> None:
    """Print what was measured."""
    rows = read(results)
    print("| update | CPU, one core, ms | CPU, all cores | GPU | GPU against the faster |")
    print("|---|---|---|---|---|")
    for row in rows:
        if row["what"] == "updates":
            ms = dict(row["ms"])
            gpu, one = ms.pop("GPU", None), ms.pop("CPU, 1")
            every = next(iter(ms.values()), None)
            ratio = min(filter(None, (one, every))) / gpu if gpu else None
            cells = [f"{v:.2f}" if v is not None else "" for v in (one, every, gpu, ratio)]
            print(f"| {row['case']} | {' | '.join(cells)} |")
        elif row["what"] == "trainings":
            for side, rates in row["env_steps_a_second"].items():
                middle, low, high = statistics.median(rates), min(rates), max(rates)
                print(f"{row['case']}, {side}: {middle:.0f} ({low:.0f} to {high:.0f})")
        else:
            where = "the GPU" if row["device"] == "cuda" else "the CPU"
            print(f"{row['case']} on {where}: {row['env_steps_a_second']:.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("updates", "trainings", "searches", "table"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--env-steps", type=int, default=10_000, help="of a training that is timed")
    parser.add_argument("--turns", type=int, default=TURNS, help="of each side of a training")
    parser.add_argument("--seconds", type=float, default=60.0, help="of a search")
    args = parser.parse_args()
    if args.what == "table":
        table(args.results)
        return
    found = {
        "updates": updates,
        "trainings": lambda: trainings(args.env_steps, args.turns),
        "searches": lambda: searches(args.seconds),
    }[args.what]
    for row in found():
        print(row, flush=True)
        append(args.results, {"what": args.what, **row, **about()})


if __name__ == "__main__":
    main()
