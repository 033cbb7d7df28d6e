"""The agent: an algorithm that trains on an environment, is evaluated, saved and loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import torch
from numpy.typing import NDArray
from rltune.agents.algorithm import Algorithm
from rltune.agents.config import AgentConfig, changed_config, make_config
from rltune.agents.engines import AUTO, TORCH
from rltune.agents.envs.goals import goals_of
from rltune.agents.envs.vector import Envs
from rltune.agents.errors import UserError
from rltune.agents.eval_modes import GREEDY, STOCHASTIC, check_eval_mode
from rltune.agents.loop import checkpoint
from rltune.agents.loop.acting import RecurrentActing, exploring_copy
from rltune.agents.loop.cloning import Cloning
from rltune.agents.loop.collector import Collector
from rltune.agents.loop.controls import Controls
from rltune.agents.loop.evaluation import Seeds, evaluation_envs, run_episodes
from rltune.agents.loop.normalization import Normalizers
from rltune.agents.loop.offline import OfflineCollector, OfflineLoop, check_controls
from rltune.agents.loop.training import TrainingLoop, Watcher
from rltune.agents.loop.weights import load_weights
from rltune.agents.machine.threads import hold_threads
from rltune.agents.memory.rollout import RolloutMemory
from rltune.agents.parallel.learners import Learners
from rltune.agents.registry import agent_class, name_of
from rltune.agents.reward_signals import has_signals
from rltune.agents.rewards.signals import RewardSignals, attach
from rltune.agents.spaces import InputParts, Spaces

if TYPE_CHECKING:
    from rltune.agents.loop.results import Chunk, Evaluation
    from typing_extensions import Self

Array = NDArray[Any]


class Agent:
    """An algorithm that trains on an environment.

    Args:
        algorithm: a name, ``module:Class`` or a class
        env: a gymnasium id or ``module:Class``
        config: hyperparameters by name, or a configuration; absent ones have their defaults
        total_timesteps: the length of the whole training in env steps: schedules end there
        seed: all randomness comes from it
        device: "cpu", "cuda", ... or "auto": a GPU, where there is one, for images
        controls: when to stop early and when to lower the learning rate
        env_kwargs: handed to the environment's constructor
        acts_only: make one environment to act in, and no memory: it can't be trained then
        engine: what computes: "numpy", kernels for standard networks; "torch"; or "auto": kernels
            where there are any

    Attributes:
        env_steps: agent decisions so far, summed over the environments
        extra: plain values of the caller's that checkpoints keep
        monitor: applies the controls to the training episodes
        normalizers: of observations and rewards
        observations, rewards: their running normalisation; None: there is none

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
        engine: str = AUTO,
    ) -> None:
        found = agent_class(algorithm) if isinstance(algorithm, str) else algorithm
        if not isinstance(config, AgentConfig):
            config = make_config(found.Config, config or {})
        self.algorithm_spec = algorithm if isinstance(algorithm, str) else name_of(found)
        self.env = env
        self.env_kwargs = dict(env_kwargs or {})
        self.config = config
        self.seed = seed
        self.controls = controls or Controls()
        self.extra: dict[str, Any] = {}
        self._seeds = Seeds.of(seed)
        self.acts_only = acts_only
        n_envs = 1 if acts_only or config.num_actors else config.n_envs
        self._envs = self._make_envs(n_envs, self._seeds.training, training=not acts_only)
        self._spaces = spaces = Spaces(
            self._envs.single_observation_space,
            self._envs.single_action_space,
            config.n_envs,
            None if acts_only else goals_of(config, env, env_kwargs),
        )
        self.device = resolve_device(device, spaces)
        self.algorithm = found(config, spaces, seed=self._seeds.algorithm, device=self.device)
        self._wanted_engine = engine
        self.algorithm.use_engine(engine)
        if self.algorithm.state_size and config.vectorization == "native":
            raise UserError("an LSTM can't be trained with vectorization native; use sync")
        self.normalizers = Normalizers(config, spaces)
        self.memory, self._collector = self._make_collection()
        loop = TrainingLoop
        if found.offline and not acts_only:
            check_controls(self.controls, self.algorithm_spec)
            loop = OfflineLoop
        self._cloning: Cloning | None = None
        if config.cloning > 0 and not acts_only:
            self._cloning = Cloning(self.algorithm, spaces, self.normalizers, self._seeds.cloning)
        self._signals: RewardSignals | None = None
        if has_signals(config) and not acts_only:
            self._signals = RewardSignals(
                config,
                spaces,
                self.algorithm.spaces,
                self.normalizers.normalize,
                seed=self._seeds.algorithm,
                device=self.device,
            )
            attach(self._signals, self.memory, self.algorithm_spec)
        beside = [part for part in (self._cloning, self._signals) if part is not None]
        self._loop = loop(
            self.algorithm, self._collector, self.controls, int(total_timesteps), beside
        )
        self._learners: Learners | None = None
        if config.n_learners > 1 and not acts_only:
            self._learners = self._loop.learners = Learners(
                self.algorithm,
                self.algorithm_spec,
                spaces,
                seed=self._seeds.algorithm,
                changes_beside=self._cloning is not None,
            )
        self.monitor = self._loop.monitor
        self.observations = self.normalizers.observations
        self.rewards = self.normalizers.rewards

    def _make_collection(self) -> tuple[Any, Any]:
        """Return the memory, and what fills it.

        Raises:
            UserError: actors are to fill it, and nothing here runs them.
        """
        if self.config.num_actors and not self.acts_only:
            raise UserError(
                f"num_actors {self.config.num_actors}: rltune.actors.Agent, `rltune train` and "
                "`rltune run` have actors; rltune.agents.Agent has none"
            )
        memory = None if self.acts_only else self.algorithm.make_memory()
        offline = self.algorithm.offline and not self.acts_only
        collector = OfflineCollector if offline else Collector
        return memory, collector(self._envs, self.algorithm, memory, self.normalizers)

    def _make_envs(self, n_envs: int, seed: int, *, training: bool) -> Envs:
        return Envs(
            self.env,
            n_envs,
            seed=seed,
            env_kwargs=self.env_kwargs,
            **self.view,
            vectorization=self.config.vectorization if training else "sync",
            training=training,
        )

    @property
    def env_steps(self) -> int:
        """Agent decisions so far, summed over the environments."""
        return self._loop.progress.env_steps

    @property
    def cpu_elsewhere(self) -> float:
        """CPU seconds that other processes have spent for it."""
        return 0.0

    @property
    def memory_elsewhere(self) -> int:
        """Bytes that other processes have for it."""
        return 0

    @property
    def engine(self) -> str:
        """What computes: "numpy" or "torch"."""
        return self.algorithm.engine

    @property
    def total_timesteps(self) -> int:
        """The length of the whole training in env steps; a longer one may be set."""
        return self._loop.total_timesteps

    @total_timesteps.setter
    def total_timesteps(self, env_steps: int) -> None:
        self._loop.total_timesteps = env_steps

    @property
    def view(self) -> dict[str, Any]:
        """The form of its observations, as arguments of `Envs` and `make.as_shown`."""
        small_images = self.config.reads_small_images()
        return {"frame_stack": self.config.frame_stack, "small_images": small_images}

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """The space of its observations: a vector or an image, with masks behind a vector."""
        return self._spaces.observation

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """The action space of one environment."""
        return self._spaces.action

    def learn(self, until: int, deadline: float | None = None) -> Chunk:
        """Train until ``env_steps`` reaches ``until``; many small calls equal one large one.

        It may stop between two updates. At ``total_timesteps`` the last rollout ends, however
        short it is, and is learned from.

        Args:
            until: env steps, counted from the start of the training
            deadline: Unix seconds at which to stop wherever it is

        Raises:
            Exception: whatever the environment raises
        """
        assert not self.acts_only, "this agent was made to act only"
        return self._loop.run(until, deadline)

    def watch(self, watcher: Watcher | None) -> None:
        """Let ``watcher`` hear of every step and update from now on; None: nobody."""
        self._loop.watcher = watcher

    @property
    def stop_reason(self) -> str | None:
        """The reason why the controls ended the training; None if they did not."""
        return self.monitor.stop_reason

    @property
    def diverged(self) -> str | None:
        """The metric that became infinite or NaN, and when; None if none did."""
        return self._loop.progress.diverged

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to train: the controls or the whole length ended it."""
        return self.stop_reason is not None or self._loop.is_done(self.total_timesteps)

    def normalised(self, obs: Array) -> Array:
        """Return observations (n, ...) as training normalises them; nothing is learned from it."""
        return self.normalizers.normalize(obs)

    def evaluate(
        self,
        episodes: int = 10,
        seed: int | None = None,
        max_steps: int | None = None,
        mode: str = GREEDY,
        *,
        first: int = 0,
    ) -> Evaluation:
        """Run episodes on environments of their own; training is not touched.

        Where their return is NaN, so are the policy's actions: the agent has diverged.

        Args:
            episodes: how many
            seed: episode k starts from a seed made of this and k; by default of the agent's own
                seed, so that every evaluation has the same starts
            max_steps: episodes are cut off after so many steps
            mode: "greedy", or "stochastic": exploring as training does at this point
            first: the number of the first episode
        """
        check_eval_mode(mode)
        explores = mode == STOCHASTIC
        seed = self._seeds.evaluation if seed is None else seed
        around = {"env_kwargs": self.env_kwargs, "max_steps": max_steps, **self.view}
        envs = evaluation_envs(self.env, episodes, seed=seed, **around)
        actor = self.algorithm
        if explores:
            actor = exploring_copy(actor, self.config, self._spaces, seed, self.device)
        acting = RecurrentActing(actor)

        def act(obs: Array, begins: Array) -> Array:
            return acting.act(acting.inputs(self.normalised(obs), begins), explore=explores)

        found = run_episodes(envs, act, episodes, first)
        if math.isnan(found.mean):
            self._loop.progress.diverged = f"actions of NaN at {self.env_steps:,} env_steps"
        return found

    @property
    def replays(self) -> bool:
        """Whether the memory is more than a rollout that is learned from once."""
        return not (self.algorithm.offline or isinstance(self.memory, RolloutMemory))

    def save(self, path: str | Path, *, memory: bool = True) -> None:
        """Write everything into one file, atomically: `load` goes on exactly here (on a CPU).

        Args:
            path: the file
            memory: without it the file is small; to go on, a training fills a new memory first
        """
        checkpoint.write(path, self._state(memory))

    def _state(self, memory: bool = True) -> dict[str, Any]:
        assert not self.acts_only, "this agent was made to act only"
        return {
            **checkpoint.about(self),
            "engine": self._wanted_engine,
            **self._loop.state_dict(),
            "algorithm": self.algorithm.state_dict(),
            "memory": self.memory.state_dict() if memory else None,
            **self.normalizers.state_dict(),
            **self._collector.state_dict(),
            "cloning": self._cloning and self._cloning.state_dict(),
            "signals": self._signals and self._signals.state_dict(),
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
        engine: str | None = None,
    ) -> Self:
        """Return the agent that ``save`` wrote, ready to go on.

        Args:
            path: the checkpoint
            device: as in the constructor
            env: refuse the checkpoint if it was trained on another environment
            algorithm: refuse the checkpoint if it is of another agent
            acts_only: as in the constructor
            engine: as in the constructor; None: what the training that was saved asked for

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
            # Those from before there were kernels went on bit by bit with PyTorch.
            engine=engine or str(state.get("engine", TORCH)),
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
        load_weights(path, self.algorithm_spec, self.env, self.algorithm, self.observations)
        if self._learners is not None:
            self._learners.forget()

    def act_as(
        self, nets: Mapping[str, Any], observations: Mapping[str, Any] | None, env_steps: int
    ) -> None:
        """Act with the policy of another agent, made as this one is.

        Args:
            nets: the weights that acting needs, by their names in ``nets``; the others stay
            observations: the statistics by which it normalises them; None: it does not
            env_steps: how long it was trained

        Raises:
            UserError: the weights are of another network.
        """
        own = self.algorithm.state_dict()
        self.algorithm.load_weights({**own, "nets": {**own["nets"], **nets}})
        if self.observations is not None and observations is not None:
            self.observations.load_state_dict(observations)
        self._loop.progress.env_steps = env_steps

    def go_on(self, controls: Controls) -> None:
        """Let other controls decide from now on, also where the old ones have ended it."""
        if controls != self.controls:
            if self.algorithm.offline:
                check_controls(controls, self.algorithm_spec)
            self.controls = controls
            self.monitor.go_on(controls)

    def with_config(self, config: Mapping[str, object]) -> Self:
        """Return an agent that goes on exactly here with other hyperparameters; closes this one.

        Everything is built anew from them and takes over what was learned and seen so far. Where
        the running rollout is longer than one may be now, it is dropped.

        Args:
            config: hyperparameters by name; absent ones have their defaults

        Raises:
            UserError: an unknown hyperparameter, or one that a training keeps (see `hp`).
        """
        made = changed_config(self.config, config)
        agent = type(self)(
            self.algorithm_spec,
            self.env,
            made,
            total_timesteps=self.total_timesteps,
            seed=self.seed,
            device=self.device,
            controls=self.controls,
            env_kwargs=self.env_kwargs,
            engine=self._wanted_engine,
        )
        self._loop.drop_rollout(agent.algorithm.update_every)
        agent._restore(self._state(), f"of {self.env_steps:,} env_steps")
        self.close()
        return agent

    def _restore(self, state: dict[str, Any], path: str | Path) -> None:
        with checkpoint.fitting(path, self.algorithm_spec, self.env):
            self.algorithm.load_state_dict(state["algorithm"])
            if self._learners is not None:
                self._learners.forget()
            self.extra = state["extra"]
            self._loop.load_state_dict(state)
            self.normalizers.load_state_dict(state)
            if not self.acts_only:
                starts = int(getattr(self.config, "learning_starts", 0))
                self._loop.load_experience(state, starts)
            if self._cloning is not None and state.get("cloning"):
                self._cloning.load_state_dict(state["cloning"])
            if self._signals is not None and state.get("signals"):
                self._signals.load_state_dict(state["signals"])

    def close(self) -> None:
        """Close the environments, and end the other learners."""
        if self._learners is not None:
            self._learners.close()
        self._envs.close()
        if self._spaces.goals is not None:
            self._spaces.goals.close()


def resolve_device(device: str, spaces: Spaces) -> str:
    """Return the device that ``auto`` stands for: a GPU, where there is one, only for images.

    Small networks on vectors are faster on a CPU, and there on one thread.
    """
    images = InputParts(spaces.observation).has_images
    if device == "auto":
        device = "cuda" if images and torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # no such device, or none of this kind here
        raise UserError(
            f"device {device!r} can't be used: {str(error).splitlines()[0].rstrip('.')}; "
            "--device cpu computes without it"
        ) from error
    if device == "cpu" and not images:
        hold_threads(1)
    return device
