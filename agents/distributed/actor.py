"""Actors: a copy of the policy that acts in environments of its own."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rltune.agents.config import AgentConfig, make_config
from rltune.agents.distributed.fragments import Fragment, FragmentMemory, Usage
from rltune.agents.distributed.policies import (
    Policy,
    act_by,
    acting_state,
    as_arrays,
    as_tensors,
    learned_since,
    statistics_of,
    take_acting,
)
from rltune.agents.envs.goals import goals_of
from rltune.agents.envs.vector import Envs
from rltune.agents.loop.collector import Collector
from rltune.agents.loop.evaluation import Seeds
from rltune.agents.loop.normalization import Normalizers
from rltune.agents.machine.memory import peak_memory
from rltune.agents.machine.threads import hold_threads
from rltune.agents.registry import agent_class
from rltune.agents.spaces import Spaces


@dataclass(frozen=True)
class ActorSpec:
    """What an actor is made from.

    Attributes:
        algorithm: a name, or ``module:Class``
        env, env_kwargs: as of the agent
        config: hyperparameters of the agent; ``n_envs`` are those of all actors together
        seed: of the training
        number: of the actor, from 0
        n_envs: environments of this actor
        engine: what computes
        incarnation: how many actors of this number there were before, which have died
        rates_actions: whether fragments say how probable the actions were
    """

    algorithm: str
    env: str
    env_kwargs: Mapping[str, Any]
    config: Mapping[str, Any]
    seed: int
    number: int
    n_envs: int
    engine: str
    incarnation: int = 0
    rates_actions: bool = False

    @property
    def seeds(self) -> Seeds:
        """The actor's own seeds; those of the training, where it is the only actor."""
        if self.n_envs == self.config["n_envs"] and not self.incarnation:
            return Seeds.of(self.seed)
        words = np.random.SeedSequence((self.seed, self.number + 1, self.incarnation))
        return Seeds.of(int(words.generate_state(1)[0]))


def make_envs(spec: ActorSpec, config: AgentConfig) -> Envs:
    """Return the environments of an actor."""
    return Envs(
        spec.env,
        spec.n_envs,
        seed=spec.seeds.training,
        env_kwargs=spec.env_kwargs,
        frame_stack=config.frame_stack,
        small_images=config.reads_small_images(),
        vectorization=config.vectorization,
    )


def make_algorithm(spec: ActorSpec, envs: Envs | None = None, *, replays: bool = False) -> Any:
    """Return an actor's algorithm.

    Args:
        spec: of the actor
        envs: whose spaces it is made for; None: some are made, and closed again
        replays: whether a memory will be made for it, which has to know an environment's goals
    """
    found = agent_class(spec.algorithm)
    config = make_config(found.Config, spec.config)
    if envs is None:
        with contextlib.closing(make_envs(spec, config)) as made:
            return make_algorithm(spec, made, replays=replays)
    spaces = Spaces(
        envs.single_observation_space,
        envs.single_action_space,
        spec.n_envs,
        goals_of(config, spec.env, spec.env_kwargs) if replays else None,
    )
    algorithm = found(config, spaces, seed=spec.seeds.algorithm, device="cpu")
    algorithm.use_engine(spec.engine)
    return algorithm


class Actor:
    """Steps some environments by a policy that it is given, and returns what it saw.

    Args:
        spec: what it is made from

    Raises:
        UserError: whatever `rltune.agents.Agent` raises for these arguments.
    """

    def __init__(self, spec: ActorSpec) -> None:
        hold_threads(1)
        self.spec = spec
        self.envs = make_envs(spec, make_config(agent_class(spec.algorithm).Config, spec.config))
        self.algorithm = make_algorithm(spec, self.envs)
        self.memory = FragmentMemory()
        self.normalizers = Normalizers(self.algorithm.config, self.algorithm.spaces)
        self.collector = Collector(self.envs, self.algorithm, self.memory, self.normalizers)
        self.begins, self._is_restored = True, False

    def collect(self, policy: Policy, rows: int) -> Fragment:
        """Take so many steps in all environments.

        Args:
            policy: to act by
            rows: steps of each environment
        """
        if self._is_restored and policy.state is not None and not policy.whole:
            # Its noise is drawn already.
            kept = {name: part for name, part in policy.state.items() if part is not None}
            policy = replace(policy, state=kept)
        self._is_restored = False
        act_by(self.algorithm, self.normalizers, policy)
        started, cpu_started = time.perf_counter(), time.process_time()
        before = statistics_of(self.normalizers)
        self.collector.begin()
        episodes = [self.collector.step().episodes for _ in range(rows)]
        fragment = self.memory.take(
            actor=self.spec.number,
            version=policy.version,
            episodes=episodes,
            begins=self.begins,
            usage=Usage(
                time.perf_counter() - started, time.process_time() - cpu_started, peak_memory()
            ),
            statistics=learned_since(self.normalizers, before),
            acting=self._acting() if policy.whole else None,
        )
        self.begins = False
        if self.spec.rates_actions:
            rated = self.algorithm.policy.rated(fragment.obs, fragment.steps["action"])
            fragment = replace(fragment, log_prob=rated)
        return fragment

    def _acting(self) -> dict[str, Any]:
        """Return what acting changed, for the learner."""
        running = as_arrays(self.normalizers.state_dict())
        return {"algorithm": acting_state(self.algorithm), "normalizers": running}

    def state_dict(self) -> dict[str, Any]:
        """Return where its environments stand, and its own noise and normalisation."""
        return {
            **self.collector.state_dict(),
            "acting": as_tensors(acting_state(self.algorithm)),
            "normalizers": self.normalizers.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` gave; an actor that goes on has not begun anew."""
        take_acting(self.algorithm, state["acting"])
        self.normalizers.load_state_dict(state["normalizers"])
        self.collector.load_state_dict(state)
        self.begins, self._is_restored = not self.envs.replays, True

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()
