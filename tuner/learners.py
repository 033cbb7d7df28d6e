"""Agents by name: ours and the user's own (`rltune.agents`), and RLlib's (`rllib:PPO`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from rltune.agents.config import config_dict
from rltune.agents.errors import UserError
from rltune.agents.registry import agent_class

if TYPE_CHECKING:
    from rltune.agents.agent import Agent
    from rltune.rllib import RLlibAgent

    AnyAgent: TypeAlias = Agent | RLlibAgent

RLLIB = "rllib:"


def config_class(agent: str) -> type[Any]:
    """Return the class of an agent's configurations: a dataclass of hyperparameters.

    Raises:
        UserError: there is no such agent, or it can't be imported, or it is none.
    """
    if agent.startswith(RLLIB):
        from rltune.rllib import config_class as of_rllib

        return of_rllib(agent)
    return agent_class(agent).Config


def agent_type(agent: str) -> type[Agent] | type[RLlibAgent]:
    """Return the class that trains the agent; both kinds have the same constructor and methods."""
    if agent.startswith(RLLIB):
        from rltune.rllib import RLlibAgent

        return RLlibAgent
    from rltune.agents.agent import Agent

    return Agent


def with_config(
    agent: AnyAgent, config: Mapping[str, Any], changes: Iterable[Mapping[str, Any]]
) -> AnyAgent:
    """Return the agent with the configuration that it shall have at its env_steps.

    Args:
        agent: it is closed where another one takes its place
        config: to begin with, all of it in plain types
        changes: new values (``config``) of some hyperparameters from ``env_steps`` on, ascending

    Raises:
        UserError: a hyperparameter can't change in a training that has begun.
    """
    due = [change["config"] for change in changes if change["env_steps"] <= agent.env_steps]
    wanted = {name: value for values in (config, *due) for name, value in values.items()}
    has = config_dict(agent.config)
    if all(has.get(name) == value for name, value in wanted.items()):
        return agent
    from rltune.agents.agent import Agent

    if not isinstance(agent, Agent):
        raise UserError(f"{agent.algorithm_spec} can't change its hyperparameters as it trains")
    return agent.with_config(wanted)
