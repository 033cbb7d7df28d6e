"""RLlib's algorithms as agents: `rllib:PPO`, `rllib:DQN` and `rllib:SAC`, under RLlib's own names.

`RLlibAgent` offers what the search and the training need of an `rltune.agents.Agent`. It runs an
RLlib Algorithm whose sampler and learner are in this process, and asks its network (the RLModule)
for greedy actions on our own environments and seeds, so that scores can be compared with those of
our agents.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import math
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents import checkpoint
from rltune.agents.agent import (
    EVALUATION_ENVS,
    Chunk,
    Episode,
    Evaluation,
    Seeds,
    greedy_episodes,
)
from rltune.agents.config import config_dict, hp, make_config
from rltune.agents.controls import Controls, Monitor
from rltune.agents.envs import Envs, make_env
from rltune.agents.errors import UserError
from rltune.learners import RLLIB

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm import Algorithm
    from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

Array = NDArray[Any]
ENV_NAME = "rltune"

# What RLlib's documentation says of them, in short; the defaults are RLlib's own.
_KNOWN: dict[str, dict[str, Any]] = {
    "lr": {"low": 1e-5, "high": 1e-2, "scale": "log", "help": "step size of the optimizer"},
    "actor_lr": {"low": 1e-5, "high": 1e-2, "scale": "log", "help": "step size of the actor"},
    "critic_lr": {"low": 1e-5, "high": 1e-2, "scale": "log", "help": "step size of the critics"},
    "alpha_lr": {"low": 1e-5, "high": 1e-2, "scale": "log", "help": "step size of the temperature"},
    "gamma": {
        "low": 0.9,
        "high": 0.9999,
        "scale": "one_minus_log",
        "maximum": 1,
        "help": "discount factor",
    },
    "lambda_": {
        "low": 0.8,
        "high": 0.999,
        "scale": "one_minus_log",
        "maximum": 1,
        "help": "lambda of the generalised advantage estimate",
    },
    "clip_param": {"low": 0.05, "high": 0.4, "help": "clip range of the policy's ratio"},
    "entropy_coeff": {"low": 1e-8, "high": 0.1, "scale": "log", "help": "weight of the entropy"},
    "vf_loss_coeff": {"low": 0.1, "high": 1.0, "help": "weight of the value loss"},
    "vf_clip_param": {"help": "largest squared error of a value that counts"},
    "use_kl_loss": {"help": "penalise the KL divergence from the old policy"},
    "kl_coeff": {"help": "initial weight of that penalty"},
    "kl_target": {"help": "KL divergence that the weight is adapted to"},
    "grad_clip": {"low": 0.3, "high": 40.0, "scale": "log", "help": "gradient norm; 0: no clip"},
    "minibatch_size": {
        "low": 32,
        "high": 1024,
        "scale": "pow2",
        "minimum": 1,
        "help": "minibatch size",
    },
    "num_epochs": {"low": 1, "high": 30, "minimum": 1, "help": "passes over each batch"},
    "train_batch_size_per_learner": {
        "low": 32,
        "high": 4096,
        "scale": "pow2",
        "minimum": 1,
        "help": "PPO: env steps between updates, all environments together; else: minibatch size",
    },
    "num_envs_per_env_runner": {"minimum": 1, "help": "parallel environments"},
    "target_network_update_freq": {"help": "env steps between updates of the targets"},
    "tau": {
        "low": 0.001,
        "high": 1.0,
        "scale": "log",
        "maximum": 1,
        "help": "how far an update moves the targets",
    },
    "n_step": {"minimum": 1, "help": "steps of a return"},
    "num_steps_sampled_before_learning_starts": {"help": "env steps before the first update"},
    "double_q": {"help": "double Q-learning"},
    "dueling": {"help": "apart: the value and the advantages"},
    "num_atoms": {"minimum": 1, "help": "atoms of a distributional Q-function; 1: plain"},
    "v_min": {"minimum": -math.inf, "help": "lowest atom"},
    "v_max": {"minimum": -math.inf, "help": "highest atom"},
    "adam_epsilon": {"help": "epsilon in Adam's denominator"},
    "initial_alpha": {"help": "first temperature"},
    "fcnet_hiddens": {"minimum": 1, "help": "hidden layers, as 64,64"},
    "fcnet_activation": {"choices": ("tanh", "relu", "swish"), "help": "activation"},
    "vf_share_layers": {"help": "one encoder for policy and value"},
}
_ALL = ("gamma", "grad_clip", "train_batch_size_per_learner", "num_envs_per_env_runner")
_REPLAY = (
    "tau",
    "n_step",
    "target_network_update_freq",
    "num_steps_sampled_before_learning_starts",
)
_MODEL = ("fcnet_hiddens", "fcnet_activation", "vf_share_layers")
_NAMES = {
    "PPO": (
        *("lr", "lambda_", "clip_param", "entropy_coeff", "vf_loss_coeff", "vf_clip_param"),
        *("use_kl_loss", "kl_coeff", "kl_target", "minibatch_size", "num_epochs"),
        *(_ALL + _MODEL),
    ),
    "DQN": (
        *("lr", "adam_epsilon", "double_q", "dueling", "num_atoms", "v_min", "v_max"),
        *(_ALL + _REPLAY + _MODEL[:2]),
    ),
    "SAC": ("actor_lr", "critic_lr", "alpha_lr", "initial_alpha", *(_ALL + _REPLAY + _MODEL[:2])),
}
# What an RLlib learner learns beside its networks, and leaves out of its state.
_LEARNED = ("curr_kl_coeffs_per_module", "curr_log_alpha")


def _algorithm(agent: str) -> str:
    """Return RLlib's name of the algorithm ``rllib:NAME``."""
    name = agent.removeprefix(RLLIB)
    if name in _NAMES:
        return name
    # RLlib's others learn from recorded data or from processes of their own.
    names = ", ".join(RLLIB + known for known in _NAMES)
    raise UserError(f"agent {agent!r} can't be run; of RLlib's, choose one of: {names}.")


