"""Exportable policies: an agent, its policy as a module, and what a file says of itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rltune.agents.loop.agent import Agent
    from rltune.agents.loop.policy_graph import PolicyGraph
    from rltune.backends.exported.about import About


@dataclass(frozen=True)
class ExportablePolicy:
    """A trained policy to be written.

    Attributes:
        agent: whose it is, on a CPU
        graph: its policy as a module
        about: what a file says of itself
    """

    agent: Agent
    graph: PolicyGraph = field(init=False)
    about: About = field(init=False)

    def __post_init__(self) -> None:
        from rltune.agents.loop.policy_graph import PolicyGraph
        from rltune.backends.exported.about import About

        graph = PolicyGraph(self.agent)
        object.__setattr__(self, "graph", graph)
        object.__setattr__(self, "about", About.of(self.agent, graph.inputs, graph.outputs))
