"""RLlib's algorithms as agents, as `rllib:PPO`; `rltune.backends.rllib.config` knows their names.

`RLlibAgent` is a `Trainer` (`rltune.backends.base`). It runs an RLlib Algorithm whose sampler and
learner are in this process, and asks its network (the RLModule) for greedy actions on our own
environments and seeds, so that scores can be compared with those of our agents.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.config import make_config
from rltune.agents.engines import AUTO
from rltune.agents.errors import UserError
from rltune.agents.eval_modes import GREEDY, check_eval_mode
from rltune.agents.loop.acting import RecurrentActing
from rltune.agents.loop.controls import Controls
from rltune.agents.loop.evaluation import Seeds, evaluation_envs, run_episodes
from rltune.agents.loop.results import Chunk, Episode, Evaluation
from rltune.backends.finite import NotFiniteError
from rltune.backends.names import EXPLORES, RLLIB
from rltune.backends.rllib.building import build_algorithm
from rltune.backends.rllib.compatibility import fitting_spaces
from rltune.backends.rllib.config import algorithm_name, config_class
from rltune.backends.rllib.internals import (
    _arrays,
    _env_steps,
    _is_sound,
    _learned_state,
    _learner,
    _load_learned,
    _load_replay,
    _metrics,
    _no_pickles,
    _plain,
    _replay_state,
    _set_state,
    _silent,
)
from rltune.backends.rllib.policy import RLlibPolicy
from rltune.backends.trainer import BaseTrainer

Array = NDArray[Any]


class RLlibAgent(BaseTrainer):
    """An algorithm of RLlib's that trains on an environment; see `rltune.agents.Agent`.

    An RLlib iteration is never cut, so ``learn`` goes beyond ``until`` by less than one. Where an
    algorithm learns from recorded data, ``env_steps`` are the recorded steps that it learned from.

    Args:
        algorithm: "rllib:NAME", see `rltune.backends.rllib.config.NAMES`
        env: a gymnasium id or ``module:Class``, with vectors as observations
        config: hyperparameters under RLlib's names, or under ours where there is a counterpart
        total_timesteps: the length of the whole training in env steps
        seed: seeds RLlib, and the evaluations as those of our agents
        device: "cuda" gives the learner the GPU; "cpu" and "auto" do not
        controls: when to stop early; RLlib has no plateau rule
        env_kwargs: handed to the environment's constructor
        engine: RLlib computes with PyTorch alone

    Raises:
        UserError: an unknown algorithm, environment or hyperparameter, or what RLlib refuses.
    """

    env_steps = 0
    replays = True

    def __init__(
        self,
        algorithm: str,
        env: str,
        config: Mapping[str, object] | None = None,
        *,
        total_timesteps: int,
        seed: int = 0,
        device: str = "auto",
        controls: Controls | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
        engine: str = AUTO,
        _steps_before: int = 0,
    ) -> None:
        spec = RLLIB + algorithm_name(algorithm)
        super().__init__(
            spec,
            env,
            make_config(config_class(spec), config or {}),
            total_timesteps=total_timesteps,
            seed=seed,
            controls=controls,
            env_kwargs=env_kwargs,
        )
        if self.controls.plateau_patience is not None:
            raise UserError(
                f"{self.algorithm_spec} has no plateau rule; leave out --plateau-patience."
            )
        self.env_steps = _steps_before
        self._episodes: list[tuple[float, int]] = []  # that ended in the running iteration

        self._spaces = fitting_spaces(self.algorithm_spec, env, self.env_kwargs)
        self._closing = contextlib.ExitStack()
        self._enter_ray()
        try:
            self._rllib = build_algorithm(
                self.algorithm_spec,
                env,
                self.config,
                spaces=self._spaces,
                env_kwargs=self.env_kwargs,
                # What a resumed training samples next is not what it began with.
                seed=int(np.random.SeedSequence((seed, self.env_steps)).generate_state(1)[0] >> 1),
                device="cpu" if device == "auto" else device,
                episodes=self._episodes,
            )
        except BaseException:
            self._closing.close()
            raise
        # The learner's network: the sampler's may be a step behind.
        network = _learner(self._rllib).module["default_policy"]
        self.algorithm = RLlibPolicy(network, self._spaces[1])

    def _enter_ray(self) -> None:
        """Start a small Ray where there is none: RLlib wants one, even for a single process."""
        import ray
        from rltune.cluster.session import ray_session

        if not ray.is_initialized():
            self._closing.enter_context(ray_session())

    # ------------------------------------------------------------------------------------ training

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """The space of its observations, of one environment: vectors."""
        return self._spaces[0]

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """The space of its actions, of one environment."""
        return self._spaces[1]

    def learn(self, until: int, deadline: float | None = None) -> Chunk:
        """Run whole RLlib iterations until ``env_steps`` reaches ``until``, or the deadline."""
        started = time.perf_counter()
        episodes: list[Episode] = []
        values: dict[str, list[float]] = {}
        updates = 0
        while not self._is_done(until):
            try:
                result = self._iterate()
            except NotFiniteError as error:
                self.diverged = f"after {self.env_steps:,} env_steps, {error}"
                break
            self.env_steps += _env_steps(result)
            for value, length in self._episodes:
                self.monitor.episode(value, self.env_steps)
                episodes.append(Episode(self.env_steps, value, length, time.time()))
            self._episodes.clear()
            metrics = _metrics(result)
            updates += bool(metrics)
            broken = [name for name, value in metrics.items() if not _is_sound(name, value)]
            if broken:
                self.diverged = f"non-finite {broken[0]} at {self.env_steps:,} env_steps"
                break
            for name, value in metrics.items():
                if math.isfinite(value):
                    values.setdefault(name, []).append(value)
            if deadline is not None and time.time() >= deadline:
                break
        return Chunk(
            env_steps=self.env_steps,
            seconds=time.perf_counter() - started,
            values=values,
            episodes=episodes,
            mean_reward=self.monitor.mean_reward,
            best_reward=self.monitor.best_reward,
            stop_reason=self.stop_reason,
            diverged=self.diverged,
            updates=updates,
        )

    def _iterate(self) -> Any:
        """Run an iteration of RLlib; what an environment raises comes as it was raised."""
        try:
            with _silent():
                return self._rllib.train()
        except RuntimeError as error:
            if error.args or error.__cause__ is None:
                raise
            raise error.__cause__ from None  # RLlib put an empty error around it

    def evaluate(
        self,
        episodes: int = 10,
        seed: int | None = None,
        max_steps: int | None = None,
        mode: str = GREEDY,
        *,
        first: int = 0,
    ) -> Evaluation:
        """Run greedy episodes, the same ones as `rltune.agents.Agent.evaluate` for a seed."""
        check_eval_mode(mode)
        if mode != GREEDY:
            raise UserError(f"{self.algorithm_spec} can only be evaluated greedily: {EXPLORES}")
        seed = Seeds.of(self.seed).evaluation if seed is None else seed
        envs = evaluation_envs(
            self.env, episodes, seed=seed, env_kwargs=self.env_kwargs, max_steps=max_steps
        )
        policy: Any = self.algorithm  # as much of one of our algorithms as is needed
        acting = RecurrentActing(policy)

        def act(obs: Array, begins: Array) -> Array:
            return acting.act(acting.inputs(obs, begins), explore=False)

        with torch.random.fork_rng(devices=[]):  # training draws from the same generator
            torch.manual_seed(seed)
            return run_episodes(envs, act, episodes, first)

    # --------------------------------------------------------------------------------- checkpoints

    def _state(self, *, memory: bool) -> dict[str, Any]:
        """Return RLlib's state: tensors and plain Python; its own checkpoints are pickles.

        The environments' unfinished episodes, the priorities of a replay and the global generators
        are not in it: a training that goes on is not bit-equal to one that was never stopped.
        """
        return {
            "rllib": _plain(self._rllib.get_state()),
            "learned": _learned_state(self._rllib),
            "replay": _replay_state(self._rllib) if memory else [],
        }

    @classmethod
    def _arguments(cls, state: Mapping[str, Any], acts_only: bool) -> dict[str, Any]:
        return {"_steps_before": state["env_steps"]}

    def _take_over(self, state: Mapping[str, Any]) -> None:
        with _no_pickles():
            _set_state(self._rllib, _arrays(state["rllib"]))
            _load_learned(self._rllib, state["learned"])
            _load_replay(self._rllib, _arrays(state["replay"] or []))

    def close(self) -> None:
        """Stop RLlib, and Ray where it was started for it."""
        with _silent():
            self._rllib.stop()
        self._closing.close()
