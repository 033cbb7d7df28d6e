"""Benchmark every agent against Stable-Baselines3: same settings, seeds, budget and evaluation.

    pip install stable-baselines3==2.9.2 sb3-contrib==2.9.2
    python scripts/benchmark_agents.py run       # resumable: continues where it was stopped
    python scripts/benchmark_agents.py table     # the tables of docs/measurements.md
    python scripts/benchmark_agents.py pictures  # the learning curves, to docs/images

The settings are presets of search_spaces/: rl-zoo3's where it has some, otherwise our own. The two
libraries take turns; each training runs in its own process with one thread. The score is the mean
return of 100 greedy episodes after it, with the same starts for both. CPU-seconds of different days
are of different machines; `benchmark_speed.py` compares speeds. Measurements are stored in
docs/benchmarks/, so the reference's runs need not be repeated. Ours without an engine are older
than the kernels: PyTorch computed them. They are run again, and a row of the table has them as long
as there is none that names its engine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

from json_lines import append, read
from markdown_tables import heading, line

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "benchmarks" / "agents.jsonl"
IMAGES = ROOT / "docs" / "images"
EPISODES = 100
EVALUATION_SEED = 10_000
FRESH = 200  # seeds from here on were run to see whether what others showed was chance: rows apart
BINS = 20  # of a learning curve


class Comparison(NamedTuple):
    """One row of the table; ``preset`` names the settings in the agent's search space."""

    env: str
    agent: str
    budget: int  # env steps
    seeds: int = 5
    preset: str = "zoo"
    first_seed: int = 0
    planned: int = 0  # env steps that schedules count to, of a training that ends early: no score


# Without a reference implementation: ACER and SAC with discrete actions.
COMPARISONS = [
    Comparison("CartPole-v1", "a2c", 200_000),
    Comparison("CartPole-v1", "a2c", 100_000),  # what ACER has to reach
    Comparison("CartPole-v1", "acer", 100_000, 5, "normalised"),
    Comparison("CartPole-v1", "dqn", 50_000),
    Comparison("CartPole-v1", "ppo", 100_000, 10),
    # Fresh seeds: is the difference in the row above chance? The first half, and the whole.
    Comparison("CartPole-v1", "ppo", 50_000, 100, first_seed=200, planned=100_000),
    Comparison("CartPole-v1", "ppo", 100_000, 42, first_seed=300),
    Comparison("CartPole-v1", "ppo", 150_000, 5, "xagents"),
    Comparison("CartPole-v1", "trpo", 100_000),
    Comparison("CartPole-v1", "sac", 100_000, 5, "choices"),
    Comparison("Acrobot-v1", "a2c", 200_000),
    Comparison("Acrobot-v1", "acer", 200_000, 5, "normalised"),
    Comparison("Acrobot-v1", "dqn", 100_000),
    Comparison("Acrobot-v1", "ppo", 200_000),
    Comparison("Acrobot-v1", "trpo", 200_000),
    Comparison("Pendulum-v1", "a2c", 300_000),
    Comparison("Pendulum-v1", "ddpg", 15_000),
    Comparison("Pendulum-v1", "ppo", 100_000, 20),
    Comparison("Pendulum-v1", "sac", 15_000),
    Comparison("Pendulum-v1", "td3", 15_000),
    Comparison("Pendulum-v1", "trpo", 100_000),
    Comparison("LunarLander-v3", "a2c", 300_000),
    Comparison("LunarLander-v3", "acer", 300_000, 5, "normalised"),
    Comparison("LunarLander-v3", "dqn", 100_000),
    Comparison("LunarLander-v3", "ppo", 300_000, 15),
    Comparison("LunarLander-v3", "ppo", 1_000_000, 10),
    # Fresh seeds for the same reason, up to 900,000 env steps.
    Comparison("LunarLander-v3", "ppo", 900_000, 30, first_seed=200, planned=1_000_000),
    Comparison("LunarLanderContinuous-v3", "sac", 60_000, 3),
    Comparison("LunarLanderContinuous-v3", "td3", 60_000, 3),
    Comparison("HalfCheetah-v5", "ppo", 300_000, 3),
    Comparison("HalfCheetah-v5", "trpo", 300_000, 8),
    Comparison("HalfCheetah-v5", "sac", 50_000, 3),
    Comparison("HalfCheetah-v5", "td3", 50_000, 8),
    Comparison("ALE/Pong-v5", "dqn", 300_000, 2),
    Comparison("ALE/Pong-v5", "ppo", 300_000, 1),
]
# With this setting xagents reached a mean reward of 250 after 376,832 env steps.
XAGENTS = dict(
    n_envs=16, n_steps=1024, batch_size=256, n_epochs=10, learning_rate=3e-4,
    normalize_observations=False, normalize_rewards=False,
)  # fmt: skip
KEYS = ("preset", "env", "agent", "budget", "seed", "library")


