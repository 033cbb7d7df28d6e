"""Suites of environments: an agent that is one agent on each, with one configuration."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rltune.agents.engines import AUTO
from rltune.agents.envs.suite import environments, parse_suite, shares
from rltune.agents.errors import UserError
from rltune.agents.eval_modes import GREEDY
from rltune.agents.loop import checkpoint
from rltune.agents.loop.controls import Controls
from rltune.agents.loop.results import Chunk, Episode, Evaluation
from rltune.backends.base import Backend
from rltune.backends.single import single_trainer

if TYPE_CHECKING:
    from rltune.backends.base import SingleTrainer


class SuiteBackend(Backend):
    """Several environments at once, each with an agent of another backend.

    Args:
        single: the backend of each agent
    """

    def __init__(self, single: Backend) -> None:
        self.single = single
        self.name, self.prefix = single.name, single.prefix
        self.starts_from_weights = single.starts_from_weights
        self.eval_modes = single.eval_modes
        self.engines = single.engines
        self.changes_hyperparameters = single.changes_hyperparameters
        self.resumes_exactly = single.resumes_exactly

    def agents(self) -> list[str]:
        """Return the names of the agents of the other backend."""
        return self.single.agents()

    def config_class(self, agent: str) -> type[Any]:
        """Return the class of an agent's configurations: all have the same."""
        return self.single.config_class(agent)

    def trainer(self, agent: str) -> type[SuiteAgent]:
        """Return the class that trains an agent on each environment."""
        return SuiteAgent

    def check_fit(
        self,
        agent: str,
        env: str,
        configs: Sequence[Mapping[str, Any]],
        env_kwargs: Mapping[str, Any],
        *,
        has_data: bool,
    ) -> None:
        """See `Backend.check_fit`: each environment by itself."""
        for name in environments(env):
            self.single.check_fit(agent, name, configs, env_kwargs, has_data=has_data)

    def check_controls(self, controls: Controls, env_kwargs: Mapping[str, Any] | None) -> None:
        """Raise `UserError` for what only a single environment can have."""
        check_together(controls, env_kwargs)

    def is_own(self, agent: str) -> bool:
        """Whether an agent is ``module:Class`` of the user's own."""
        return self.single.is_own(agent)

    def may_exceed(self, agent: str) -> bool:
        """Whether a training may go beyond its budget."""
        return self.single.may_exceed(agent)


def check_together(controls: Controls, env_kwargs: Mapping[str, Any] | None) -> None:
    """Raise `UserError` for what only a single environment can have."""
    if controls.target_reward is not None or controls.early_stop_patience is not None:
        raise UserError(
            "--target-reward and --early-stop-patience need a single environment: with several, "
            "none may end before the others."
        )
    if env_kwargs:
        raise UserError("--env-kwargs needs a single environment.")