def _defaults(name: str) -> AlgorithmConfig:
    """Return RLlib's own configuration of an algorithm."""
    quiet()
    from ray.rllib.algorithms.registry import ALGORITHMS

    return ALGORITHMS[name]()[1]


@functools.cache
def config_class(agent: str) -> type[Any]:
    """Return the configuration class of ``rllib:NAME``: RLlib's names with RLlib's defaults.

    Raises:
        UserError: RLlib has no such algorithm, or one that cannot be run here.
    """
    name = _algorithm(agent)
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    config = _defaults(name)
    model = {**dataclasses.asdict(DefaultModelConfig()), **config.model_config}
    fields = []
    for field in _NAMES[name]:
        default = model[field] if field in _MODEL else getattr(config, field)
        if field == "grad_clip":
            default = float(default or 0)
        default = tuple(default) if isinstance(default, list) else default
        fields.append((field, type(default), hp(default, **_KNOWN[field])))
    # Only our agents stack frames; whoever shows an agent asks it.
    return dataclasses.make_dataclass(
        f"RLlib{name}Config", fields, frozen=True, kw_only=True, namespace={"frame_stack": 0}
    )


def quiet() -> None:
    """Keep RLlib's warnings, of its own deprecations mostly, off the screen."""
    for name in ("ray.rllib", "ray.tune", "ray._common"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"ray\.|gymnasium\.")


class Policy:
    """The network of an RLlib algorithm, asked for greedy actions."""

    def __init__(self, module: Any, action_space: gymnasium.Space[Any]) -> None:
        self._module = module
        self._action_space = action_space

    def act(self, obs: Array, *, explore: bool = False) -> Array:
        """Return the greedy actions for ``obs`` of shape (n, d), as the environment takes them."""
        from ray.rllib.core.columns import Columns
        from ray.rllib.utils.spaces.space_utils import unsquash_action

        assert not explore, "RLlib explores on its own"
        device = next(self._module.parameters()).device
        with torch.no_grad():
            out = self._module.forward_inference({Columns.OBS: torch.as_tensor(obs).to(device)})
            if Columns.ACTIONS in out:
                actions = out[Columns.ACTIONS]
            else:
                distribution = self._module.get_inference_action_dist_cls()
                logits = out[Columns.ACTION_DIST_INPUTS]
                actions = distribution.from_logits(logits).to_deterministic().sample()
        result: Array = np.asarray(actions.cpu())
        if isinstance(self._action_space, gymnasium.spaces.Box):
            # RLlib's networks act in [-1, 1], whatever the bounds.
            result = np.stack([unsquash_action(one, self._action_space) for one in result])
        return result


