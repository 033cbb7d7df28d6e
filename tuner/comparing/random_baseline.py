"""The random baseline of comparisons: an agent that acts at random, measured on the spot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rltune.agents.errors import UserError
from rltune.comparing.entries import Entry
from rltune.comparing.trainings import EVALUATION, TRAINING, Curve, TrainingRecord

LABEL = "random actions"
EPISODES = 20
LEAST_SEEDS = 5


def random_entries(entries: Sequence[Entry], metric: str) -> tuple[list[Entry], list[str]]:
    """Return actions at random on each environment, with as many seeds as the others have.

    They learn nothing, so their score is the same at any number of env steps. Only gymnasium's own
    environments are played, without arguments: no other code that a run names is executed here.

    Args:
        entries: those that are compared
        metric: the column that is compared

    Returns:
        the entries, and a sentence for each environment that has none

    Raises:
        UserError: the metric is no return.
    """
    if metric not in (EVALUATION, TRAINING):
        raise UserError(f"--random: actions at random have a return alone, no {metric!r}.")
    found, remarks = [], []
    for env in dict.fromkeys(entry.env for entry in entries):
        if not _is_gymnasiums(env):
            remarks.append(
                f"{env}: no actions at random, only gymnasium's own environments without arguments "
                "are played here; rltune eval random --env plays any."
            )
            continue
        trainings = [
            training for entry in entries if entry.env == env for training in entry.trainings
        ]
        most = max(len(entry.trainings) for entry in entries if entry.env == env)
        end = max(training.reached for training in trainings)
        seeds = range(max(most, LEAST_SEEDS))
        found.append(Entry(LABEL, env, tuple(_played(env, seed, end, metric) for seed in seeds)))
    return found, remarks


def _is_gymnasiums(env: str) -> bool:
    import gymnasium

    spec = gymnasium.registry.get(env)
    return spec is not None and str(spec.entry_point).startswith("gymnasium.")


def _played(env: str, seed: int, end: int, metric: str) -> TrainingRecord:
    from rltune.agents.loop.random_agent import RandomAgent

    value = RandomAgent(env).evaluate(EPISODES, seed).mean
    return TrainingRecord(
        name=LABEL,
        source=Path(LABEL),
        agent=LABEL,
        env=env,
        curve=Curve(np.array([0.0, end]), np.array([value, value])),
        metric=metric,
        seed=seed,
        reached=end,
    )
