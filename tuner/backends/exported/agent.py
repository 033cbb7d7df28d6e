"""Agents of exported policies: they act and are evaluated, and can't be trained."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from rltune.agents.envs.vector import Envs
from rltune.agents.errors import UserError
from rltune.agents.eval_modes import GREEDY, check_eval_mode
from rltune.agents.loop.acting import RecurrentActing
from rltune.agents.loop.evaluation import Seeds, evaluation_envs, run_episodes
from rltune.agents.loop.policy_graph import MASK, OBSERVATION, STATE
from rltune.agents.loop.results import Evaluation
from rltune.agents.spaces import InputParts
from rltune.backends.exported.runners import Runner

Array = NDArray[Any]
GREEDY_ALONE = "an exported policy is greedy; take the run or the checkpoint that it comes from"


class ExportedPolicy:
    """An exported policy in the place of an algorithm: it acts on the same inputs.

    Args:
        runner: computes it
        observation_space, action_space: of one environment, as agents see it
        path: the file, for errors

    Raises:
        UserError: the policy is of other spaces.
    """

    kernel = None

    def __init__(
        self,
        runner: Runner,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        path: object,
    ) -> None:
        self._runner = runner
        self._ports = {port["name"]: port for port in runner.about.inputs}
        self.state_size = int(np.prod(self._ports[STATE]["shape"])) if STATE in self._ports else 0
        self._parts = InputParts(observation_space)
        self._start: Any = 0  # what agents give counts from 0
        if isinstance(action_space, spaces.Discrete | spaces.MultiDiscrete):
            self._start = action_space.start
        self._last: tuple[Array | None, list[Array]] = (None, [])
        n_mask = [self._parts.n_mask] if self._parts.n_mask else []
        there = (
            tuple(self._ports.get(OBSERVATION, {}).get("shape", ())),
            self._ports.get(MASK, {}).get("shape", []),
            tuple(runner.about.outputs[0]["shape"]) if runner.about.outputs else None,
        )
        if there != (self._parts.shape, n_mask, action_space.shape):
            raise UserError(
                f"policy {path} is of another environment than {runner.about.env!r} is now: "
                f"observations {self._parts.shape}, actions {action_space}"
            )

    def act(self, inputs: Array, *, explore: bool = False) -> Array:
        """Return the greedy actions (n, ...), counted from 0 where they are choices."""
        if explore:
            raise UserError(GREEDY_ALONE)
        action = self._outputs(inputs)[0]
        return action - self._start if np.any(self._start) else action

    def next_state(self, inputs: Array) -> Array:
        """Return the recurrent states (n, state_size) after the step."""
        return self._outputs(inputs)[1]

    def restart_exploration(self) -> None:
        """Raise `UserError`: there is none."""
        raise UserError(GREEDY_ALONE)

    def _outputs(self, inputs: Array) -> list[Array]:
        if not self.state_size:
            return self._runner.run(self._feed(inputs))
        # The state and the action are of one run; inputs with a state are made anew at each step.
        if self._last[0] is not inputs:
            self._last = inputs, self._runner.run(self._feed(inputs))
        return self._last[1]

    def _feed(self, inputs: Array) -> dict[str, Array]:
        """Return the inputs by their names, as `RecurrentActing` and `Masked` have joined them."""
        n, n_mask, shape = len(inputs), self._parts.n_mask, self._parts.shape
        size = int(np.prod(shape))
        rows = inputs.reshape(n, -1)
        found = {OBSERVATION: rows[:, :size].reshape(n, *shape)}
        if n_mask:
            found[MASK] = rows[:, size : size + n_mask] > 0
        if self.state_size:
            found[STATE] = rows[:, -self.state_size :]
        return {
            name: np.ascontiguousarray(found[name], port["dtype"])
            for name, port in self._ports.items()
        }


class ExportedAgent:
    """The agent of an exported policy: a `Trainer` that can only act.

    Args:
        runner: computes its policy
        path: the file, for errors

    Raises:
        UserError: there is no such environment, or the policy is of other spaces.
    """

    acts_only = True
    observations = None  # normalised within the policy

    def __init__(self, runner: Runner, path: object) -> None:
        about = runner.about
        self.about = about
        self.algorithm_spec = about.agent
        self.env, self.env_kwargs = about.env, dict(about.env_kwargs)
        self.env_steps = self.total_timesteps = about.env_steps
        self.seed = about.seed
        self.view = dict(about.view)
        self.extra: dict[str, Any] = {}
        if set(self.view) != {"frame_stack", "small_images"}:
            raise UserError(f"policy {path} is damaged: view can't be {self.view!r:.60}")
        envs = Envs(
            self.env, 1, seed=self.seed, env_kwargs=self.env_kwargs, **self.view, training=False
        )
        envs.close()
        self.observation_space = envs.single_observation_space
        self.action_space = envs.single_action_space
        self.algorithm = ExportedPolicy(runner, self.observation_space, self.action_space, path)

    def normalised(self, obs: Array) -> Array:
        """Return observations as they are: the policy normalises them."""
        return obs

    def evaluate(
        self,
        episodes: int = 10,
        seed: int | None = None,
        max_steps: int | None = None,
        mode: str = GREEDY,
        *,
        first: int = 0,
    ) -> Evaluation:
        """Run episodes on environments of their own, see `rltune.agents.Agent.evaluate`.

        Raises:
            UserError: a mode that is not greedy.
        """
        check_eval_mode(mode)
        if mode != GREEDY:
            raise UserError(GREEDY_ALONE)
        seed = Seeds.of(self.seed).evaluation if seed is None else seed
        around = {"env_kwargs": self.env_kwargs, "max_steps": max_steps, **self.view}
        envs = evaluation_envs(self.env, episodes, seed=seed, **around)
        acting = RecurrentActing(self.algorithm)  # type: ignore[arg-type]

        def act(obs: Array, begins: Array) -> Array:
            return acting.act(acting.inputs(obs, begins), explore=False)

        return run_episodes(envs, act, episodes, first)

    def close(self) -> None:
        """Do nothing: environments are made for each evaluation."""
