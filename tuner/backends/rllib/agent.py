"""RLlib's algorithms as agents, as `rllib:PPO`; `rltune.backends.rllib.config` knows their names.

`RLlibAgent` offers what the search and the training need of an `rltune.agents.Agent`. It runs an
RLlib Algorithm whose sampler and learner are in this process, and asks its network (the RLModule)
for greedy actions on our own environments and seeds, so that scores can be compared with those of
our agents.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.config import config_dict, make_config
from rltune.agents.envs.vector import Envs, make_env
from rltune.agents.errors import UserError
from rltune.agents.eval_modes import GREEDY, check_eval_mode
from rltune.agents.loop import checkpoint
from rltune.agents.loop.acting import RecurrentActing
from rltune.agents.loop.controls import Controls, Monitor
from rltune.agents.loop.evaluation import EVALUATION_ENVS, Seeds, run_episodes
from rltune.agents.loop.results import Chunk, Episode, Evaluation
from rltune.agents.spaces import Parts
from rltune.backends.names import EXPLORES, NO_WEIGHTS, RECORDED, RLLIB
from rltune.backends.rllib.config import MODEL, algorithm_name, config_class, defaults, quiet
from rltune.backends.rllib.internals import (
    _arrays,
    _env_steps,
    _is_sound,
    _learn_in_turn,
    _learner,
    _metrics,
    _no_pickles,
    _plain,
    _recorder,
    _replay,
    _set_state,
    _silent,
)

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm import Algorithm

Array = NDArray[Any]
ENV_NAME = "rltune"

# What an RLlib learner learns beside its networks, and leaves out of its state.
_LEARNED = (
    "curr_kl_coeffs_per_module",
    "curr_log_alpha",
    "moving_avg_sqd_adv_norms_per_module",
)
# With a GPU, RLlib loads their batches in threads of their own.
_ON_CPU = ("rllib:APPO", "rllib:IMPALA")
# For Discrete actions alone; RLlib's own complaint about others is of something else.
_CHOOSE = ("rllib:DQN",)
# Of an algorithm's sampler, not of its training.
_SAMPLER = ("num_envs_per_env_runner", "rollout_fragment_length")


class Policy:
    """The network of an RLlib algorithm, asked for greedy actions.

    What it sees are observations (n, d). Where the network has a state (DreamerV3), 1 at the
    beginning of an episode and the state follow: see `rltune.agents.loop.acting.RecurrentActing`.
    """

    def __init__(self, module: Any, action_space: gymnasium.Space[Any]) -> None:
        self._module = module
        self._action_space = action_space
        initial = module.get_initial_state() if module.is_stateful() else {}
        self._shapes = {name: tuple(value.shape) for name, value in initial.items()}
        self.state_size = sum(math.prod(shape) for shape in self._shapes.values())
        self._last: tuple[Array | None, dict[str, Any]] = (None, {})

    def act(self, seen: Array, *, explore: bool = False) -> Array:
        """Return the greedy actions (n, ...), as the environment takes them."""
        from ray.rllib.core.columns import Columns
        from ray.rllib.utils.spaces.space_utils import unsquash_action

        if explore:
            raise UserError(f"only greedy actions can be asked for: {EXPLORES}")
        out = self._forward(seen)
        if Columns.ACTIONS in out:
            actions = out[Columns.ACTIONS]
        else:
            distribution = self._module.get_inference_action_dist_cls()
            logits = out[Columns.ACTION_DIST_INPUTS]
            actions = distribution.from_logits(logits).to_deterministic().sample()
        if self.state_size:
            actions = actions.squeeze(1)  # of one step of time
        result: Array = np.asarray(actions.cpu())
        if isinstance(self._action_space, gymnasium.spaces.Box):
            # RLlib's networks act in [-1, 1], whatever the bounds.
            result = np.stack([unsquash_action(one, self._action_space) for one in result])
        return result

    def restart_exploration(self) -> None:
        """Raise `UserError`: there is none to be asked for."""
        raise UserError(f"only greedy actions can be asked for: {EXPLORES}")

    def next_state(self, seen: Array) -> Array:
        """Return the states (n, state_size) after the step."""
        state = self._forward(seen)["state_out"]
        return np.concatenate(
            [np.asarray(state[name].cpu()).reshape(len(seen), -1) for name in self._shapes], 1
        )

    def _forward(self, seen: Array) -> dict[str, Any]:
        # DreamerV3 draws its state: the action has to come of the same draw.
        if self._last[0] is seen:
            return self._last[1]
        device = next(self._module.parameters()).device
        rows = torch.as_tensor(seen).to(device)
        batch: dict[str, Any] = {"obs": rows}
        if self.state_size:
            n_obs, sizes = (
                rows.shape[1] - 1 - self.state_size,
                map(math.prod, self._shapes.values()),
            )
            obs, first, *parts = torch.split(rows, [n_obs, 1, *sizes], 1)
            batch = {"obs": obs[:, None], "is_first": first[:, 0]}
            batch["state_in"] = {
                name: part.reshape(-1, *shape)
                for part, (name, shape) in zip(parts, self._shapes.items(), strict=True)
            }
        with torch.no_grad():
            out: dict[str, Any] = self._module.forward_inference(batch)
        if self.state_size:
            self._last = seen, out
        return out


def check_fit(
    algorithm: str,
    env: str,
    configs: Sequence[Mapping[str, Any]],
    env_kwargs: Mapping[str, Any],
    *,
    has_data: bool,
) -> None:
    """See `registry.check_fit`; building the algorithm would take seconds."""
    spaces = fitting_spaces(algorithm, env, env_kwargs)
    for path in {config["input_"] for config in configs if "input_" in config}:
        from rltune.backends.rllib.offline import check_given, read_steps

        check_given(algorithm_name(algorithm), path)
        if has_data:
            read_steps(path, *spaces)


def fitting_spaces(
    algorithm: str, env: str, env_kwargs: Mapping[str, Any]
) -> tuple[gymnasium.Space[Any], gymnasium.Space[Any]]:
    """Return an environment's observation and action space; UserError: not of this algorithm."""
    sample = make_env(env, env_kwargs=env_kwargs)
    observation, action = sample.observation_space, sample.action_space
    sample.close()  # type: ignore[no-untyped-call]
    if Parts(observation).has_images:
        raise UserError(
            f"{algorithm} sees only vectors here, and {env!r} gives images; "
            "use one of rltune's own agents, such as ppo."
        )
    if algorithm in _CHOOSE and not isinstance(action, gymnasium.spaces.Discrete):
        raise UserError(
            f"{algorithm} chooses among Discrete actions, but those of {env!r} are {action}; "
            "use rllib:PPO, or rllib:SAC for a Box."
        )
    return observation, action


