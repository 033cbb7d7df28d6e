"""Stable-Baselines3's algorithms as agents: ``sb3:PPO``; SBX's, as ``sbx:SAC``, likewise.

`SB3Agent` is a `Trainer` (`rltune.backends.base`). It trains an algorithm of SB3's on SB3's own
vector environments, and asks its policy for actions on our environments and seeds, so that scores
can be compared with those of our agents.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.config import changed_config, make_config
from rltune.agents.engines import AUTO
from rltune.agents.errors import UserError
from rltune.agents.eval_modes import GREEDY, check_eval_mode
from rltune.agents.loop.controls import Controls
from rltune.agents.loop.evaluation import Seeds, evaluation_envs, run_episodes
from rltune.agents.loop.results import Chunk, Episode, Evaluation
from rltune.backends.finite import NotFiniteError
from rltune.backends.sb3.building import build, callbacks_of, fitting_spaces, with_wrappers
from rltune.backends.sb3.config import config_class
from rltune.backends.sb3.internals import (
    Callbacks,
    Episodes,
    Recorder,
    has_finite_weights,
    learn_on,
    learned_state,
    load_learned,
    load_normalizer,
    load_replay,
    normalizer_state,
    prepare,
    replay_state,
)
from rltune.backends.sb3.policy import SB3Policy
from rltune.backends.trainer import BaseTrainer

Array = NDArray[Any]


class SB3Agent(BaseTrainer):
    """An algorithm of Stable-Baselines3's or SBX's that trains; see `rltune.agents.Agent`.

    A rollout is never cut, so ``learn`` goes beyond ``until`` by less than one.

    Args:
        algorithm: "sb3:NAME" or "sbx:NAME", see `rltune.backends.sb3.libraries`
        env: a gymnasium id or ``module:Class``, with vectors or images as observations
        config: hyperparameters under SB3's names
        total_timesteps: the length of the whole training in env steps, for the schedules
        seed: seeds the algorithm, and the evaluations as those of our agents
        device: of PyTorch; "auto" is the CPU
        controls: when to stop early; there is no plateau rule
        env_kwargs: handed to the environment's constructor
        engine: SB3 computes with PyTorch alone

    Raises:
        UserError: an unknown algorithm, environment or hyperparameter, or what SB3 refuses.
    """

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
        _acts_only: bool = False,
    ) -> None:
        own = make_config(config_class(algorithm), config or {})
        super().__init__(
            algorithm,
            env,
            own,
            total_timesteps=total_timesteps,
            seed=seed,
            controls=controls,
            env_kwargs=with_wrappers(env, env_kwargs or {}, own.env_wrapper),
        )
        self.device = "cpu" if device == "auto" else device
        if self.controls.plateau_patience is not None:
            raise UserError(f"{algorithm} has no plateau rule; leave out --plateau-patience.")
        self.acts_only = _acts_only
        self.view = {"frame_stack": self.config.frame_stack}
        self._episodes: list[Episode] = []
        self._ended_by: str | None = None  # by a callback

        self._spaces = fitting_spaces(algorithm, env, self.env_kwargs, self.config.frame_stack)
        callbacks = [] if _acts_only else callbacks_of(self.config)
        self._model = build(
            algorithm,
            env,
            self.config,
            env_kwargs=self.env_kwargs,
            # What a resumed training draws next is not what it began with.
            seed=int(np.random.SeedSequence((seed, _steps_before)).generate_state(1)[0] >> 1),
            device=self.device,
            acts_only=_acts_only,
        )
        self.replays = getattr(self._model, "replay_buffer", None) is not None
        self._log = Recorder()
        self._model.set_logger(self._log)
        self._callbacks = Callbacks([Episodes(self._take), *callbacks])
        self._prepared = False
        self.algorithm = SB3Policy(self._model)

    # ------------------------------------------------------------------------------------ training

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """The space of its observations, of one environment: vectors or images."""
        return self._spaces[0]

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """The space of its actions, of one environment."""
        return self._spaces[1]

    @property
    def env_steps(self) -> int:
        """Decisions so far."""
        return int(self._model.num_timesteps)

    @property
    def stop_reason(self) -> str | None:
        """The reason why the controls, or a callback, ended the training; None: they did not."""
        return self.monitor.stop_reason or self._ended_by

    def _take(self, value: float, length: int, env_steps: int) -> None:
        self.monitor.episode(value, env_steps)
        self._episodes.append(Episode(env_steps, value, length, time.time()))

    def learn(self, until: int, deadline: float | None = None) -> Chunk:
        """Run whole rollouts until ``env_steps`` reaches ``until``, or the deadline."""
        started = time.perf_counter()
        self._log.clear()
        self._episodes = []

        def goes_on() -> bool:
            if self._log.broken and not self.diverged:
                where = f"at {self.env_steps:,} env_steps"
                self.diverged = f"non-finite {self._log.broken} {where}"
            begun = self.env_steps > before  # some progress, whatever the deadline
            late = begun and deadline is not None and time.time() >= deadline
            return not (self._is_done(until) or late)

        before = self.env_steps
        if not self._is_done(until):
            try:
                if not self._prepared:
                    prepare(self._model, self.total_timesteps, self._callbacks)
                    self._prepared = True
                learn_on(self._model, self.total_timesteps, self._callbacks, goes_on)
            except NotFiniteError as error:
                self.diverged = f"after {self.env_steps:,} env_steps, {error}"
            except (ValueError, RuntimeError):
                if has_finite_weights(self._model):
                    raise
                # PyTorch refuses distributions of NaN in the middle of an update.
                self.diverged = f"non-finite weights at {self.env_steps:,} env_steps"
            if self._callbacks.ended:
                self._ended_by = f"the callback {self.config.callback} ended it"
        return Chunk(
            env_steps=self.env_steps,
            seconds=time.perf_counter() - started,
            values=self._log.values,
            episodes=self._episodes,
            mean_reward=self.monitor.mean_reward,
            best_reward=self.monitor.best_reward,
            stop_reason=self.stop_reason,
            diverged=self.diverged,
            updates=self._log.updates,
        )

    def normalised(self, obs: Array) -> Array:
        """Return observations (n, ...) as training normalises them."""
        venv = self._model.get_vec_normalize_env()
        return obs if venv is None else np.asarray(venv.normalize_obs(obs))

    def evaluate(
        self,
        episodes: int = 10,
        seed: int | None = None,
        max_steps: int | None = None,
        mode: str = GREEDY,
        *,
        first: int = 0,
    ) -> Evaluation:
        """Run episodes, the same ones as `rltune.agents.Agent.evaluate` for a seed."""
        check_eval_mode(mode)
        seed = Seeds.of(self.seed).evaluation if seed is None else seed
        envs = evaluation_envs(
            self.env,
            episodes,
            seed=seed,
            env_kwargs=self.env_kwargs,
            max_steps=max_steps,
            **self.view,
        )

        def act(obs: Array, begins: Array) -> Array:
            return self.algorithm.act(self.normalised(obs), explore=mode != GREEDY)

        with _own_generators(seed):
            return run_episodes(envs, act, episodes, first)

    # --------------------------------------------------------------------------------- checkpoints

    def with_config(self, config: Mapping[str, object]) -> SB3Agent:
        """Return one that goes on here with other hyperparameters, in new episodes."""
        changed = changed_config(self.config, config)
        if changed == self.config:
            return self
        other = type(self)(
            self.algorithm_spec,
            self.env,
            {name: getattr(changed, name) for name in vars(changed)},
            total_timesteps=self.total_timesteps,
            seed=self.seed,
            device=self.device,
            controls=self.controls,
            env_kwargs=self.env_kwargs,
            _steps_before=self.env_steps,
        )
        other._take_over(self._state(memory=True))
        other.diverged, other.extra = self.diverged, self.extra
        other.monitor.load_state_dict(self.monitor.state_dict())
        self.close()
        return other

    def _state(self, *, memory: bool) -> dict[str, Any]:
        """Return SB3's state: tensors and plain Python, unlike its own files, which are pickles.

        The environments' unfinished episodes, the generators and what callbacks keep are not in it:
        a training that goes on is not bit-equal to one that was never stopped.
        """
        return {
            "ended_by": self._ended_by,
            "learned": learned_state(self._model),
            "normalizer": normalizer_state(self._model),
            "memory": replay_state(self._model) if memory else None,
        }

    @classmethod
    def _arguments(cls, state: Mapping[str, Any], acts_only: bool) -> dict[str, Any]:
        return {"_steps_before": state["env_steps"], "_acts_only": acts_only}

    def _take_over(self, state: Mapping[str, Any]) -> None:
        load_learned(self._model, state["learned"])
        load_normalizer(self._model, state["normalizer"])
        if not self.acts_only:
            load_replay(self._model, state["memory"])
        self._ended_by = state["ended_by"]

    def close(self) -> None:
        """End the callbacks, and close the environments."""
        self._callbacks.close()
        if self._model.env is not None:
            self._model.env.close()


@contextlib.contextmanager
def _own_generators(seed: int) -> Iterator[None]:
    """Let what is drawn within come from a seed: training draws from the same generators."""
    before = np.random.get_state()  # noqa: NPY002  (SB3's)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        try:
            yield
        finally:
            np.random.set_state(before)  # noqa: NPY002
