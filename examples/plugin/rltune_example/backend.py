"""A backend: hill climbing on the weights of a linear policy, for a choice among actions.

A trainer knows nothing of searches; rltune trains, evaluates, saves and resumes it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import torch
from rltune.agents import UserError, hp
from rltune.agents.config import make_config
from rltune.agents.loop import checkpoint
from rltune.agents.loop.controls import Controls, Monitor
from rltune.agents.loop.evaluation import Seeds, evaluation_envs, run_episodes
from rltune.agents.loop.results import Chunk, Episode, Evaluation
from rltune.backends.base import Backend


@dataclass(frozen=True, kw_only=True)
class HillConfig:
    noise: float = hp(0.1, low=0.01, high=1.0, scale="log", help="size of a change of the weights")
    episodes: int = hp(1, low=1, high=10, minimum=1, help="episodes that judge a change")


class HillClimber:
    """What `rltune.backends.base.Trainer` asks for."""

    engine = "numpy"
    diverged = None
    replays = False
    view: ClassVar[dict[str, Any]] = {}

    def __init__(
        self, algorithm, env, config=None, *, total_timesteps, seed=0, device="auto",
        controls=None, env_kwargs=None, engine="auto",
    ) -> None:  # fmt: skip
        self.algorithm_spec, self.env, self.env_kwargs = algorithm, env, dict(env_kwargs or {})
        self.config = make_config(HillConfig, config or {})
        self.total_timesteps, self.seed = int(total_timesteps), seed
        self.controls = controls or Controls()
        self.monitor = Monitor(self.controls)
        self.extra: dict[str, Any] = {}
        with gymnasium.make(env, **self.env_kwargs) as made:
            self.observation_space, self.action_space = made.observation_space, made.action_space
        shape = (self.observation_space.shape[0], int(self.action_space.n))
        self.weights, self.score = np.zeros(shape), -math.inf
        self.env_steps = self.tries = 0

    @property
    def stop_reason(self) -> str | None:
        return self.monitor.stop_reason

    @property
    def finished(self) -> bool:
        return self.stop_reason is not None or self.env_steps >= self.total_timesteps

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

    def save(self, path: str | Path, *, memory: bool = True) -> None:
        """Tensors and plain Python alone: a checkpoint is read without trusting it."""
        own = {"weights": torch.from_numpy(self.weights), "score": self.score, "tries": self.tries}
        counters = {"env_steps": self.env_steps, "monitor": self.monitor.state_dict()}
        checkpoint.write(path, {**checkpoint.about(self), **own, **counters})

    @classmethod
    def load(cls, path, *, device="auto", env=None, algorithm=None, acts_only=False) -> HillClimber:
        state = checkpoint.read(path, env=env, agent=algorithm)
        made = cls(state["agent"], state["env"], state["config"], **checkpoint.setting(state, path))
        with checkpoint.fitting(path, state["agent"], state["env"]):
            made.weights = state["weights"].numpy()
            made.score, made.tries = state["score"], state["tries"]
            made.env_steps, made.extra = state["env_steps"], state["extra"]
            made.monitor.load_state_dict(state["monitor"])
        return made

    def with_config(self, config: Mapping[str, object]) -> HillClimber:
        self.config = make_config(HillConfig, config)
        return self

    def load_weights(self, path: str | Path) -> None:
        raise UserError(f"{self.algorithm_spec} can't start from weights; leave out --weights")

    def go_on(self, controls: Controls) -> None:
        if controls != self.controls:
            self.controls = controls
            self.monitor.go_on(controls)

    def normalised(self, obs: Any) -> Any:
        return obs

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