class RLlibAgent:
    """An algorithm of RLlib's that trains on an environment; see `rltune.agents.Agent`.

    An RLlib iteration is never cut, so ``learn`` goes beyond ``until`` by less than one. Where an
    algorithm learns from recorded data, ``env_steps`` are the recorded steps that it learned from.

    Args:
        algorithm: "rllib:NAME", see `rltune.backends.rllib.config.NAMES`
        env: a gymnasium id or ``module:Class``, with vectors as observations
        config: hyperparameters under RLlib's names, or under ours where there is a counterpart
        total_timesteps: the length of the whole training in env_steps
        seed: seeds RLlib, and the evaluations as those of our agents
        device: "cuda" gives the learner the GPU; "cpu" and "auto" do not
        controls: when to stop early; RLlib has no plateau rule
        env_kwargs: handed to the environment's constructor

    Raises:
        UserError: an unknown algorithm, environment or hyperparameter, or what RLlib refuses.
    """

    observations = None  # our agents may normalise them
    acts_only = False
    view: ClassVar[dict[str, Any]] = {}
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
        _steps_before: int = 0,
    ) -> None:
        self.algorithm_spec = RLLIB + algorithm_name(algorithm)
        self.env = env
        self.env_kwargs = dict(env_kwargs or {})
        self.config = make_config(config_class(self.algorithm_spec), config or {})
        self.total_timesteps = int(total_timesteps)
        self.seed = seed
        self.controls = controls or Controls()
        if self.controls.plateau_patience is not None:
            raise UserError(
                f"{self.algorithm_spec} has no plateau rule; leave out --plateau-patience."
            )
        self.extra: dict[str, Any] = {}
        self.env_steps = _steps_before
        self.monitor = Monitor(self.controls)
        self.diverged: str | None = None
        self._episodes: list[tuple[float, int]] = []  # that ended in the running iteration

        self._spaces = fitting_spaces(self.algorithm_spec, env, self.env_kwargs)
        self._closing = contextlib.ExitStack()
        self._enter_ray()
        try:
            self._rllib = self._build("cpu" if device == "auto" else device)
        except BaseException:
            self._closing.close()
            raise
        # The learner's network: the sampler's may be a step behind.
        self.algorithm = Policy(_learner(self._rllib).module["default_policy"], self._spaces[1])

    def _enter_ray(self) -> None:
        """Start a small Ray where there is none: RLlib wants one, even for a single process."""
        import ray
        from rltune.cluster.session import ray_session

        if not ray.is_initialized():
            self._closing.enter_context(ray_session())

    def _build(self, device: str) -> Algorithm:
        from ray.rllib.utils.error import UnsupportedSpaceException
        from ray.tune.registry import register_env

        register_env(ENV_NAME, _training_env)
        if device != "cpu" and self.algorithm_spec in _ON_CPU:
            raise UserError(f"{self.algorithm_spec} learns on the CPU here; leave out --device.")
        if device == "cpu":
            torch.set_num_threads(1)
        # What a resumed training samples next is not what it began with.
        seed = int(np.random.SeedSequence((self.seed, self.env_steps)).generate_state(1)[0] >> 1)
        values = config_dict(self.config)
        if "grad_clip" in values:
            values["grad_clip"] = values["grad_clip"] or None
        if "actor_lr" in values:
            values["lr"] = None  # RLlib insists on it, and its own default for CQL is a number
        model, sampler, recorded = (
            {name: values.pop(name) for name in names if name in values}
            for names in (MODEL, _SAMPLER, RECORDED)
        )
        try:
            config = (
                defaults(algorithm_name(self.algorithm_spec))
                .environment(ENV_NAME, env_config={"env": self.env, "kwargs": self.env_kwargs})
                .env_runners(num_env_runners=0, **sampler)
                .learners(num_learners=0, num_gpus_per_learner=int(device.startswith("cuda")))
                .rl_module(model_config=model)
                .update_from_dict(values)
                .reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=0)
                .callbacks(on_episode_end=_recorder(self._episodes))
                .debugging(seed=seed, log_level="ERROR")
            )
            if recorded:
                from rltune.backends.rllib.offline import use_recorded

                use_recorded(config, self._spaces, **recorded)
            with _silent():
                algorithm = config.build_algo()
        except (ValueError, NotImplementedError, UnsupportedSpaceException) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"{self.algorithm_spec} on {self.env!r}: {reason}") from error
        quiet()  # again: building sets levels of its own
        _learn_in_turn(_learner(algorithm), seed)
        return algorithm

    # ------------------------------------------------------------------------------------ training

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """What it sees of one environment: a vector."""
        return self._spaces[0]

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """What one environment takes."""
        return self._spaces[1]

    @property
    def stop_reason(self) -> str | None:
        """Why the controls ended the training; None if they did not."""
        return self.monitor.stop_reason

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to train."""
        return self.stop_reason is not None or self._is_done(self.total_timesteps)

    def _is_done(self, until: int) -> bool:
        return bool(self.diverged or self.stop_reason) or self.env_steps >= until

    def learn(self, until: int, deadline: float | None = None) -> Chunk:
        """Run whole RLlib iterations until ``env_steps`` reaches ``until``, or the deadline."""
        started = time.perf_counter()
        episodes: list[Episode] = []
        sums: dict[str, list[float]] = {}
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
                    sums.setdefault(name, []).append(value)
            if deadline is not None and time.time() >= deadline:
                break
        return Chunk(
            env_steps=self.env_steps,
            seconds=time.perf_counter() - started,
            metrics={name: math.fsum(values) / len(values) for name, values in sums.items()},
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

    def normalised(self, obs: Array) -> Array:
        """Return the observations: RLlib's connectors are not used, nothing is normalised."""
        return obs

    def evaluate(
        self,
        episodes: int = 10,
        seed: int | None = None,
        max_steps: int | None = None,
        mode: str = GREEDY,
    ) -> Evaluation:
        """Run greedy episodes, the same ones as `rltune.agents.Agent.evaluate` for a seed."""
        check_eval_mode(mode)
        if mode != GREEDY:
            raise UserError(f"{self.algorithm_spec} can only be evaluated greedily: {EXPLORES}")
        seed = Seeds.of(self.seed).evaluation if seed is None else seed
        envs = Envs(
            self.env,
            min(episodes, EVALUATION_ENVS),
            seed=seed,
            env_kwargs=self.env_kwargs,
            max_episode_steps=max_steps,
            training=False,
        )
        policy: Any = self.algorithm  # as much of one of our algorithms as is needed
        acting = RecurrentActing(policy)

        def act(obs: Array, begins: Array) -> Array:
            return acting.act(acting.inputs(obs, begins), explore=False)

        with torch.random.fork_rng(devices=[]):  # training draws from the same generator
            torch.manual_seed(seed)
            return run_episodes(envs, act, episodes)

    # --------------------------------------------------------------------------------- checkpoints

    def load_weights(self, path: str | Path) -> None:
        """Raise `UserError`: RLlib's networks can't be taken over."""
        raise UserError(f"{self.algorithm_spec} {NO_WEIGHTS}")

    def with_config(self, config: Mapping[str, object]) -> RLlibAgent:
        """Raise `UserError`: RLlib builds an algorithm anew for that."""
        raise UserError(f"{self.algorithm_spec} can't change its hyperparameters as it trains")

    def go_on(self, controls: Controls) -> None:
        """Let other controls decide from now on; see `rltune.agents.Agent.go_on`."""
        if controls != self.controls:
            self.controls = controls
            self.monitor.go_on(controls)

    def save(self, path: str | Path, *, memory: bool = True) -> None:
        """Write RLlib's state and ours into one file, atomically; ``memory``: its replay, too.

        Tensors and plain Python only, unlike RLlib's own checkpoints, which are pickles. The
        environments' unfinished episodes, the priorities of a replay and the global generators are
        not in it: a training that goes on is not bit-equal to one that was never stopped.
        """
        checkpoint.write(
            path,
            {
                **checkpoint.about(self),
                "env_steps": self.env_steps,
                "diverged": self.diverged,
                "monitor": self.monitor.state_dict(),
                "rllib": _plain(self._rllib.get_state()),
                "learned": self._learned_state(),
                "replay": self._replay_state() if memory else [],
            },
        )

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        device: str = "auto",
        env: str | None = None,
        algorithm: str | None = None,
        acts_only: bool = False,
    ) -> RLlibAgent:
        """Return the agent that ``save`` wrote; see `rltune.agents.Agent.load`."""
        state = checkpoint.read(path, env=env, agent=algorithm)
        agent = cls(
            state["agent"],
            state["env"],
            state["config"],
            device=device,
            _steps_before=checkpoint.whole(state, "env_steps", path),
            **checkpoint.setting(state, path),
        )
        try:
            with _no_pickles():
                _set_state(agent._rllib, _arrays(state["rllib"]))
                agent._load_learned(state["learned"])
                agent._load_replay(_arrays(state["replay"] or []))
            agent.extra = state["extra"]
            agent.diverged = state["diverged"]
            agent.monitor.load_state_dict(state["monitor"])
        except Exception as error:  # whatever RLlib makes of a damaged state
            agent.close()
            raise UserError(
                f"checkpoint {path} does not fit this version of RLlib: "
                f"{(str(error).splitlines() or [type(error).__name__])[0]}"
            ) from error
        return agent

    def _learned_state(self) -> dict[str, dict[str, torch.Tensor]]:
        learner = _learner(self._rllib)
        return {
            name: {key: value.detach().cpu() for key, value in getattr(learner, name).items()}
            for name in _LEARNED
            if hasattr(learner, name)
        }

    def _load_learned(self, state: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
        learner = _learner(self._rllib)
        for name, values in state.items():
            for key, value in values.items():
                getattr(learner, name)[key].data.copy_(value)

    def _replay_state(self) -> list[Any]:
        replay = _replay(self._rllib)
        return [_plain(episode.get_state()) for episode in replay.episodes] if replay else []

    def _load_replay(self, episodes: list[Any]) -> None:
        from ray.rllib.env.single_agent_episode import SingleAgentEpisode

        if episodes:
            _replay(self._rllib).add(
                [SingleAgentEpisode.from_state(episode) for episode in episodes]
            )

    def close(self) -> None:
        """Stop RLlib, and Ray where it was started for it."""
        with _silent():
            self._rllib.stop()
        self._closing.close()


class NotFiniteError(Exception):
    """The environment gave numbers that are none."""


class Finite(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Ends a training on observations or rewards of which RLlib's samplers only break.

    Raises:
        NotFiniteError: from ``reset`` and ``step``.
    """

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        obs, info = self.env.reset(**options)
        self._check("an observation", obs)
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._check("an observation", obs)
        self._check("a reward", reward)
        return obs, reward, terminated, truncated, info

    def _check(self, what: str, value: Any) -> None:
        if not np.isfinite(value).all():
            raise NotFiniteError(f"the environment gave {what} with NaN or infinity in it")


def _training_env(config: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """Return an environment as our own agents see it, which counts its episodes."""
    made: gymnasium.Env[Any, Any] = Finite(make_env(config["env"], env_kwargs=config["kwargs"]))
    if made.observation_space.dtype != np.float32:
        made = gymnasium.wrappers.DtypeObservation(made, np.float32)
    return gymnasium.wrappers.RecordEpisodeStatistics(made)
