"""Agents by name: ours and the user's own (`rltune.agents`), and RLlib's (`rllib:PPO`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

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