class RLlibAgent:
    """An algorithm of RLlib's that trains on an environment; see `rltune.agents.Agent`.

    An RLlib iteration is never cut, so ``learn`` goes beyond ``until`` by less than one:
    ``train_batch_size_per_learner`` env_steps for PPO, ``num_envs_per_env_runner`` for the others.

    Args:
        algorithm: "rllib:PPO", "rllib:DQN" or "rllib:SAC"
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
        self.algorithm_spec = RLLIB + _algorithm(algorithm)
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

        sample = make_env(env, env_kwargs=self.env_kwargs)
        shape, action_space = sample.observation_space.shape, sample.action_space
        sample.close()  # type: ignore[no-untyped-call]
        if shape is None or len(shape) != 1:
            raise UserError(
                f"{self.algorithm_spec} sees only vectors here, and {env!r} gives images; "
                "use one of rltune's own agents, such as ppo."
            )
        self._closing = contextlib.ExitStack()
        self._enter_ray()
        try:
            self._rllib = self._build("cpu" if device == "auto" else device)
        except BaseException:
            self._closing.close()
            raise
        self.algorithm = Policy(self._rllib.get_module(), action_space)

    def _enter_ray(self) -> None:
        """Start a small Ray where there is none: RLlib wants one, even for a single process."""
        import ray
        from rltune.launch import ray_session

        if not ray.is_initialized():
            self._closing.enter_context(ray_session())
        quiet()

    def _build(self, device: str) -> Algorithm:
        from ray.rllib.utils.error import UnsupportedSpaceException
        from ray.tune.registry import register_env

        register_env(ENV_NAME, _training_env)
        if device == "cpu":
            torch.set_num_threads(1)
        # What a resumed training samples next is not what it began with.
        seed = int(np.random.SeedSequence((self.seed, self.env_steps)).generate_state(1)[0] >> 1)
        values = config_dict(self.config)
        values["grad_clip"] = values["grad_clip"] or None
        model = {name: values.pop(name) for name in _MODEL if name in values}
        n_envs = values.pop("num_envs_per_env_runner")
        try:
            config = (
                _defaults(_algorithm(self.algorithm_spec))
                .environment(ENV_NAME, env_config={"env": self.env, "kwargs": self.env_kwargs})
                .env_runners(num_env_runners=0, num_envs_per_env_runner=n_envs)
                .learners(num_learners=0, num_gpus_per_learner=int(device.startswith("cuda")))
                .rl_module(model_config=model)
                .training(**values)
                .reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=0)
                .callbacks(on_episode_end=_recorder(self._episodes))
                .debugging(seed=seed, log_level="ERROR")
            )
            with _silent():
                return config.build_algo()
        except (ValueError, NotImplementedError, UnsupportedSpaceException) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"{self.algorithm_spec} on {self.env!r}: {reason}") from error

    # ------------------------------------------------------------------------------------ training

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
            with _silent():
                result = self._rllib.train()
            self.env_steps += int(result["env_runners"]["num_env_steps_sampled"])
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

    def evaluate(
        self, episodes: int = 10, seed: int | None = None, max_steps: int | None = None
    ) -> Evaluation:
        """Run greedy episodes, the same ones as `rltune.agents.Agent.evaluate` for a seed."""
        envs = Envs(
            self.env,
            min(episodes, EVALUATION_ENVS),
            seed=Seeds.of(self.seed).evaluation if seed is None else seed,
            env_kwargs=self.env_kwargs,
            max_episode_steps=max_steps,
            training=False,
        )
        return greedy_episodes(envs, lambda obs, _: self.algorithm.act(obs), episodes)

    # --------------------------------------------------------------------------------- checkpoints

    def save(self, path: str | Path) -> None:
        """Write RLlib's state and ours into one file, atomically.

        Tensors and plain Python only, unlike RLlib's own checkpoints, which are pickles. The
        environments' unfinished episodes, the priorities of a replay and the global generators are
        not in it: a training that goes on is not bit-equal to one that was never stopped.
        """
        checkpoint.write(
            path,
            {
                "agent": self.algorithm_spec,
                "env": self.env,
                "env_kwargs": self.env_kwargs,
                "config": config_dict(self.config),
                "total_timesteps": self.total_timesteps,
                "seed": self.seed,
                "controls": vars(self.controls),
                "extra": self.extra,
                "env_steps": self.env_steps,
                "diverged": self.diverged,
                "monitor": self.monitor.state_dict(),
                "rllib": _plain(self._rllib.get_state()),
                "learned": self._learned_state(),
                "replay": self._replay_state(),
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
    ) -> RLlibAgent:
        """Return the agent that ``save`` wrote; see `rltune.agents.Agent.load`."""
        state = checkpoint.read(path)
        for kind, wanted, found in (
            ("env", env, state["env"]),
            ("agent", algorithm, state["agent"]),
        ):
            if wanted is not None and wanted != found:
                raise UserError(f"checkpoint {path} is of {kind} {found!r}, not of {wanted!r}")
        agent = cls(
            state["agent"],
            state["env"],
            state["config"],
            total_timesteps=state["total_timesteps"],
            seed=state["seed"],
            device=device,
            controls=Controls(**state["controls"]),
            env_kwargs=state["env_kwargs"],
            _steps_before=state["env_steps"],
        )
        try:
            agent._rllib.set_state(_arrays(state["rllib"]))
            agent._load_learned(state["learned"])
            agent._load_replay(_arrays(state["replay"]))
        except (RuntimeError, KeyError, ValueError, AttributeError, TypeError) as error:
            agent.close()
            raise UserError(
                f"checkpoint {path} does not fit this version of RLlib: "
                f"{(str(error).splitlines() or [type(error).__name__])[0]}"
            ) from error
        agent.extra = state["extra"]
        agent.diverged = state["diverged"]
        agent.monitor.load_state_dict(state["monitor"])
        return agent

    def _learner(self) -> Any:
        return next(iter(self._rllib.learner_group.foreach_learner(lambda one: one))).get()

    def _learned_state(self) -> dict[str, dict[str, torch.Tensor]]:
        learner = self._learner()
        return {
            name: {key: value.detach().cpu() for key, value in getattr(learner, name).items()}
            for name in _LEARNED
            if hasattr(learner, name)
        }

    def _load_learned(self, state: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
        learner = self._learner()
        for name, values in state.items():
            for key, value in values.items():
                getattr(learner, name)[key].data.copy_(value)

    def _replay_state(self) -> list[Any]:
        replay = getattr(self._rllib, "local_replay_buffer", None)
        return [_plain(episode.get_state()) for episode in replay.episodes] if replay else []

    def _load_replay(self, episodes: list[Any]) -> None:
        from ray.rllib.env.single_agent_episode import SingleAgentEpisode

        if episodes:
            replay = self._rllib.local_replay_buffer
            replay.add([SingleAgentEpisode.from_state(episode) for episode in episodes])

    def close(self) -> None:
        """Stop RLlib, and Ray where it was started for it."""
        with _silent():
            self._rllib.stop()
        self._closing.close()


def _training_env(config: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """Return an environment as our own agents see it, which counts its episodes."""
    made = make_env(config["env"], env_kwargs=config["kwargs"])
    if made.observation_space.dtype != np.float32:
        made = gymnasium.wrappers.DtypeObservation(made, np.float32)
    return gymnasium.wrappers.RecordEpisodeStatistics(made)


def _recorder(episodes: list[tuple[float, int]]) -> Any:
    """Return RLlib's callback that notes every finished episode in the list."""

    def on_episode_end(*, episode: Any, **_: Any) -> None:
        # RLlib cuts episodes where rollouts end, and counts a step too many at each cut.
        statistics = episode.get_infos(-1)["episode"]
        episodes.append((float(statistics["r"]), int(statistics["l"])))

    return on_episode_end


