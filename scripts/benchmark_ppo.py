"""Hold PPO against Stable-Baselines3: the same settings, seeds, budgets and evaluation, in turn.

    pip install stable-baselines3==2.9.2
    python scripts/benchmark_ppo.py run      # resumable: goes on where it was stopped
    python scripts/benchmark_ppo.py table    # the table of docs/benchmarks.md

Each training runs in a process of its own with one thread. Speed is environment steps per
CPU-second of the training alone; the score is the mean return of 100 greedy episodes after it,
the same starts for both.
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
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

# rl-zoo3's settings (figures only), in our names. LunarLander-v3 takes those of -v2.
SETTINGS: dict[str, dict[str, Any]] = {
    "CartPole-v1": dict(
        n_envs=8, n_steps=32, batch_size=256, gae_lambda=0.8, gamma=0.98, n_epochs=20,
        ent_coef=0.0, learning_rate="lin_1e-3", clip_range="lin_0.2",
    ),
    "Acrobot-v1": dict(
        n_envs=16, n_steps=256, batch_size=64, gae_lambda=0.94, gamma=0.99, n_epochs=4,
        ent_coef=0.0, learning_rate=3e-4, clip_range=0.2,
        normalize_observations=True, normalize_rewards=True,
    ),
    "Pendulum-v1": dict(
        n_envs=4, n_steps=1024, batch_size=64, gae_lambda=0.95, gamma=0.9, n_epochs=10,
        ent_coef=0.0, learning_rate=1e-3, clip_range=0.2, use_sde=True, sde_sample_freq=4,
    ),
    "LunarLander-v3": dict(
        n_envs=16, n_steps=1024, batch_size=64, gae_lambda=0.98, gamma=0.999, n_epochs=4,
        ent_coef=0.01, learning_rate=3e-4, clip_range=0.2,
    ),
}  # fmt: skip
# The setting of xagents, with which it had a mean reward of 250 after 376,832 steps.
ANCESTOR = dict(n_envs=16, n_steps=1024, batch_size=256, n_epochs=10, learning_rate=3e-4)
# Environment, environment steps and seeds.
COMPARISONS = [
    ("CartPole-v1", 100_000, 10),
    ("Acrobot-v1", 200_000, 5),
    ("Pendulum-v1", 100_000, 20),
    ("LunarLander-v3", 1_000_000, 5),
]
EPISODES = 100
EVALUATION_SEED = 10_000


def train_ours(env: str, seed: int, settings: dict[str, Any], budget: int) -> dict[str, Any]:
    from rltune.agents.agent import Agent

    plain = {
        "normalize_observations": False,
        "normalize_rewards": False,
    }  # as SB3 without its wrapper
    agent = Agent(
        "ppo", env, {**plain, **settings}, total_timesteps=budget, seed=seed, device="cpu"
    )
    started = cpu_seconds()
    chunk = agent.learn(budget)
    seconds = cpu_seconds() - started
    returns = [e.episode_return for e in chunk.episodes]
    steps = [e.env_steps for e in chunk.episodes]
    evaluation = agent.evaluate(EPISODES, seed=EVALUATION_SEED)
    return outcome(agent.env_steps, seconds, returns, steps, evaluation.returns)


def train_sb3(env: str, seed: int, settings: dict[str, Any], budget: int) -> dict[str, Any]:
    import gymnasium
    import torch
    from rltune.agents.envs import episode_seed
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    values = dict(settings)
    n_envs = values.pop("n_envs")
    normalize = values.pop("normalize_observations", False)
    values.pop("normalize_rewards", None)
    for name in ("learning_rate", "clip_range"):
        if isinstance(values.get(name), str):
            values[name] = linear(float(values[name].removeprefix("lin_")))
    vec = make_vec_env(env, n_envs=n_envs, seed=seed)
    if normalize:
        vec = VecNormalize(vec, gamma=values["gamma"])
    returns: list[float] = []
    steps: list[int] = []

    class Record(BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            for info in self.locals["infos"]:
                if "episode" in info:
                    returns.append(float(info["episode"]["r"]))
                    steps.append(self.num_timesteps)
            return True

    model = PPO("MlpPolicy", vec, seed=seed, device="cpu", **values)
    started = cpu_seconds()
    model.learn(budget, callback=Record())
    seconds = cpu_seconds() - started
    scores = []
    judge = gymnasium.make(env)
    for number in range(EPISODES):  # the starts that our own evaluation has
        obs, _ = judge.reset(seed=episode_seed(EVALUATION_SEED, number))
        score, done = 0.0, False
        while not done:
            seen = vec.normalize_obs(obs) if normalize else obs
            action, _ = model.predict(seen, deterministic=True)
            obs, reward, terminated, truncated, _ = judge.step(action)
            score, done = score + float(reward), terminated or truncated
        scores.append(score)
    return outcome(model.num_timesteps, seconds, returns, steps, scores)


def linear(start: float) -> Any:
    return lambda remaining: remaining * start


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def outcome(
    env_steps: int, seconds: float, returns: list[float], steps: list[int], scores: list[float]
) -> dict[str, Any]:
    tenths: list[list[float]] = [[] for _ in range(10)]
    for value, at in zip(returns, steps, strict=True):
        tenths[min(9, (at - 1) * 10 // env_steps)].append(value)
    reached = {}
    for threshold in (250, 475):
        for end in range(100, len(returns) + 1):
            if sum(returns[end - 100 : end]) / 100 >= threshold:
                reached[str(threshold)] = steps[end - 1]
                break
    return {
        "env_steps": env_steps,
        "cpu_seconds": seconds,
        "steps_per_cpu_second": env_steps / seconds,
        "curve": [sum(tenth) / len(tenth) if tenth else None for tenth in tenths],
        "training_return": sum(returns[-100:]) / max(1, len(returns[-100:])),
        "score": sum(scores) / len(scores),
        "mean_of_100_reached": reached,
    }


def jobs() -> list[dict[str, Any]]:
    rows = []
    for env, budget, seeds in COMPARISONS:
        for seed in range(seeds):
            for library in ("rltune", "sb3"):
                rows.append(dict(setting="zoo", env=env, budget=budget, seed=seed,
                                 library=library, settings=SETTINGS[env]))  # fmt: skip
    for seed in range(5):
        rows.append(dict(setting="xagents", env="CartPole-v1", budget=150_000, seed=seed,
                         library="rltune", settings=ANCESTOR))  # fmt: skip
    return rows


KEYS = ("setting", "env", "budget", "seed", "library")


def run(results: Path, env: str | None, budget: int | None) -> None:
    results.parent.mkdir(parents=True, exist_ok=True)
    done = {tuple(row[k] for k in KEYS) for row in read(results)}
    for job in jobs():
        if tuple(job[k] for k in KEYS) in done:
            continue
        if (env and env != job["env"]) or (budget and budget != job["budget"]):
            continue
        command = [sys.executable, __file__, "one", json.dumps(job)]
        line = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        with results.open("a") as file:
            file.write(line.strip().splitlines()[-1] + "\n")
        print(line.strip().splitlines()[-1][:160], flush=True)


def one(job: dict[str, Any]) -> None:
    train = train_ours if job["library"] == "rltune" else train_sb3
    row = {key: job[key] for key in KEYS}
    row |= train(job["env"], job["seed"], job["settings"], job["budget"])
    print(json.dumps({**row, "when": time.strftime("%Y-%m-%d")}))


def read(results: Path) -> list[dict[str, Any]]:
    return (
        [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    )


def table(results: Path) -> None:
    from statistics import median

    from rltune.stats import bootstrap_interval, iqm

    rows = read(results)
    names = ("rltune", "torch", "gymnasium", "stable-baselines3")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(f"{max(row['when'] for row in rows)}; {versions}; {machine}\n")
    print(
        "| environment | env steps | library | seeds | score: IQM [95 %] | steps per CPU-second |"
    )
    print("|---|---|---|---|---|---|")
    groups: dict[tuple[str, str, int, str], list[dict[str, Any]]] = {}
    for row in rows:
        key = (row["setting"], row["env"], row["budget"], row["library"])
        groups.setdefault(key, []).append(row)
    for (setting, env, _, library), mine in sorted(groups.items(), reverse=True):
        scores = [row["score"] for row in mine]
        low, high = bootstrap_interval(scores)
        speed = median(row["steps_per_cpu_second"] for row in mine)
        print(
            f"| {env} ({setting}) | {mine[0]['env_steps']:,} | {library} | {len(mine)} "
            f"| {iqm(scores):.1f} [{low:.1f}, {high:.1f}] | {speed:,.0f} |"
        )
    for (setting, env, _, library), mine in sorted(groups.items(), reverse=True):
        if env != "CartPole-v1":
            continue
        threshold = "475" if setting == "zoo" else "250"
        reached = [row["mean_of_100_reached"].get(threshold) for row in mine]
        steps = [value for value in reached if value is not None]
        at = f", median {median(steps):,.0f} env steps" if steps else ""
        print(
            f"\n{library}, {env}, {setting} settings: the mean of 100 training episodes reached "
            f"{threshold} in {len(steps)} of {len(mine)} seeds{at}."
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "table", "one"))
    parser.add_argument("job", nargs="?")
    parser.add_argument("--results", type=Path, default=Path("runs/benchmark-ppo.jsonl"))
    parser.add_argument("--env", help="only this one")
    parser.add_argument("--budget", type=int, help="only this one")
    args = parser.parse_args()
    if args.what == "one":
        one(json.loads(args.job))
    elif args.what == "run":
        run(args.results, args.env, args.budget)
    else:
        table(args.results)


if __name__ == "__main__":
    main()
