"""The backend of a single environment: the class that trains an agent there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltune.backends.names import RLLIB

if TYPE_CHECKING:
    from rltune.backends.base import SingleTrainer


def one_agent_type(agent: str) -> type[SingleTrainer]:
    """Return the class that trains the agent on a single environment."""
    if agent.startswith(RLLIB):
        from rltune.backends.rllib.agent import RLlibAgent

        return RLlibAgent
    from rltune.agents.loop.agent import Agent

    return Agent
