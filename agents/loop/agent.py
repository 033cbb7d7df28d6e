"""The agent: environments, memory and an algorithm in one loop, with evaluation and checkpoints."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.algorithm import Algorithm
from rltune.agents.config import AgentConfig, config_dict, hyperparameters, make_config
from rltune.agents.envs.vector import Envs, Transition
from rltune.agents.errors import UserError
from rltune.agents.eval_modes import GREEDY, STOCHASTIC, check_eval_mode
from rltune.agents.loop import checkpoint
from rltune.agents.loop.acting import Recall
from rltune.agents.loop.controls import Controls, Monitor
from rltune.agents.loop.evaluation import EVALUATION_ENVS, Seeds, run_episodes
from rltune.agents.loop.normalization import ObservationNormalizer, RewardNormalizer
from rltune.agents.loop.results import Chunk, Episode
from rltune.agents.memory.replay import ReplayMemory
from rltune.agents.memory.rollout import RolloutMemory
from rltune.agents.registry import agent_class, name_of
from rltune.agents.spaces import Parts, Spaces

if TYPE_CHECKING:
    from rltune.agents.loop.results import Evaluation

Array = NDArray[Any]


@dataclass
class _Progress:
    """The loop's counters."""

    env_steps: int = 0
    since_update: int = 0
    updates: int = 0
    diverged: str | None = None
    updates_from: int = 0  # env_steps at which a memory that was not saved is filled again


@dataclass
class _Tally:
    """What one chunk collects."""

    episodes: list[Episode] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    updates: int = 0

    def add(self, metrics: dict[str, float]) -> None:
        self.updates += 1
        for name, value in metrics.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
            self.counts[name] += 1

    def means(self) -> dict[str, float]:
        return {name: total / self.counts[name] for name, total in self.sums.items()}


