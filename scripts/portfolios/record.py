"""What portfolios are learned from: searches, and their best configurations everywhere."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import rltune
from rltune.agents.loop.agent import Agent
from rltune.objectives.metrics import DEFAULT, objective_of
from rltune.space.space import Space
from rltune.training.presets import presets

from portfolios.suites import RESULTS, Task, add, read, suite

TRIALS = 60
BEST = 4  # configurations of each search that are tried everywhere
EVALUATIONS, EPISODES = 9, 10
SEEDS = (0, 1)


def file_of(agent: str) -> Path:
    return RESULTS / f"{agent}.jsonl"


def search(agent: str, folder: Path) -> None:
    """Search each environment of the suite; a search that is in the file is not run again."""
    done = {row["env"] for row in read(file_of(agent)) if row["what"] == "search"}
    for env, budget in suite(agent):
        if env in done:
            continue
        name = f"{agent}-{env}"
        if (folder / name / "run.yaml").exists():
            found = rltune.resume(folder / name, screen="plain")
        else:
            found = rltune.Search(
                agent, env, budget=budget, trials=TRIALS, tournament=False, report=False,
                wandb="off", name=name, storage_path=folder, screen="plain",
            ).run()  # fmt: skip
        if found.interrupted:
            return
        row = {"what": "search", "env": env, "budget": budget, "trials": list(trials(agent, found))}
        add(file_of(agent), {**row, "when": time.strftime("%Y-%m-%d")})


def trials(agent: str, found: rltune.SearchResult) -> Iterator[dict[str, Any]]:
    """Yield the trials of a search: values of the searched dimensions, curve, seconds."""
    names = list(Space.load(agent).dimensions)
    history = found.history()
    curves = history[history["eval_return"].notna()].sort_values("iteration").groupby("trial")
    returns = {int(trial): rows["eval_return"].round(3).tolist() for trial, rows in curves}
    for trial in found.trials().sort_values("trial").to_dict("records"):
        number = int(trial["trial"])
        yield {
            "origin": trial["origin"],
            "values": {name: plain(trial[f"config.{name}"]) for name in names},
            "returns": returns.get(number, []),
            "seconds": round(float(trial["seconds"]), 2),
            "state": trial["state"],
        }


def plain(value: Any) -> Any:
    """Return a number or a choice in plain types, rounded as people write it."""
    value = value.item() if hasattr(value, "item") else value
    return float(f"{value:.4g}") if isinstance(value, float) else value


def end(curve: Sequence[float]) -> float:
    """Return the objective of a curve at its end; -inf where it has none."""
    return objective_of(list(curve), DEFAULT) if curve else -math.inf


def candidates(agent: str) -> list[dict[str, Any]]:
    """Return what is tried everywhere: known-good settings, and the best of each search.

    ``of`` are the environments that a candidate is known from; a choice that leaves one of them out
    must not have it.
    """
    found: list[dict[str, Any]] = [
        {"name": f"{preset.name} {preset.env[0]}", "of": list(preset.env), "config": preset.values}
        for preset in presets(agent)
        if preset.env and not preset.env[0].startswith("ALE/")
    ]
    for row in read(file_of(agent)):
        if row["what"] != "search":
            continue
        whole = [trial for trial in row["trials"] if trial["state"] == "COMPLETE"]
        own = [trial for trial in whole if trial["origin"] == "sampler"]
        own.sort(key=lambda trial: end(trial["returns"]), reverse=True)
        found += [
            {"name": f"search {row['env']} {i}", "of": [row["env"]], "config": trial["values"]}
            for i, trial in enumerate(own[:BEST])
        ]
    return found


def measure(agent: str, tasks: Sequence[Task], seeds: Sequence[int] = SEEDS) -> None:
    """Train every candidate on every environment, where that is missing."""
    done = {
        (row["name"], row["env"], row["seed"])
        for row in read(file_of(agent))
        if row["what"] == "training"
    }
    for seed in seeds:
        for candidate in candidates(agent):
            for task in tasks:
                if (candidate["name"], task.env, seed) in done:
                    continue
                row = {"what": "training", "name": candidate["name"], "env": task.env, "seed": seed}
                add(file_of(agent), {**row, **train(agent, task, candidate["config"], seed)})


def train(agent: str, task: Task, values: dict[str, Any], seed: int) -> dict[str, Any]:
    """Train a configuration; a training that diverges, or can't be done, has no further values."""
    space = Space.load(agent)
    config = {**space.fixed, **values}
    started, returns = time.process_time(), list[float]()
    trained = Agent(
        agent, task.env, config, total_timesteps=task.budget, seed=seed, device="cpu"
    )  # fmt: skip
    for k in range(1, EVALUATIONS + 1):
        if trained.learn(round(task.budget * k / EVALUATIONS)).diverged:
            break
        returns.append(round(trained.evaluate(EPISODES).mean, 3))
    trained.close()
    return {"returns": returns, "seconds": round(time.process_time() - started, 2)}
