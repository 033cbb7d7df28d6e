"""A backend: hill climbing on the weights of a linear policy, for a choice among actions.

A trainer knows nothing of searches; rltune trains, evaluates, saves and resumes it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from rltune.agents import UserError, hp
from rltune.agents.config import make_config
from rltune.agents.loop.evaluation import Seeds, evaluation_envs, run_episodes
from rltune.agents.loop.results import Chunk, Episode, Evaluation
from rltune.backends.base import Backend
from rltune.backends.trainer import BaseTrainer


@dataclass(frozen=True, kw_only=True)
class HillConfig:
    noise: float = hp(0.1, low=0.01, high=1.0, scale="log", help="size of a change of the weights")
    episodes: int = hp(1, low=1, high=10, minimum=1, help="episodes that judge a change")


class HillClimber(BaseTrainer):
    """What `rltune.backends.base.Trainer` asks for and `BaseTrainer` does not have."""

    engine = "numpy"
    env_steps = 0

    def __init__(
        self, algorithm, env, config=None, *, total_timesteps, seed=0, device="auto",
        controls=None, env_kwargs=None, engine="auto",
    ) -> None:  # fmt: skip
        super().__init__(
            algorithm, env, make_config(HillConfig, config or {}), total_timesteps=total_timesteps,
            seed=seed, controls=controls, env_kwargs=env_kwargs,
        )  # fmt: skip
        with gymnasium.make(env, **self.env_kwargs) as made:
            self.observation_space, self.action_space = made.observation_space, made.action_space
        shape = (self.observation_space.shape[0], int(self.action_space.n))
        self.weights, self.score, self.tries = np.zeros(shape), -math.inf, 0

    def learn(self, until: int, deadline: float | None = None) -> Chunk:
        """A try is never cut, so it goes beyond `until` by less than one."""
        started, episodes, scores = time.perf_counter(), [], []
        while self.env_steps < until and not self.finished:
            rng = np.random.default_rng([self.seed, self.tries])  # so a resumed one is exact
            weights = self.weights + self.config.noise * rng.normal(size=self.weights.shape)
            found = self._run(weights, self.config.episodes, int(rng.integers(2**31)))
            self.tries += 1
            for value, length in zip(found.returns, found.lengths, strict=True):
                self.env_steps += length
                self.monitor.episode(value, self.env_steps)
                episodes.append(Episode(self.env_steps, value, length, time.time()))
            if found.mean >= self.score:
                self.weights, self.score = weights, found.mean
            scores.append(self.score)
            if deadline is not None and time.time() >= deadline:
                break
        return Chunk(
            env_steps=self.env_steps, seconds=time.perf_counter() - started,
            values={"score": scores} if scores else {}, episodes=episodes,
            mean_reward=self.monitor.mean_reward, best_reward=self.monitor.best_reward,
            stop_reason=self.stop_reason, diverged=None, updates=len(scores), engine=self.engine,
        )  # fmt: skip

    def evaluate(
        self, episodes=10, seed=None, max_steps=None, mode="greedy", *, first=0
    ) -> Evaluation:
        seed = Seeds.of(self.seed).evaluation if seed is None else seed
        return self._run(self.weights, episodes, seed, max_steps, first)

    def _run(self, weights, episodes, seed, max_steps=None, first=0) -> Evaluation:
        around = {"env_kwargs": self.env_kwargs, "max_steps": max_steps}
        envs = evaluation_envs(self.env, episodes, seed=seed, **around)
        return run_episodes(envs, lambda obs, begins: (obs @ weights).argmax(1), episodes, first)

    def _state(self, *, memory) -> dict[str, Any]:
        """Tensors and plain Python alone: a checkpoint is read without trusting it."""
        weights = torch.from_numpy(self.weights)
        return {"weights": weights, "score": self.score, "tries": self.tries}

    def _take_over(self, state) -> None:
        self.weights, self.env_steps = state["weights"].numpy(), state["env_steps"]
        self.score, self.tries = state["score"], state["tries"]

    def with_config(self, config: Mapping[str, object]) -> HillClimber:
        self.config = make_config(HillConfig, config)
        return self

    def close(self) -> None:
        """Its environments are closed after each try."""


class HillBackend(Backend):
    name = "hill climbing"
    prefix = "hill:"
    # What its agents can't do.
    starts_from_weights = False
    eval_modes = ("greedy",)
    engines = ("auto", "numpy")

    def agents(self) -> list[str]:
        return ["hill:linear"]

    def config_class(self, agent: str) -> type[Any]:
        if agent not in self.agents():
            raise UserError(f"unknown agent {agent!r}; hill climbing has hill:linear")
        return HillConfig

    def trainer(self, agent: str) -> type[Any]:
        return HillClimber

    def check_fit(
        self,
        agent: str,
        env: str,
        configs: Sequence[Mapping[str, Any]],
        env_kwargs: Mapping[str, Any],
        *,
        has_data: bool,
    ) -> None:
        with gymnasium.make(env, **env_kwargs) as made:
            spaces = made.observation_space, made.action_space
        if not isinstance(spaces[1], gymnasium.spaces.Discrete) or len(spaces[0].shape or ()) != 1:
            raise UserError(f"{agent} reads vectors and chooses among actions; {env} is none such")
        for config in configs:
            make_config(HillConfig, config)
