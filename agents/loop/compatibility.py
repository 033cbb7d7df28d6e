"""Compatibility check: an agent and an environment, before a search is spent on them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from rltune.agents.config import make_config
from rltune.agents.envs.goals import goals_of
from rltune.agents.envs.vector import Envs
from rltune.agents.errors import UserError
from rltune.agents.loop.acting import RecurrentActing
from rltune.agents.parallel.learners import check_learners
from rltune.agents.registry import agent_class
from rltune.agents.spaces import Spaces


def check_fit(
    agent: str,
    env: str,
    configs: Sequence[Mapping[str, object]],
    env_kwargs: Mapping[str, Any] | None = None,
    has_data: bool = False,
) -> None:
    """Make the networks of each configuration and take one step, without a memory.

    Where the agent learns from recorded data, a configuration that has a place for their name must
    have one, and they are read if they are here (``has_data``). A simulator that fails for other
    reasons is left to the trials, which try again.

    Raises:
        UserError: an unknown agent, environment or hyperparameter, spaces that don't suit the
            agent, an environment whose `reset` or `step` are not gymnasium's, or missing data.
    """
    found = agent_class(agent)
    made: dict[tuple[int, bool, str], Envs] = {}  # a simulator may take long to start
    with contextlib.ExitStack() as stack:
        for config in configs:
            settings = make_config(found.Config, config)
            check_learners(agent, found, settings)
            # Processes take seconds to start, and step what a loop steps.
            way = "sync" if settings.vectorization == "async" else settings.vectorization
            frames, images = settings.frame_stack, settings.reads_small_images()
            envs = made.get((frames, images, way))
            if envs is None:
                envs = Envs(
                    env,
                    1,
                    seed=0,
                    env_kwargs=env_kwargs,
                    frame_stack=frames,
                    small_images=images,
                    vectorization=way,
                )
                stack.enter_context(contextlib.closing(envs))
                made[frames, images, way] = envs
            action = envs.single_action_space
            goals = goals_of(settings, env, env_kwargs)
            if goals is not None:
                stack.callback(goals.close)
            spaces = Spaces(envs.single_observation_space, action, settings.n_envs, goals)
            algorithm = found(settings, spaces, seed=0, device="cpu")
            _step(envs, RecurrentActing(algorithm))
            asks_for_data = found.offline and "demonstrations" in config
            if asks_for_data and (has_data or not settings.demonstrations):
                algorithm.make_memory()


def _step(envs: Envs, acting: RecurrentActing) -> None:
    try:
        envs.step(acting.act(acting.first(envs.reset()), explore=False))
    except UserError:
        raise
    except Exception:
        return