def settings(agent: str, env: str, preset: str) -> dict[str, Any]:
    """Return the preset's values for the environment."""
    import rltune

    return dict(XAGENTS) if preset == "xagents" else rltune.preset(agent, env, preset)


# ------------------------------------------------------------------------------------ one training


def train_ours(job: dict[str, Any]) -> dict[str, Any]:
    from rltune.agents.loop.agent import Agent

    values = settings(job["agent"], job["env"], job["preset"])
    agent = Agent(
        job["agent"], job["env"], values,
        total_timesteps=planned(job), seed=job["seed"], device="cpu",
    )  # fmt: skip
    started = cpu_seconds()
    chunk = agent.learn(job["budget"])
    seconds = cpu_seconds() - started
    returns = [e.episode_return for e in chunk.episodes]
    steps = [e.env_steps for e in chunk.episodes]
    scores = [] if job.get("planned") else agent.evaluate(EPISODES, seed=EVALUATION_SEED).returns
    return {**outcome(agent.env_steps, seconds, returns, steps, scores), "engine": agent.engine}


def planned(job: dict[str, Any]) -> int:
    """Return the number of env steps at which the schedules end."""
    return int(job.get("planned") or job["budget"])


def train_sb3(job: dict[str, Any]) -> dict[str, Any]:
    from stable_baselines3.common.callbacks import BaseCallback

    values = settings(job["agent"], job["env"], job["preset"])
    model = sb3_model(job["agent"], job["env"], values, job["seed"])
    returns: list[float] = []
    steps: list[int] = []

    class Record(BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            for info in self.locals["infos"]:
                if "episode" in info:
                    returns.append(float(info["episode"]["r"]))
                    steps.append(self.num_timesteps)
            return not job.get("planned") or self.num_timesteps < job["budget"]

    started = cpu_seconds()
    model.learn(planned(job), callback=Record())
    seconds = cpu_seconds() - started
    scores = [] if job.get("planned") else sb3_scores(model, job["env"], EPISODES)
    return outcome(model.num_timesteps, seconds, returns, steps, scores)


def sb3_model(agent: str, env: str, values: dict[str, Any], seed: int, device: str = "cpu") -> Any:
    """Return Stable-Baselines3's model with our hyperparameters, and its environments."""
    import torch
    from rltune.agents.config import config_dict, make_config
    from rltune.agents.registry import agent_class
    from rltune.exporting.sb3_words import arguments, look_at, translate
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    config = config_dict(make_config(agent_class(agent).Config, values))
    words = translate(agent, config, look_at(env))
    vec: Any = make_vec_env(partial(maker(env), env), n_envs=words.n_envs, seed=seed)
    if words.normalize:
        vec = VecNormalize(vec, gamma=config["gamma"], **words.normalize)
    found, said = arguments(words, vec.action_space)
    return found(words.policy, vec, seed=seed, device=device, **said)


def maker(env: str) -> Callable[..., Any]:
    """Return a function that makes the environment, with our frames for both libraries."""
    import gymnasium
    from rltune.agents.envs.make import is_atari
    from rltune.agents.envs.vector import make_env

    return partial(make_env, frame_stack=4) if is_atari(env) else gymnasium.make


def sb3_scores(model: Any, env: str, episodes: int, seed: int = EVALUATION_SEED) -> list[float]:
    """Return the returns of greedy episodes, with the same starts as our evaluation."""
    from rltune.agents.envs.vector import episode_seed

    vec = model.get_vec_normalize_env()
    scores = []
    judge = maker(env)(env)
    for number in range(episodes):
        obs, _ = judge.reset(seed=episode_seed(seed, number))
        score, done = 0.0, False
        while not done:
            seen = vec.normalize_obs(obs) if vec is not None and vec.norm_obs else obs
            action, _ = model.predict(seen, deterministic=True)
            obs, reward, terminated, truncated, _ = judge.step(action)
            score, done = score + float(reward), terminated or truncated
        scores.append(score)
    return scores


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def outcome(
    env_steps: int, seconds: float, returns: list[float], steps: list[int], scores: list[float]
) -> dict[str, Any]:
    bins: list[list[float]] = [[] for _ in range(BINS)]
    for value, at in zip(returns, steps, strict=True):
        bins[min(BINS - 1, (at - 1) * BINS // env_steps)].append(value)
    reached = {}
    for threshold in (250, 475):
        for end in range(100, len(returns) + 1):
            if sum(returns[end - 100 : end]) / 100 >= threshold:
                reached[str(threshold)] = steps[end - 1]
                break
    return {
        "env_steps": env_steps,
        "cpu_seconds": round(seconds, 2),
        "steps_per_cpu_second": round(env_steps / seconds, 1),
        "curve": [round(sum(part) / len(part), 2) if part else None for part in bins],
        "training_return": sum(returns[-100:]) / max(1, len(returns[-100:])),
        "score": sum(scores) / len(scores) if scores else None,
        "mean_of_100_reached": reached,
    }


# ------------------------------------------------------------------------------------ all of them


def jobs() -> Iterator[dict[str, Any]]:
    """Yield the trainings: the first seed of every row, then the second, and so on."""
    for number in range(max(comparison.seeds for comparison in COMPARISONS)):
        for row in COMPARISONS:
            if number >= row.seeds:
                continue
            for library in ("rltune", "sb3"):
                if library == "sb3" and row.preset != "zoo":
                    continue
                yield dict(
                    preset=row.preset, env=row.env, agent=row.agent, budget=row.budget,
                    seed=row.first_seed + number, library=library,
                    **({"planned": row.planned} if row.planned else {}),
                )  # fmt: skip


def run(results: Path, only: dict[str, Any]) -> None:
    current = [row for row in read(results) if row["library"] == "sb3" or "engine" in row]
    done = {tuple(row[key] for key in KEYS) for row in current}
    for job in jobs():
        wanted = all(str(job[key]) in values for key, values in only.items() if values)
        if not wanted or tuple(job[key] for key in KEYS) in done:
            continue
        command = [sys.executable, __file__, "one", json.dumps(job)]
        result = subprocess.run(command, check=False, capture_output=True, text=True)
        if result.returncode:
            print(f"{job} failed:\n{result.stderr[-2000:]}", flush=True)
            continue
        row = json.loads(result.stdout.strip().splitlines()[-1])
        append(results, row)
        print(*(row[key] for key in KEYS), f"score {row['score'] or 0:.1f}", flush=True)


def one(job: dict[str, Any]) -> None:
    row = train_ours(job) if job["library"] == "rltune" else train_sb3(job)
    names = ["rltune", "torch", "gymnasium"]
    if job["library"] == "sb3":
        names = ["sb3-contrib" if job["agent"] == "trpo" else "stable-baselines3", *names[1:]]
    versions = {name: version(name) for name in names}
    print(json.dumps({**job, **row, "when": time.strftime("%Y-%m-%d"), "versions": versions}))


def area(row: dict[str, Any]) -> float:
    """Return the area: the mean of the learning curve, over equal parts of the env steps."""
    known = [value for value in filled(row["curve"]) if value is not None]
    return float(sum(known) / len(known))


def filled(curve: list[float | None]) -> list[float | None]:
    """Return the curve; a part in which no episode ended repeats the part before."""
    result: list[float | None] = []
    for value in curve:
        result.append(result[-1] if value is None and result else value)
    return result


Group = dict[str, list[dict[str, Any]]]  # by library


Key = tuple[str, str, str, int, bool]  # environment, agent, preset, budget, fresh seeds


def grouped(rows: list[dict[str, Any]]) -> dict[Key, Group]:
    groups: dict[Key, Group] = {}
    for row in rows:
        key = (row["env"], row["agent"], row["preset"], row["budget"], row["seed"] >= FRESH)
        groups.setdefault(key, {}).setdefault(row["library"], []).append(row)
    for group in groups.values():
        current = [row for row in group.get("rltune", []) if "engine" in row]
        if current:
            group["rltune"] = current
    order = {
        (c.env, c.agent, c.preset, c.budget, c.first_seed >= FRESH): i
        for i, c in enumerate(COMPARISONS)
    }
    return dict(sorted(groups.items(), key=lambda item: order[item[0]]))


def table(results: Path) -> None:
    rows = read(results)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    versions = sorted({f"{n} {v}" for row in rows for n, v in row["versions"].items()})
    print(f"{max(row['when'] for row in rows)}; {', '.join(versions)}; {machine}\n")
    compared = ("score: ours", "the reference's", "area: ours", "the reference's")
    heading(["environment", "agent", "env steps", "seeds", *compared])
    for (env, agent, preset, _, _), group in grouped(rows).items():
        ours, theirs = group.get("rltune", []), group.get("sb3", [])
        if not ours:
            continue
        counts = str(len(ours)) if len(ours) == len(theirs) or not theirs else (
            f"{len(ours)}, {len(theirs)}"
        )  # fmt: skip
        cells = [env, named(agent, preset, ours), f"{ours[0]['env_steps']:,}", counts]
        for value in (lambda row: row["score"], area):
            mine, reference = interval(ours, value), interval(theirs, value)
            enough = min(len(ours), len(theirs)) >= 3  # fewer say nothing
            below = enough and mine is not None and reference is not None and mine[0] < reference[1]
            cells += [shown(mine) + (" **below**" if below else ""), shown(reference)]
        line(cells)
    for (env, agent, preset, budget, _), group in grouped(rows).items():
        if env == "CartPole-v1" and agent == "ppo" and budget >= 100_000:
            for library, mine in group.items():
                print(f"\n{reached(library, preset, mine)}")


def named(agent: str, preset: str, rows: list[dict[str, Any]]) -> str:
    early = f", the first of {planned(rows[0]):,}" if rows[0].get("planned") else ""
    fresh = ", fresh seeds" if rows[0]["seed"] >= FRESH else ""
    engine = f", {rows[0]['engine']}" if "engine" in rows[0] else ""
    return (agent if preset == "zoo" else f"{agent} ({preset})") + engine + early + fresh


def interval(
    rows: list[dict[str, Any]], value: Callable[[dict[str, Any]], float | None]
) -> tuple[float, float, float] | None:
    """Return the interquartile mean and the ends of its 95 % interval."""
    from rltune.stats.estimates import FEW_RUNS, alike, bootstrap_interval, iqm

    values = [known for row in rows if (known := value(row)) is not None]
    if not values:
        return None
    low, high = bootstrap_interval(values)
    if len(values) >= FEW_RUNS and alike(values):
        low = high = values[0]  # what is below a reference that always reached its cap is below it
    return iqm(values), low, high


def shown(values: tuple[float, float, float] | None) -> str:
    if not values:
        return "-"
    known = values[1] > float("-inf")
    return f"{values[0]:.1f}" + (f" [{values[1]:.1f}, {values[2]:.1f}]" if known else "")


def reached(library: str, preset: str, rows: list[dict[str, Any]]) -> str:
    from statistics import median

    threshold = "475" if preset == "zoo" else "250"
    found = [row["mean_of_100_reached"].get(threshold) for row in rows]
    steps = [value for value in found if value is not None]
    at = f", median {median(steps):,.0f} env steps" if steps else ""
    name = named("ppo", "zoo", rows)
    return (
        f"{library}, {name}, CartPole-v1, {preset} settings: the mean of 100 training episodes "
        f"reached {threshold} in {len(steps)} of {len(rows)} seeds{at}."
    )


def pictures(results: Path, images: Path) -> None:
    """Draw the learning curves of each environment: mean and range over the seeds."""
    import matplotlib

    matplotlib.use("Agg")
    import numpy as np
    from matplotlib import pyplot

    groups = grouped(read(results))
    for env in dict.fromkeys(key[0] for key in groups):
        mine = {key: group for key, group in groups.items() if key[0] == env}
        columns = min(3, len(mine))
        lines = -(-len(mine) // columns)
        figure, axes = pyplot.subplots(
            lines, columns, figsize=(4.2 * columns, 3.0 * lines), squeeze=False
        )
        for axis, ((_, agent, preset, budget, _), group) in zip(
            axes.flat, mine.items(), strict=False
        ):
            for library, colour in (("sb3", "tab:orange"), ("rltune", "tab:blue")):
                if library not in group:
                    continue
                curves = np.array([filled(row["curve"]) for row in group[library]], float)
                at = (np.arange(BINS) + 0.5) / BINS * budget / 1000
                label = f"{library}, {len(curves)} seed{'s' * (len(curves) > 1)}"
                axis.plot(at, np.nanmean(curves, 0), color=colour, label=label)
                axis.fill_between(
                    at, np.nanmin(curves, 0), np.nanmax(curves, 0), color=colour, alpha=0.15, lw=0
                )
            axis.set_title(named(agent, preset, group["rltune"]), fontsize=10)
            axis.set_xlabel("thousand env steps", fontsize=8)
            axis.tick_params(labelsize=8)
            axis.legend(fontsize=7, frameon=False)
        for axis in axes.flat[len(mine) :]:
            axis.set_visible(False)
        figure.suptitle(f"{env}: training returns, mean and range over seeds", fontsize=11)
        figure.tight_layout()
        path = images / f"benchmark-{env.split('/')[-1]}.png"
        figure.savefig(path, dpi=110)
        pyplot.close(figure)
        print(path.relative_to(ROOT))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("run", "table", "pictures", "one"))
    parser.add_argument("job", nargs="?")
    parser.add_argument("--results", type=Path, default=RESULTS)
    for name in KEYS:
        parser.add_argument(f"--{name}", nargs="+", help="only these")
    args = parser.parse_args()
    if args.what == "one":
        one(json.loads(args.job))
    elif args.what == "run":
        run(args.results, {key: getattr(args, key) for key in KEYS})
    elif args.what == "table":
        table(args.results)
    else:
        pictures(args.results, IMAGES)


if __name__ == "__main__":
    main()
