"""Trainings of a user's own, for the tests of the searches that tune them."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rltune

STEPS = 100  # from one report to the next
TRACES = os.environ.get("TOY_FOLDER", "")


def trace(word: str) -> None:
    """Leave a line for the test, from whatever process."""
    with open(Path(TRACES) / "traces.txt", "a") as file:
        file.write(f"{os.getpid()} {word}\n")


def value_at(config: dict[str, Any], env_steps: int) -> float:
    return float(config["quality"] * (1 - math.exp(-env_steps / 300)))


def train(config: dict[str, Any], trial: rltune.Trial) -> None:
    """Its value rises to `quality`; seeds differ by a thousandth."""
    for env_steps in range(STEPS, trial.budget + 1, STEPS):
        time.sleep(config.get("sleep", 0.0))
        value = value_at(config, env_steps) + trial.seed % 7 / 1000
        trial.report(env_steps, value, loss=1 - value)


def train_traced(config: dict[str, Any], trial: rltune.Trial) -> None:
    trace("begin")
    ended = "stopped"
    try:
        train(config, trial)
        ended = "returned"
    finally:
        trace(ended)


def train_by_steps(config: dict[str, Any], trial: rltune.Trial) -> Iterator[Any]:
    for env_steps in range(STEPS, trial.budget + 1, STEPS):
        yield env_steps, value_at(config, env_steps), {"loss": 0.5}


def train_with_files(config: dict[str, Any], trial: rltune.Trial) -> None:
    """It goes on from its own file."""
    file = trial.checkpoint() / "state.json"
    env_steps = json.loads(file.read_text()) if file.exists() else 0
    with open(trial.checkpoint() / "begins.txt", "a") as begins:
        begins.write(f"{env_steps}\n")
    while env_steps < trial.budget:
        time.sleep(config["sleep"])
        env_steps += STEPS
        temporary = file.with_suffix(".tmp")
        temporary.write_text(json.dumps(env_steps))
        temporary.replace(file)
        trial.report(env_steps, value_at(config, env_steps))


def train_badly(config: dict[str, Any], trial: rltune.Trial) -> None:
    train({"quality": 0.1}, rltune.Trial(0, 100))
    raise RuntimeError("no data here")


def train_silently(config: dict[str, Any], trial: rltune.Trial) -> None:
    """It forgets to report."""


def train_alone(config: dict[str, Any]) -> None:
    """It can't report."""


class NotAFunction:
    """No agent either."""
