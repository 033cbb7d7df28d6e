"""The backend of rltune's own agents, those of installed packages and the user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rltune.agents.registry import agent_class, agent_names
from rltune.backends.base import Backend

if TYPE_CHECKING:
    from rltune.backends.base import SingleTrainer


class OwnBackend(Backend):
    """Agents below `rltune.agents.Algorithm`."""

    name = "rltune"
    prefix = ""

    def agents(self) -> list[str]:
        """Return the names of the agents of ours and of installed packages."""
        return agent_names()

    def config_class(self, agent: str) -> type[Any]:
        """Return the class of an agent's configurations; see `Backend.config_class`."""
        return agent_class(agent).Config

    def trainer(self, agent: str) -> type[SingleTrainer]:
        """Return the class that trains an agent."""
        from rltune.actors.agent import Agent

        return Agent

    def check_fit(
        self,
        agent: str,
        env: str,
        configs: Sequence[Mapping[str, Any]],
        env_kwargs: Mapping[str, Any],
        *,
        has_data: bool,
    ) -> None:
        """See `Backend.check_fit`; it makes the environment and the networks once."""
        from rltune.agents.config import make_config
        from rltune.agents.distributed.agent import check_actors
        from rltune.agents.loop.compatibility import check_fit

        found = agent_class(agent)
        for config in configs:
            check_actors(agent, found, make_config(found.Config, config))
        check_fit(agent, env, configs, env_kwargs, has_data)

    def is_own(self, agent: str) -> bool:
        """Whether an agent is ``module:Class`` of the user's own."""
        return ":" in agent

    def needs_data(self, agent: str) -> bool:
        """Whether an agent learns from demonstrations alone."""
        return agent_class(agent).offline

    def may_exceed(self, agent: str) -> bool:
        """Whether a training may go beyond its budget: ours cut their last rollout."""
        return self.is_own(agent)
