"""What portfolios are learned from: searches, and their best configurations everywhere."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import rltune
from json_lines import append, read
from rltune.agents.loop.agent import Agent
from rltune.objectives.metrics import DEFAULT, objective_of
from rltune.space.space import Space
from rltune.space.surroundings import split
from rltune.training.presets import presets

from portfolios.suites import RESULTS, SAMPLERS, SUITES, TRIALS, Task, suite

# Configurations of each search that are tried everywhere; slow trainings are those of few.
BEST = {**dict.fromkeys(SUITES, 2), **dict.fromkeys(("sac", "td3", "ddpg"), 1)}
EVALUATIONS, EPISODES = 9, 5
JUDGED_AFTER = 3  # evaluations, a training is compared with those before it
ENOUGH = 8  # trainings to compare with
SEEDS = (0,)


def file_of(agent: str) -> Path:
    return RESULTS / f"{agent}.jsonl"


def search(agent: str, folder: Path, number: int) -> None:
    """Search each environment of the suite; a search that is in the file is not run again.

    ``number`` is that of the space: 0 for the first one, and one more for each that has changed.
    """
    done = {row["env"] for row in searches(agent) if number_of(row) == number}
    for env, budget in suite(agent):
        if env in done:
            continue
        name, sampler = f"{agent}-{env.rpartition(':')[2]}-{number}", SAMPLERS[agent]
        if (folder / name / "run.yaml").exists():
            found = rltune.resume(folder / name, screen="plain")
        else:
            found = rltune.Search(
                agent, env, budget=budget, trials=TRIALS[agent], tournament=False, portfolio=False,
                report=False, wandb="off", name=name, storage_path=folder, screen="plain",
                sampler=sampler,
            ).run()  # fmt: skip
        if found.interrupted:
            return
        row = {"what": "search", "env": env, "sampler": sampler, "budget": budget}
        row |= {"space": number}
        row |= {"trials": list(trials(agent, found)), "when": time.strftime("%Y-%m-%d")}
        append(file_of(agent), row)


def searches(agent: str) -> list[dict[str, Any]]:
    """Return the searches of an agent that were recorded."""
    return [row for row in read(file_of(agent)) if row["what"] == "search"]


def number_of(row: dict[str, Any]) -> int:
    """Return the number of the space that a search has searched."""
    return int(row.get("space", 0))


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
            "values": {
                name: plain(value) for name in names if known(value := trial[f"config.{name}"])
            },
            "returns": returns.get(number, []),
            "seconds": round(float(trial["seconds"]), 2),
            "state": trial["state"],
        }


def known(value: Any) -> bool:
    """Whether a configuration has the dimension: those of conditions may be missing."""
    return not (value is None or (isinstance(value, float) and math.isnan(value)))


def plain(value: Any) -> Any:
    """Return a number or a choice in plain types, rounded as people write it."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return float(f"{value:.4g}") if isinstance(value, float) else value


def end(curve: Sequence[float]) -> float:
    """Return the objective of a curve at its end; -inf where it has none."""
    return objective_of(list(curve), DEFAULT) if curve else -math.inf


def candidates(agent: str) -> list[dict[str, Any]]:
    """Return what is tried everywhere: known-good settings, and the best of each search.

    Those of the latest space come first. ``of`` are the environments that a candidate is known
    from, several where searches found the same one; a choice that leaves one of them out must not
    have it.
    """
    found: list[dict[str, Any]] = [
        {"name": f"{preset.name} {preset.env[0]}", "of": list(preset.env), "config": preset.values}
        for preset in presets(agent)
        if preset.name == "zoo" and preset.env and not preset.env[0].startswith("ALE/")
    ]
    latest = sorted(searches(agent), key=number_of, reverse=True)
    for number, env in dict.fromkeys((number_of(row), row["env"]) for row in latest):
        own = [
            trial
            for row in searches(agent)
            for trial in row["trials"]
            if (number_of(row), row["env"]) == (number, env)
            and trial["origin"] == "sampler"
            and trial["state"] == "COMPLETE"
        ]
        own.sort(key=lambda trial: end(trial["returns"]), reverse=True)
        best, first = own[: BEST[agent]], number * BEST[agent]
        for i, trial in enumerate(best, first):
            same = [one for one in found if one["config"] == trial["values"]]
            if same:
                same[0]["of"] = [*dict.fromkeys([*same[0]["of"], env])]
            else:
                found.append({"name": f"search {env} {i}", "of": [env], "config": trial["values"]})
    return found


def measure(agent: str, tasks: Sequence[Task], seeds: Sequence[int] = SEEDS) -> None:
    """Train every candidate on every environment, where that is missing."""
    rows = [row for row in read(file_of(agent)) if row["what"] == "training"]
    done = {(row["name"], row["env"], row["seed"]) for row in rows}
    early: dict[str, list[float]] = {task.env: [] for task in tasks}
    for row in rows:
        if row["env"] in early and len(row["returns"]) >= JUDGED_AFTER:
            early[row["env"]].append(end(row["returns"][:JUDGED_AFTER]))
    for seed in seeds:
        for candidate in candidates(agent):
            for task in tasks:
                if (candidate["name"], task.env, seed) in done:
                    continue
                row = {"what": "training", "name": candidate["name"], "env": task.env, "seed": seed}
                found = train(agent, task, candidate["config"], seed, early[task.env])
                append(file_of(agent), {**row, **found, "when": time.strftime("%Y-%m-%d")})


def train(
    agent: str, task: Task, values: dict[str, Any], seed: int, early: list[float]
) -> dict[str, Any]:
    """Train a configuration.

    A training has no further values once it has diverged, or is among the lower half of those
    before it at a third of the env steps.

    Args:
        agent, task, values, seed: of the training
        early: what trainings on this environment had then; this one's is added
    """
    space = Space.load(agent)
    config = split(space.resolve(values), {}, task.budget).config
    started, returns = time.process_time(), list[float]()
    trained = Agent(
        agent, task.env, config, total_timesteps=task.budget, seed=seed, device="cpu"
    )  # fmt: skip
    for k in range(1, EVALUATIONS + 1):
        if trained.learn(round(task.budget * k / EVALUATIONS)).diverged:
            break
        returns.append(round(trained.evaluate(EPISODES).mean, 3))
        if k == JUDGED_AFTER:
            early.append(end(returns))
            if len(early) >= ENOUGH and early[-1] < median(early):
                break
    trained.close()
    seconds = (time.process_time() - started) * EVALUATIONS / max(1, len(returns))
    return {"returns": returns, "seconds": round(seconds, 2)}
