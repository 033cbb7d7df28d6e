"""The environments from which portfolios are learned, and where measurements are stored.

Pairs of agent and environment that docs/benchmarks/held-out.md names for judging searches are in no
suite: ppo on Pendulum-v1, a2c on Acrobot-v1, td3 on LunarLanderContinuous-v3, dqn on
MountainCar-v0.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "benchmarks" / "portfolios"


class Task(NamedTuple):
    """An environment of a suite, and the env steps of a whole training there."""

    env: str
    budget: int


CONTINUOUS = (
    Task("MountainCarContinuous-v0", 50_000),
    Task("InvertedDoublePendulum-v5", 50_000),
    Task("Reacher-v5", 100_000),
    Task("Swimmer-v5", 100_000),
    Task("Hopper-v5", 100_000),
    Task("BipedalWalker-v3", 100_000),
)
ON_POLICY = (
    Task("CartPole-v1", 50_000),
    Task("Acrobot-v1", 50_000),
    Task("MountainCar-v0", 100_000),
    Task("LunarLander-v3", 100_000),
    Task("Pendulum-v1", 50_000),
    Task("LunarLanderContinuous-v3", 100_000),
    *CONTINUOUS,
)
DISCRETE = (
    Task("CartPole-v1", 25_000),
    Task("Acrobot-v1", 25_000),
    Task("LunarLander-v3", 50_000),
    Task("MountainCar-v0", 50_000),
    *(
        Task(f"portfolios.variants:{name}", budget)
        for name, budget in (
            ("Windy", 50_000),
            ("SwingUp", 25_000),
            ("LevelsPendulum", 15_000),
            ("LevelsInvertedPendulum", 15_000),
            ("LevelsInvertedDoublePendulum", 25_000),
        )
    ),
)
OFF_POLICY = (
    Task("Pendulum-v1", 5_000),
    Task("MountainCarContinuous-v0", 15_000),
    Task("InvertedPendulum-v5", 8_000),
    Task("InvertedDoublePendulum-v5", 10_000),
    Task("Reacher-v5", 10_000),
    Task("Swimmer-v5", 15_000),
    Task("Hopper-v5", 15_000),
    Task("HalfCheetah-v5", 15_000),
    Task("LunarLanderContinuous-v3", 15_000),
)
HELD_OUT = {
    "ppo": "Pendulum-v1",
    "a2c": "Acrobot-v1",
    "td3": "LunarLanderContinuous-v3",
    "dqn": "MountainCar-v0",
}
SUITES = {
    **dict.fromkeys(("ppo", "a2c", "trpo"), ON_POLICY),
    **dict.fromkeys(("dqn", "acer"), DISCRETE),
    **dict.fromkeys(("sac", "td3", "ddpg"), OFF_POLICY),
}
# Trials of a search. Trainings of replay agents take long; cheap ones are looked for there.
CHEAP = ("dqn", "acer", "sac", "td3", "ddpg")
TRIALS = {**dict.fromkeys(SUITES, 40), "ppo": 60, **dict.fromkeys(("sac", "td3", "ddpg"), 30)}
SAMPLERS = {**dict.fromkeys(SUITES, "tpe"), **dict.fromkeys(CHEAP, "cost-aware")}


def suite(agent: str) -> list[Task]:
    """Return the tasks of an agent, without the one that is held out."""
    return [task for task in SUITES[agent] if task.env != HELD_OUT.get(agent)]
