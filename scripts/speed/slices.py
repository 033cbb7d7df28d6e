"""One timed part of a training, in this process: rltune's, Stable-Baselines3's, RLlib's."""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Callable
from typing import Any

from speed.rows import Row

Slice = dict[str, Any]  # "env_steps" and "cpu_seconds"; rltune's: "engine", too


def cpu_seconds() -> float:
    """Return the CPU time of all threads of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def train_rltune(row: Row, seed: int, engine: str | None) -> Slice:
    agent = make_rltune(row, seed, engine)
    agent.learn(row.first)
    started, from_step = cpu_seconds(), agent.env_steps
    agent.learn(row.last)
    spent = cpu_seconds() - started
    return {
        "env_steps": agent.env_steps - from_step,
        "cpu_seconds": round(spent, 3),
        "engine": getattr(agent, "engine", "torch"),  # before there were two, it was torch
    }


def make_rltune(row: Row, seed: int, engine: str | None) -> Any:
    from rltune.agents.loop.agent import Agent

    asked: dict[str, Any] = {} if engine is None else {"engine": engine}
    return Agent(
        row.agent, row.env, row.settings(),
        total_timesteps=row.total, seed=seed, device="cpu", **asked,
    )  # fmt: skip


def train_sb3(row: Row, seed: int, engine: str | None) -> Slice:
    from benchmark_agents import sb3_model
    from stable_baselines3.common.callbacks import BaseCallback

    found: Slice = {}

    class Clock(BaseCallback):  # type: ignore[misc]
        """Begins and ends where an update has just been made, as `Agent.learn` does."""

        def _on_rollout_start(self) -> None:
            if self.num_timesteps >= row.first and not found:
                found.update(started=cpu_seconds(), from_step=self.num_timesteps)
            elif self.num_timesteps >= row.last and "cpu_seconds" not in found:
                self.stop()

        def _on_step(self) -> bool:
            return "cpu_seconds" not in found

        def stop(self) -> None:
            found["cpu_seconds"] = round(cpu_seconds() - found["started"], 3)
            found["env_steps"] = self.num_timesteps - found["from_step"]

    clock = Clock()
    sb3_model(row.agent, row.env, row.settings(), seed).learn(row.total, callback=clock)
    if "cpu_seconds" not in found:  # the window is the rest of the training
        clock.stop()
    return {name: found[name] for name in ("env_steps", "cpu_seconds")}


def train_rllib(row: Row, seed: int, engine: str | None) -> Slice:
    """Train RLlib's PPO with one local env runner; Ray's processes count, as it needs them.

    They work a little all the time, so on a busy machine they count for longer.
    """
    import ray

    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    algorithm = rllib_ppo(row, seed).build_algo()

    def train(until: int) -> int:
        steps = 0
        while steps < until:
            steps = int(algorithm.train()["num_env_steps_sampled_lifetime"])
        return steps

    from_step = train(row.first)
    started = cpu_seconds_of_all()
    env_steps = train(row.last) - from_step
    spent = cpu_seconds_of_all() - started
    algorithm.stop()
    ray.shutdown()
    return {"env_steps": env_steps, "cpu_seconds": round(spent, 3)}


def cpu_seconds_of_all() -> float:
    """Return the CPU time of this process and of all below it that live."""
    import psutil

    total = 0.0
    me = psutil.Process(os.getpid())
    for process in (me, *me.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def rllib_ppo(row: Row, seed: int) -> Any:
    """Return RLlib's configuration; it has no schedule of clip_range, and takes its first value."""
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from rltune.agents.config import config_dict, make_config
    from rltune.agents.registry import agent_class
    from rltune.agents.schedules import value_at

    values = config_dict(make_config(agent_class(row.agent).Config, row.settings()))
    rate = values["learning_rate"]
    rows = values["n_steps"] * values["n_envs"]
    return (
        PPOConfig()
        .environment(row.env)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=values["n_envs"])
        .learners(num_learners=0)
        .training(
            lr=[[0, value_at(rate, 0.0)], [row.total, value_at(rate, 1.0)]],
            gamma=values["gamma"],
            lambda_=values["gae_lambda"],
            clip_param=value_at(values["clip_range"], 0.0),
            vf_clip_param=math.inf,
            vf_loss_coeff=values["vf_coef"],
            entropy_coeff=values["ent_coef"],
            use_kl_loss=False,
            grad_clip=values["max_grad_norm"],
            grad_clip_by="global_norm",
            train_batch_size_per_learner=rows,
            minibatch_size=min(values["batch_size"], rows),
            num_epochs=values["n_epochs"],
        )
        .rl_module(
            model_config=DefaultModelConfig(
                fcnet_hiddens=list(values["net_arch"]),
                fcnet_activation=values["activation"],
                vf_share_layers=False,
            )
        )
        .debugging(seed=seed, log_level="ERROR")
    )


TRAIN: dict[str, Callable[[Row, int, str | None], Slice]] = {
    "rltune": train_rltune,
    "sb3": train_sb3,
    "rllib": train_rllib,
}