class Agent:
    """An algorithm that trains on an environment.

    Args:
        algorithm: a name, ``module:Class`` or a class
        env: a gymnasium id or ``module:Class``
        config: hyperparameters by name, or a configuration; absent ones have their defaults
        total_timesteps: the length of the whole training in env_steps: schedules end there
        seed: all randomness comes from it
        device: "cpu", "cuda", ... or "auto": a GPU, where there is one, for images
        controls: when to stop early and when to lower the learning rate
        env_kwargs: handed to the environment's constructor
        acts_only: make one environment to act in, and no memory: it can't be trained then

    Attributes:
        env_steps: agent decisions so far, summed over the environments
        extra: plain values of the caller's that checkpoints keep

    Raises:
        UserError: an unknown agent, environment or hyperparameter, an unsupported space.
    """

    def __init__(
        self,
        algorithm: str | type[Algorithm[Any]],
        env: str,
        config: Mapping[str, object] | AgentConfig | None = None,
        *,
        total_timesteps: int,
        seed: int = 0,
        device: str = "auto",
        controls: Controls | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
        acts_only: bool = False,
    ) -> None:
        found = agent_class(algorithm) if isinstance(algorithm, str) else algorithm
        if not isinstance(config, AgentConfig):
            config = make_config(found.Config, config or {})
        self.algorithm_spec = algorithm if isinstance(algorithm, str) else name_of(found)
        self.env = env
        self.env_kwargs = dict(env_kwargs or {})
        self.config = config
        self.total_timesteps = int(total_timesteps)
        self.seed = seed
        self.controls = controls or Controls()
        self.extra: dict[str, Any] = {}

        self._seeds = Seeds.of(seed)
        self.acts_only = acts_only
        n_envs = 1 if acts_only else config.n_envs
        self._envs = self._make_envs(n_envs, self._seeds.training, training=not acts_only)
        self._spaces = spaces = Spaces(
            self._envs.single_observation_space, self._envs.single_action_space, config.n_envs
        )
        self.device = resolve_device(device, spaces)
        self.algorithm = found(config, spaces, seed=self._seeds.algorithm, device=self.device)
        if self.algorithm.state_size and config.vectorization == "native":
            raise UserError("an LSTM can't be trained with vectorization native; use sync")
        self.memory: Any = None if acts_only else self.algorithm.make_memory()
        self._recall = Recall(self.algorithm)
        self.observations: ObservationNormalizer | None = None
        self.rewards: RewardNormalizer | None = None
        parts = Parts(spaces.observation)
        if config.normalize_observations and parts.n_vector:
            shape = spaces.observation.shape
            assert shape is not None
            self.observations = ObservationNormalizer(shape, n_rest=shape[0] - parts.n_vector)
        if config.normalize_rewards:
            self.rewards = RewardNormalizer(config.n_envs, config.gamma)
        self.monitor = Monitor(self.controls)
        self._progress = _Progress()
        self._obs: Array | None = None  # what to act on next, as the networks see it
        # From a checkpoint: playing episodes again takes time, and only training needs it.
        self._envs_state: dict[str, Any] | None = None

    def _make_envs(
        self, n_envs: int, seed: int, *, training: bool, max_steps: int | None = None
    ) -> Envs:
        return Envs(
            self.env,
            n_envs,
            seed=seed,
            env_kwargs=self.env_kwargs,
            **self.view,
            vectorization=self.config.vectorization if training else "sync",
            max_episode_steps=max_steps,
            training=training,
        )

    @property
    def env_steps(self) -> int:
        """Agent decisions so far, summed over the environments."""
        return self._progress.env_steps

    @property
    def view(self) -> dict[str, Any]:
        """How it is shown an environment, as `Envs` and `make.as_shown` take it."""
        config = self.config
        return {
            "frame_stack": config.frame_stack,
            "small_images": config.reads_small_images(),
        }

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """What it sees of one environment: a vector or an image, with masks behind a vector."""
        return self._spaces.observation

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """What one environment takes."""
        return self._spaces.action

    # ------------------------------------------------------------------------------------ training

    def learn(self, until: int, deadline: float | None = None) -> Chunk:
        """Train until ``env_steps`` reaches ``until``; many small calls equal one large one.

        It may stop between two updates. At ``total_timesteps`` the last rollout ends, however
        short it is, and is learned from.

        Args:
            until: env_steps, counted from the start of the training
            deadline: Unix seconds at which to stop wherever it is

        Raises:
            Exception: whatever the environment raises
        """
        assert not self.acts_only, "this agent was made to act only"
        started = time.perf_counter()
        tally = _Tally()
        self._enter()
        while not self._is_done(until):
            self._step(tally)
            if deadline is not None and time.time() >= deadline:
                break
        return Chunk(
            env_steps=self.env_steps,
            seconds=time.perf_counter() - started,
            metrics=tally.means(),
            episodes=tally.episodes,
            mean_reward=self.monitor.mean_reward,
            best_reward=self.monitor.best_reward,
            stop_reason=self.monitor.stop_reason,
            diverged=self._progress.diverged,
            updates=tally.updates,
        )

    def _enter(self) -> None:
        """Bring the environments to where the training stands."""
        if self._envs_state is not None:
            self._envs.load_state_dict(self._envs_state)
            self._envs_state = None
            if not self._envs.replays:
                self._obs = self._normalise(self._envs.obs)
        elif self._obs is None:
            self._obs = self._recall.first(self._normalise(self._envs.reset()))

    @property
    def stop_reason(self) -> str | None:
        """Why the controls ended the training; None if they did not."""
        return self.monitor.stop_reason

    @property
    def diverged(self) -> str | None:
        """What became infinite or NaN, and when; None if nothing did."""
        return self._progress.diverged

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to train: the controls or the whole length ended it."""
        return self.stop_reason is not None or self._is_done(self.total_timesteps)

    def _is_done(self, until: int) -> bool:
        progress = self._progress
        if progress.diverged or self.monitor.stop_reason:
            return True
        if progress.env_steps < until:
            return False
        rollout_is_done = progress.since_update == 0 or not self.algorithm.on_policy
        return until < self.total_timesteps or rollout_is_done

    def _step(self, tally: _Tally) -> None:
        """Do one step of all environments, and an update when it is time for one."""
        progress = self._progress
        assert self._obs is not None
        action = self._recall.act(self._obs, explore=True)
        step = self._envs.step(action)
        self._remember(self._obs, action, step)
        env_steps = int(np.count_nonzero(step.valid))
        progress.env_steps += env_steps
        # A rollout has a row for each environment, valid or not.
        progress.since_update += len(step.valid) if self.algorithm.on_policy else env_steps
        for finished in step.episodes:
            self.monitor.episode(finished.episode_return, progress.env_steps)
            tally.episodes.append(
                Episode(progress.env_steps, finished.episode_return, finished.length, time.time())
            )
        # Many environments must not mean fewer updates for each of their steps.
        while progress.since_update >= self.algorithm.update_every and not progress.diverged:
            progress.since_update -= self.algorithm.update_every
            self._update(tally)
        if progress.env_steps >= self.total_timesteps:
            self._end_rollout(tally)

    def _end_rollout(self, tally: _Tally) -> None:
        """Learn from an unfinished rollout: no steps are left to fill it."""
        progress = self._progress
        end_rollout = getattr(self.memory, "end_rollout", None)
        if not self.algorithm.on_policy or progress.since_update == 0 or end_rollout is None:
            return
        if progress.diverged is None:
            end_rollout()
            progress.since_update = 0
            self._update(tally)

    def _remember(self, acted_on: Array, action: Array, step: Transition) -> None:
        """Put the step into the memory as the algorithm shall see it, and move on."""
        obs = self._normalise(step.obs)
        next_obs, reward = step.next_obs, step.reward
        if step.next_obs is step.obs:
            next_obs = obs
        elif self.observations is not None:
            next_obs = self.observations.normalize(step.next_obs)
        if self.rewards is not None:
            reward = self.rewards.normalize(reward, step.terminated | step.truncated, step.valid)
        if self.algorithm.state_size:
            obs, next_obs = self._with_states(obs, next_obs, step)
        self.memory.add(
            obs=acted_on,
            action=action,
            reward=reward,
            terminated=step.terminated,
            truncated=step.truncated,
            next_obs=next_obs,
            valid=step.valid,
        )
        self._obs = obs

    def _with_states(self, obs: Array, next_obs: Array, step: Transition) -> tuple[Array, Array]:
        """Return both as a recurrent algorithm sees them."""
        ended = step.terminated | step.truncated
        return self._recall.seen(obs, ended), self._recall.seen(next_obs, np.zeros_like(ended))

    def _normalise(self, obs: Array) -> Array:
        """Normalise observations to act on; the running statistics learn from them."""
        if self.observations is None:
            return obs
        self.observations.update(obs)
        return self.observations.normalize(obs)

    def _update(self, tally: _Tally) -> None:
        progress = self._progress
        if progress.env_steps < progress.updates_from:
            return
        self.algorithm.learning_rate_factor = self.monitor.learning_rate_factor
        done = min(1.0, progress.env_steps / max(1, self.total_timesteps))
        metrics = self.algorithm.update(self.memory, done)
        progress.updates += 1
        broken = [name for name, value in metrics.items() if not math.isfinite(value)]
        if broken:
            progress.diverged = (
                f"non-finite {broken[0]} at {progress.env_steps:,} env_steps{_blame(self.memory)}"
            )
        else:
            tally.add(metrics)

    # ---------------------------------------------------------------------------------- evaluation

    def normalised(self, obs: Array) -> Array:
        """Return observations (n, ...) as training normalises them; nothing is learned from it."""
        return obs if self.observations is None else self.observations.normalize(obs)

    def evaluate(
        self,
        episodes: int = 10,
        seed: int | None = None,
        max_steps: int | None = None,
        mode: str = GREEDY,
    ) -> Evaluation:
        """Run episodes on environments of their own; training is not touched.

        Where their return is NaN, so are the policy's actions: the agent has diverged.

        Args:
            episodes: how many
            seed: episode k starts from a seed made of this and k; by default of the agent's own
                seed, so that every evaluation has the same starts
            max_steps: episodes are cut off after so many steps
            mode: "greedy", or "stochastic": exploring as training does at this point
        """
        check_eval_mode(mode)
        explores = mode == STOCHASTIC
        seed = self._seeds.evaluation if seed is None else seed
        n_envs = min(episodes, EVALUATION_ENVS)
        envs = self._make_envs(n_envs, seed, training=False, max_steps=max_steps)
        recall = Recall(self._explorer(seed) if explores else self.algorithm)

        def act(obs: Array, begins: Array) -> Array:
            return recall.act(recall.seen(self.normalised(obs), begins), explore=explores)

        found = run_episodes(envs, act, episodes)
        if math.isnan(found.mean):
            self._progress.diverged = f"actions of NaN at {self.env_steps:,} env_steps"
        return found

    def _explorer(self, seed: int) -> Algorithm[Any]:
        """Return a copy of the algorithm whose noise is drawn from a seed of its own."""
        copy = type(self.algorithm)(self.config, self._spaces, seed=seed, device=self.device)
        copy.load_state_dict(self.algorithm.state_dict())
        copy.restart_exploration()
        copy.generator.manual_seed(seed)
        return copy

    # --------------------------------------------------------------------------------- checkpoints

    @property
    def replays(self) -> bool:
        """Whether the memory is more than a rollout that is learned from once."""
        return not isinstance(self.memory, RolloutMemory)

    def save(self, path: str | Path, *, memory: bool = True) -> None:
        """Write everything into one file, atomically: `load` goes on exactly here (on a CPU).

        Args:
            path: the file
            memory: without it the file is small; who goes on from it fills a new one first
        """
        checkpoint.write(path, self._state(memory))

    def _state(self, memory: bool = True) -> dict[str, Any]:
        assert not self.acts_only, "this agent was made to act only"
        return {
            **checkpoint.about(self),
            "progress": vars(self._progress),
            "monitor": self.monitor.state_dict(),
            "algorithm": self.algorithm.state_dict(),
            "memory": self.memory.state_dict() if memory else None,
            "observations": self.observations and self.observations.state_dict(),
            "rewards": self.rewards and self.rewards.state_dict(),
            "envs": self._saved_envs(),
            "obs": None if self._obs is None else torch.from_numpy(self._obs),
        }

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        device: str = "auto",
        env: str | None = None,
        algorithm: str | None = None,
        acts_only: bool = False,
    ) -> Agent:
        """Return the agent that ``save`` wrote, ready to go on.

        Args:
            path: the checkpoint
            device: as in the constructor
            env: refuse the checkpoint if it was trained on another environment
            algorithm: refuse the checkpoint if it is of another agent
            acts_only: as in the constructor

        Raises:
            UserError: no checkpoint, a foreign one, one of a newer version or of another agent or
                environment.
        """
        state = checkpoint.read(path, env=env, agent=algorithm)
        agent = cls(
            state["agent"],
            state["env"],
            state["config"],
            device=device,
            acts_only=acts_only,
            **checkpoint.setting(state, path),
        )
        agent._restore(state, path)
        return agent

    def load_weights(self, path: str | Path) -> None:
        """Begin with the networks of a checkpoint, and with how it normalises observations.

        Optimizers, counters, schedules, exploration and memory stay those of a new training.

        Raises:
            UserError: no checkpoint; or its networks, or what they are shown, don't fit.
        """
        state = checkpoint.read(path)
        if parts := checkpoint.members(state, path):  # of several environments: the one here
            state = next((part for part in parts if part.get("env") == self.env), {})
            if not state:
                raise UserError(f"weights {path} are of no agent on {self.env!r}")
        what = f"weights {path} ({state.get('agent')} on {state.get('env')}) don't fit {self.env!r}"
        if not isinstance(state.get("algorithm"), dict):
            raise UserError(f"checkpoint {path} holds no networks of rltune's own agents")
        shown = state.get("observations")
        if (shown is None) != (self.observations is None):
            flag = "--normalize-observations " + ("false" if shown is None else "true")
            has = "does not normalise" if shown is None else "normalises"
            raise UserError(f"{what}: its agent {has} observations; give {flag}")
        try:
            self.algorithm.load_weights(state["algorithm"])
        except UserError as error:
            raise UserError(f"{what}: {error}") from None
        with checkpoint.fitting(path, self.algorithm_spec, self.env):
            if self.observations is not None and shown is not None:
                self.observations.load_state_dict(shown)

    def go_on(self, controls: Controls) -> None:
        """Let other controls decide from now on, also where the old ones have ended it."""
        if controls != self.controls:
            self.controls = controls
            self.monitor.go_on(controls)

    def with_config(self, config: Mapping[str, object]) -> Agent:
        """Return an agent that goes on exactly here with other hyperparameters; closes this one.

        Everything is built anew from them and takes over what was learned and seen so far. Where
        the running rollout is longer than one may be now, it is dropped.

        Args:
            config: hyperparameters by name; absent ones have their defaults

        Raises:
            UserError: an unknown hyperparameter, or one that a training keeps (see `hp`).
        """
        made = make_config(type(self.config), config)
        old, new = config_dict(self.config), config_dict(made)
        for name, known in hyperparameters(type(made)).items():
            if not known.mutable and new[name] != old[name]:
                raise UserError(
                    f"{name} is {old[name]}, and a training that has begun can't change it to "
                    f"{new[name]}"
                )
        agent = Agent(
            self.algorithm_spec,
            self.env,
            made,
            total_timesteps=self.total_timesteps,
            seed=self.seed,
            device=self.device,
            controls=self.controls,
            env_kwargs=self.env_kwargs,
        )
        if (
            agent.algorithm.on_policy
            and self._progress.since_update >= agent.algorithm.update_every
        ):
            self.memory.interrupt()
            self._progress.since_update = 0
        agent._restore(self._state(), f"of {self.env_steps:,} env_steps")
        self.close()
        return agent

    def _saved_envs(self) -> dict[str, Any] | None:
        if self._obs is None:
            return None
        return self._envs_state or self._envs.state_dict()

    def _restore(self, state: dict[str, Any], path: str | Path) -> None:
        with checkpoint.fitting(path, self.algorithm_spec, self.env):
            self._take_over(state)

    def _take_over(self, state: dict[str, Any]) -> None:
        self.algorithm.load_state_dict(state["algorithm"])
        self.extra = state["extra"]
        self._progress = _Progress(**state["progress"])
        if not isinstance(self._progress.env_steps, int):
            raise ValueError("env_steps are no number")
        self.monitor.load_state_dict(state["monitor"])
        if self.observations is not None:
            self.observations.load_state_dict(state["observations"])
        if self.rewards is not None:
            self.rewards.load_state_dict(state["rewards"])
        if self.acts_only:
            return
        if state["memory"] is not None:
            self.memory.load_state_dict(state["memory"])
        elif self.algorithm.on_policy:
            self._progress.since_update = 0
        else:
            starts = int(getattr(self.config, "learning_starts", 0))
            self._progress.updates_from = self.env_steps + starts
        if not self._envs.replays:
            # The environments begin new episodes, so an unfinished rollout can't be continued.
            self.memory.interrupt()
            if self.algorithm.on_policy:
                self._progress.since_update = 0
        if state["obs"] is not None:
            self._envs_state = state["envs"]
            self._obs = state["obs"].numpy()

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()


def _blame(memory: Any) -> str:
    """Return what to add where the environment gave numbers that are none: the memory holds them.

    Looked for when a training has come to nothing: with every step, it would cost too much.
    """
    frames = memory.observations.frames if isinstance(memory, ReplayMemory) else None
    held = {
        "an observation": getattr(memory, "obs", frames),
        "a reward": getattr(memory, "reward", None),
    }
    bad = [
        name for name, array in held.items() if array is not None and not np.isfinite(array).all()
    ]
    return f": the environment gave {' and '.join(bad)} with NaN or infinity in it" if bad else ""


def resolve_device(device: str, spaces: Spaces) -> str:
    """Return the device that ``auto`` stands for: a GPU, where there is one, only for images.

    Small networks on vectors are faster on a CPU, and there on one thread.
    """
    images = Parts(spaces.observation).has_images
    if device == "auto":
        device = "cuda" if images and torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # no such device, or none of this kind here
        raise UserError(f"device {device!r} can't be used: {str(error).splitlines()[0]}") from error
    if device == "cpu" and not images:
        torch.set_num_threads(1)
    return device
