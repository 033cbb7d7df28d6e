"""The agent whose actors are processes of Ray's."""

from __future__ import annotations

from rltune.actors.fleet import RayFleet
from rltune.agents.distributed.agent import DistributedAgent


class Agent(DistributedAgent):
    """`rltune.agents.Agent`, with actors on Ray where ``num_actors`` asks for them.

    They are started on the Ray that this process is connected to; where there is none, on one of
    its own on this machine.
    """

    fleet = RayFleet
