"""Hill climbing on CartPole, as a function and as a script; it goes on from its own file."""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import rltune

ENV = "CartPole-v1"


def climb(
    noise: float, seed: int, budget: int, state: Path, report: Callable[[int, float], None]
) -> None:
    """Keep each change of the weights that is no worse; report the best return so far."""
    weights, best, env_steps, tries = np.zeros(4), -math.inf, 0, 0
    if state.exists():
        kept = json.loads(state.read_text())
        weights, best = np.array(kept["weights"]), kept["best"]
        env_steps, tries = kept["env_steps"], kept["tries"]
    env = gymnasium.make(ENV)
    while env_steps < budget:
        rng = np.random.default_rng([seed, tries])
        tried, total, ended = weights + noise * rng.normal(size=4), 0.0, False
        obs, _ = env.reset(seed=int(rng.integers(2**31)))
        while not ended:
            obs, reward, terminated, truncated, _ = env.step(int(obs @ tried > 0))
            total, ended = total + float(reward), terminated or truncated
        env_steps, tries = env_steps + int(total), tries + 1
        if total >= best:
            weights, best = tried, total
        if tries % 5 == 0 or env_steps >= budget:
            kept = {"weights": list(weights), "best": best, "env_steps": env_steps, "tries": tries}
            temporary = state.with_suffix(".tmp")
            temporary.write_text(json.dumps(kept))
            os.replace(temporary, state)
            report(env_steps, best)


def train(config: Mapping[str, Any], trial: rltune.Trial) -> None:
    climb(
        config["noise"], trial.seed, trial.budget, trial.checkpoint() / "state.json", trial.report
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--noise", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--total-timesteps", type=int, default=1000)
    parser.add_argument("--resume", default="state.json")
    args = parser.parse_args()

    def tell(env_steps: int, value: float) -> None:
        print(json.dumps({"step": env_steps, "return": value}), flush=True)

    climb(args.noise, args.seed, args.total_timesteps, Path(args.resume), tell)