class SuiteAgent:
    """Agents with the same configuration, one on each environment, that are trained in turns.

    To its callers it is one agent: searches, histories and tournaments need not know.

    Each has an equal share of the env steps. Returns are normalised scores, those of evaluations
    means over the environments; there the metrics have each one's own return, ``eval_return/ENV``.

    Args: as those of `rltune.agents.loop.agent.Agent`, but ``env`` is a suite's name.
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
    ) -> None:
        controls = controls or Controls()
        check_together(controls, env_kwargs)
        self.env = env
        self.env_kwargs: dict[str, Any] = {}
        self.scales = parse_suite(env)
        self.extra: dict[str, Any] = {}
        parts = shares(int(total_timesteps), len(self.scales))
        self.members: list[SingleTrainer] = [
            single_trainer(algorithm)(
                algorithm, scale.env, config,
                total_timesteps=share, seed=seed, device=device, controls=controls, engine=engine,
            )
            for scale, share in zip(self.scales, parts, strict=True)
        ]  # fmt: skip

    @property
    def algorithm_spec(self) -> str:
        """The name of the algorithm."""
        return self.members[0].algorithm_spec

    @property
    def config(self) -> Any:
        """The configuration of them all."""
        return self.members[0].config

    @property
    def seed(self) -> int:
        """The seed of them all."""
        return self.members[0].seed

    @property
    def env_steps(self) -> int:
        """Agent decisions so far, summed over all environments."""
        return sum(member.env_steps for member in self.members)

    @property
    def total_timesteps(self) -> int:
        """The length of the whole training, summed over all environments."""
        return sum(member.total_timesteps for member in self.members)

    @total_timesteps.setter
    def total_timesteps(self, total: int) -> None:
        for member, share in zip(self.members, shares(total, len(self.members)), strict=True):
            member.total_timesteps = share

    @property
    def stop_reason(self) -> str | None:
        """No rule of its own ends it."""
        return None

    @property
    def engine(self) -> str:
        """What computes: on environments with pictures it may differ from that of the others."""
        return "+".join(sorted({member.engine for member in self.members}))

    @property
    def diverged(self) -> str | None:
        """A text on the value that became infinite or NaN; None if none did."""
        found = (f"{m.diverged} on {m.env}" for m in self.members if m.diverged)
        return next(found, None)

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to train."""
        return self.diverged is not None or all(member.finished for member in self.members)

    def member(self, env: str) -> SingleTrainer:
        """Return the agent on one environment; UserError: it is none of them."""
        for member in self.members:
            if member.env == env:
                return member
        names = ", ".join(member.env for member in self.members)
        raise UserError(f"this agent was trained on {names}, not on {env!r}")

    def learn(self, until: int, deadline: float | None = None) -> Chunk:
        """Train each until all ``env_steps`` together reach ``until``; see `Agent.learn`."""
        total = self.total_timesteps
        chunks, episodes = [], []
        for member, scale in zip(self.members, self.scales, strict=True):
            others = self.env_steps - member.env_steps
            chunk = member.learn(-(-until * member.total_timesteps // total), deadline)
            chunks.append(chunk)
            episodes += [
                Episode(others + e.env_steps, scale.score(e.episode_return), e.length, e.time)
                for e in chunk.episodes
            ]
        metrics = [chunk.metrics for chunk in chunks]
        means = self._scores([chunk.mean_reward for chunk in chunks])
        bests = self._scores([chunk.best_reward for chunk in chunks])
        return replace(
            chunks[0],
            env_steps=self.env_steps,
            seconds=math.fsum(chunk.seconds for chunk in chunks),
            values={name: [mean] for name, mean in _means(metrics).items()},
            episodes=episodes,
            mean_reward=means,
            best_reward=bests,
            stop_reason=None,
            diverged=self.diverged,
            updates=sum(chunk.updates for chunk in chunks),
        )

    def _scores(self, returns: Sequence[float | None]) -> float | None:
        """Return the mean score; None while an environment has none yet."""
        pairs = zip(self.scales, returns, strict=True)
        scores = [None if value is None else scale.score(value) for scale, value in pairs]
        known = [score for score in scores if score is not None]
        return math.fsum(known) / len(known) if len(known) == len(scores) else None

    def evaluate(
        self,
        episodes: int = 10,
        seed: int | None = None,
        max_steps: int | None = None,
        mode: str = GREEDY,
        *,
        first: int = 0,
    ) -> Evaluation:
        """Run so many episodes on each environment.

        The k-th return is the mean score of the k-th episodes, its length that of all of them.
        """
        parts = [
            member.evaluate(episodes, seed, max_steps, mode, first=first) for member in self.members
        ]
        scores = [
            [scale.score(value) for value in part.returns]
            for scale, part in zip(self.scales, parts, strict=True)
        ]
        known = all(part.successes for part in parts)
        return Evaluation(
            [math.fsum(column) / len(column) for column in zip(*scores, strict=True)],
            [sum(column) for column in zip(*(part.lengths for part in parts), strict=True)],
            math.fsum(part.seconds for part in parts),
            [success for part in parts for success in part.successes] if known else [],
            {
                f"eval_return/{scale.env}": part.mean
                for scale, part in zip(self.scales, parts, strict=True)
            },
            sum(part.cut for part in parts),
        )

    def with_config(self, config: Mapping[str, object]) -> SuiteAgent:
        """Let all go on with other hyperparameters; see `Agent.with_config`."""
        members = [member.with_config(config) for member in self.members]
        self.members = cast("list[SingleTrainer]", members)
        return self

    @property
    def replays(self) -> bool:
        """Whether the memories are more than rollouts that are learned from once."""
        return any(member.replays for member in self.members)

    @property
    def controls(self) -> Controls:
        """The controls of them all."""
        return self.members[0].controls

    def go_on(self, controls: Controls) -> None:
        """Let other controls decide from now on; see `rltune.agents.Agent.go_on`."""
        check_together(controls, None)
        for member in self.members:
            member.go_on(controls)

    def load_weights(self, path: str | Path) -> None:
        """Let each begin with the networks of a checkpoint; see `Agent.load_weights`."""
        for member in self.members:
            member.load_weights(path)

    def save(self, path: str | Path, *, memory: bool = True) -> None:
        """Write all of them into one file, atomically; see `Agent.save`."""
        with tempfile.TemporaryDirectory() as folder:
            part = Path(folder) / "member.pt"
            states = []
            for member in self.members:
                member.save(part, memory=memory)
                states.append(checkpoint.read(part))
        about = {"agent": self.algorithm_spec, "env": self.env, "extra": self.extra}
        checkpoint.write(path, {**about, "members": states})

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        device: str = "auto",
        env: str | None = None,
        algorithm: str | None = None,
        acts_only: bool = False,
    ) -> SuiteAgent:
        """Return the agent that ``save`` wrote; see `Agent.load`."""
        state = checkpoint.read(path, env=env, agent=algorithm)
        suite = cls.__new__(cls)
        suite.env, suite.env_kwargs, suite.extra = state["env"], {}, state["extra"]
        suite.scales = parse_suite(suite.env)
        suite.members = []
        members = checkpoint.members(state, path)
        if len(members) != len(suite.scales):
            raise UserError(
                f"checkpoint {path} is damaged: it has not an agent of each environment"
            )
        with tempfile.TemporaryDirectory() as folder:
            part = Path(folder) / "member.pt"
            for member in members:
                with checkpoint.fitting(path, state["agent"], suite.env):
                    checkpoint.write(part, member)
                    member = checkpoint.read(part)
                member_type = single_trainer(member["agent"])
                suite.members.append(member_type.load(part, device=device, acts_only=acts_only))
        return suite

    def close(self) -> None:
        """Close all environments."""
        for member in self.members:
            member.close()


def _means(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the means of what all parts have."""
    common = set(parts[0]).intersection(*parts)
    return {
        name: math.fsum(part[name] for part in parts) / len(parts)
        for name in parts[0]
        if name in common
    }
