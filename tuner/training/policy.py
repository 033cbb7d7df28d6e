"""Trained policies, functions from observations to actions: `rltune.load`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space, iterate
from numpy.typing import ArrayLike, NDArray
from rltune.agents.envs.make import Env, as_made, is_atari
from rltune.agents.envs.masks import KEY
from rltune.agents.envs.suite import environments, is_suite
from rltune.agents.envs.vector import ActionEncoder
from rltune.agents.errors import UserError
from rltune.agents.loop.acting import RecurrentActing
from rltune.agents.spaces import InputParts, as_model_input
from rltune.backends.checkpoints import find_checkpoint, load_agent
from rltune.training.views import View

if TYPE_CHECKING:
    from rltune.backends.base import SingleTrainer

Array = NDArray[Any]


def load(
    run: str | os.PathLike[str],
    *,
    best: bool = False,
    trial: int | None = None,
    env: str | None = None,
    device: str = "auto",
) -> Policy:
    """Return the trained policy of a run, to act with.

    Args:
        run: a run directory, its name, "latest", a checkpoint file, or an exported policy; of a
            search, its winner
        best: of a training, the agent of its best evaluation instead of the last one
        trial: of a search, this trial's agent
        env: refuse an agent of another environment; of several environments, the agent on this one
        device: "cpu", "cuda", ... or "auto"

    Raises:
        UserError: there is no such checkpoint, or it is one of another environment.
    """
    path = find_checkpoint(run, best=best, trial=trial)
    agent = load_agent(path, env=env, device=device)
    if is_suite(agent.env):
        agent.close()
        names = ", ".join(environments(agent.env))
        raise UserError(f"{path} has agents of several environments; give env, one of {names}")
    return Policy(cast("SingleTrainer", agent), path)


class Policy:
    """A trained agent: call it with an observation, or with one of each of n environments.

    Observations are those of the environment itself (`make_env` gives one): dictionaries, images
    and whatever else the agent was trained on. They are brought into the agent's form, normalised
    and stacked here. A recurrent agent's state, and stacked frames, go from call to call: say where
    episodes begin, with `reset` or with ``episode_start``.

    Attributes:
        agent: the agent
        path: the checkpoint that it comes from
        observation_space, action_space: of one environment
    """

    def __init__(self, agent: SingleTrainer, path: Path) -> None:
        self.agent = agent
        self.path = path
        made, _ = as_made(agent.env, env_kwargs=agent.env_kwargs)
        self.observation_space: gymnasium.Space[Any] = made.observation_space
        self.action_space: gymnasium.Space[Any] = made.action_space
        made.close()  # type: ignore[no-untyped-call]
        self._space = as_model_input(agent.observation_space)
        self._n_mask = InputParts(self._space).n_mask
        self._masks_in_obs = (
            isinstance(self.observation_space, gymnasium.spaces.Dict)
            and KEY in self.observation_space.spaces
        )
        self._encoder = ActionEncoder(self.action_space)
        self._acting = RecurrentActing(cast(Any, agent.algorithm))
        self._views: list[View] = [self._view()]
        stacks = agent.view.get("frame_stack", 0) > 1 or is_atari(agent.env)
        self._remembers = bool(self._acting.algorithm.state_size) or stacks
        self._n: int | None = None  # of the last call
        self.reset()

    @property
    def env(self) -> str:
        """The environment that it was trained on, by name."""
        return self.agent.env

    def make_env(self, render_mode: str | None = None) -> Env:
        """Return the environment that it was trained on, with its arguments and time limit.

        Its observations are those that the policy takes: an Atari game's are preprocessed already.
        """
        made, limit = as_made(self.env, env_kwargs=self.agent.env_kwargs, render_mode=render_mode)
        return made if limit is None else gymnasium.wrappers.TimeLimit(made, limit)

    def reset(self) -> None:
        """Begin new episodes everywhere: the next observations are the first ones."""
        self._fresh = True

    def __call__(
        self,
        obs: Any,
        *,
        episode_start: ArrayLike | None = None,
        mask: ArrayLike | None = None,
    ) -> Any:
        """Return the greedy actions; see `act`."""
        return self.act(obs, episode_start=episode_start, mask=mask)

    def act(
        self,
        obs: Any,
        *,
        deterministic: bool = True,
        episode_start: ArrayLike | None = None,
        mask: ArrayLike | None = None,
    ) -> Any:
        """Return the action for an observation, or the actions (n, ...) for n of them.

        Args:
            obs: one observation of the environment, or n as a vector environment gives them
            deterministic: greedily; or else as the agent explores at this point of its training
            episode_start: where observations are the first ones of episodes, (n,) of bool; by
                default only those after `reset`
            mask: the allowed actions, where the environment says them in its info: a bit for each
                action, or (n, actions)

        Raises:
            UserError: observations or masks of another shape, a mask is missing, another number
                of environments without a `reset`.
        """
        n = _count(self.observation_space, obs, self.env)
        starts, masks = self._starts(n or 1, episode_start), self._masks(n, mask)
        if not deterministic and (self._n != n or starts.all()):
            self._acting.algorithm.restart_exploration()
        self._n, self._fresh = n, False
        seen = self._seen(obs, n, starts, masks)
        seen = self._acting.inputs(self.agent.normalised(seen), starts)
        actions = self._encoder.encode(self._acting.act(seen, explore=not deterministic))
        return actions[0] if n is None else actions

    def _starts(self, n: int, given: ArrayLike | None) -> NDArray[np.bool_]:
        if self._fresh:
            return np.ones(n, np.bool_)
        if self._remembers and n != (self._n or 1):
            raise UserError(
                f"{n} observations after {self._n or 1}: this agent remembers each environment's "
                "episode; call reset() before another number of them"
            )
        starts = np.asarray(False if given is None else given, np.bool_)
        if starts.shape not in ((), (n,)):
            raise UserError(f"episode_start: {n} observations, but shape {starts.shape}")
        return np.broadcast_to(starts, n)

    def _masks(self, n: int | None, given: ArrayLike | None) -> list[Any] | None:
        """Return a mask for each observation; None where there are none, or they stand in them."""
        if not self._n_mask or self._masks_in_obs:
            if given is not None:
                where = "stand in its observations" if self._n_mask else "are none"
                raise UserError(f"mask: leave it out; the action masks of {self.env!r} {where}")
            return None
        if given is None:
            raise UserError(
                f"{self.env!r} says which actions are allowed: give mask=info[{KEY!r}], as reset() "
                "and step() return it"
            )
        return [given] if n is None else list(cast("Any", given))

    def _seen(
        self, obs: Any, n: int | None, starts: NDArray[np.bool_], masks: list[Any] | None
    ) -> Array:
        """Return the observations as the agent sees them, before they are normalised: (n, ...)."""
        shape, dtype = self._space.shape, self._space.dtype
        if self._views[0].is_bare:
            return np.asarray(obs, dtype).reshape(-1, *shape)
        rows = [obs] if n is None else list(iterate(batch_space(self.observation_space, n), obs))
        while self._remembers and len(self._views) < len(rows):
            self._views.append(self._view())
        seen = [
            self._views[i if self._remembers else 0].show(
                row, bool(starts[i]) or not self._remembers, None if masks is None else masks[i]
            )
            for i, row in enumerate(rows)
        ]
        return np.stack(seen).astype(dtype, copy=False)

    def _view(self) -> View:
        return View(
            self.env, self.observation_space, self.action_space, bool(self._n_mask), self.agent.view
        )

    def close(self) -> None:
        """Close the agent's environment; of RLlib's agents, RLlib."""
        self.agent.close()

    def __repr__(self) -> str:
        agent = self.agent
        return (
            f"<policy of {agent.algorithm_spec} on {self.env}, "
            f"{agent.env_steps:,} env steps, {self.path}>"
        )


def _count(space: gymnasium.Space[Any], obs: Any, env: str) -> int | None:
    """Return the number of observations in a batch; None for a single one.

    Raises:
        UserError: they are something else.
    """
    if isinstance(space, gymnasium.spaces.Dict) and isinstance(obs, dict) and space.spaces:
        if missing := [key for key in space.spaces if key not in obs]:
            raise UserError(f"an observation of {env!r} has a {missing[0]!r}, and this one has not")
        key = next(iter(space.spaces))
        return _count(space[key], obs[key], env)
    if isinstance(space, gymnasium.spaces.Tuple) and isinstance(obs, tuple) and space.spaces:
        return _count(space[0], obs[0], env)
    shape = np.shape(obs) if space.shape is not None else None
    if shape == space.shape:
        return None
    if shape is not None and shape[1:] == space.shape:
        return int(shape[0])
    found = type(obs).__name__ if shape is None else f"shape {shape}"
    raise UserError(
        f"an observation of {found} is not of {env!r}, whose space is {space}; "
        "policy.make_env() gives such an environment"
    )
