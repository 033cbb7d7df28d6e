"""What a search has named, and how good that is on seeds that no search used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

EPISODES, EVALUATION_SEED = 100, 10_000


def named(run: Path) -> dict[str, Any]:
    """Return what a search named, and how it came to it."""
    import rltune
    import yaml

    trials = rltune.open(run).trials()
    answer = yaml.safe_load((run / "best" / "answer.yaml").read_text())
    config = yaml.safe_load((run / "best" / "config.yaml").read_text())
    return {
        "config": config,
        "trials": len(trials),
        "whole": int((trials["state"] == "COMPLETE").sum()),
        "origins": next(r["origins"] for r in answer["ranking"] if r["trial"] == answer["winner"]),
        "text": answer["sentences"],
    }


def in_process(script: str, job: dict[str, Any]) -> dict[str, Any]:
    """Return what the script prints last when it is called with `one` and the job."""
    command = [sys.executable, script, "one", json.dumps(job)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def scored(job: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Train a configuration on the job's seed; a training that diverges has no score.

    Args:
        job: agent, env, budget in env steps, seed
        config: hyperparameters; the agent's defaults where it has none
    """
    from rltune.agents.loop.agent import Agent

    started = time.process_time()
    agent = Agent(
        job["agent"], job["env"], config,
        total_timesteps=job["budget"], seed=job["seed"], device="cpu",
    )  # fmt: skip
    diverged = agent.learn(job["budget"]).diverged
    seconds = time.process_time() - started
    score = None if diverged else agent.evaluate(EPISODES, seed=EVALUATION_SEED).mean
    return {"score": score, "cpu_seconds": round(seconds, 1)}