def _metrics(result: Mapping[str, Any]) -> dict[str, float]:
    """Return what the learner says of its losses; nothing before the first update."""
    learner = result.get("learners", {}).get("default_policy", {})
    wanted = ("loss", "entropy", "kl", "explained_var", "learning_rate", "alpha", "qf", "gradients")
    return {
        name: float(value)
        for name, value in learner.items()
        if any(word in name for word in wanted) and isinstance(value, (int, float, np.number))
    }


def _is_sound(name: str, value: float) -> bool:
    """Whether a metric says nothing bad: a loss has to be finite."""
    return math.isfinite(value) or "loss" not in name


@contextlib.contextmanager
def _silent() -> Any:
    """RLlib warns of what it calls itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _plain(tree: Any) -> Any:
    """Return a state as tensors and plain Python."""
    if isinstance(tree, Mapping):
        return {key: _plain(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(_plain(value) for value in tree)
    if isinstance(tree, np.ndarray):
        return torch.from_numpy(tree.copy())
    if isinstance(tree, torch.Tensor):
        return tree.detach().cpu()
    if isinstance(tree, np.generic):
        return tree.item()
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return tree
    raise TypeError(f"RLlib's state holds a {type(tree).__name__}, which is not kept")


def _arrays(tree: Any) -> Any:
    """Undo `_plain`: RLlib's states hold arrays."""
    if isinstance(tree, dict):
        return {key: _arrays(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(_arrays(value) for value in tree)
    return tree.numpy() if isinstance(tree, torch.Tensor) else tree
