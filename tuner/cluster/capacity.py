"""Capacity: the number of jobs that fit on the machine or the cluster at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltune.agents.errors import UserError
from rltune.cluster.resources import fitting

if TYPE_CHECKING:
    from rltune.cluster.resources import Resources


class Room:
    """The number of trials that run at once on the connected Ray, now and when it has grown."""

    def __init__(self, resources: Resources) -> None:
        from rltune.cluster.nodes import growth

        self.resources = resources
        self.growth = growth()

    def slots(self) -> int:
        """Return the number of trials that run at once, on nodes that may yet come, too.

        Those that don't fit yet are what makes an autoscaler add nodes.

        Raises:
            UserError: a trial can never be placed.
        """
        import ray

        needed = self.resources
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        have = [(float(n.get("CPU", 0)), float(n.get("GPU", 0))) for n in nodes]
        # The head is one of the nodes, but none of the workers.
        on_head = max((needed.on_node(*room) for room, node in zip(have, nodes, strict=True)
                       if "node:__internal_head__" in node), default=0)  # fmt: skip
        fit = max(needed.on_nodes(have), on_head + self.growth.most(needed))
        if fit == 0 and not self.growth.says_nothing(len(nodes) - 1):
            self._refuse(have)
        return needed.limited(max(1, fit))

    def _refuse(self, have: list[tuple[float, float]]) -> None:
        offers = have + [(t.cpus or 0, t.gpus) for t in self.growth.types]
        if len(offers) == 1:
            fitting(self.resources, *offers[0])
        best = sorted({f"{cpus:g} CPUs and {gpus:g} GPUs" for cpus, gpus in offers})
        raise UserError(
            f"a trial with {self.resources.cpus:g} CPUs and {self.resources.gpus:g} GPUs can never "
            f"be placed: the nodes that are there or may come have {', or '.join(best)} each; ask "
            "for less with --cpus-per-trial and --gpus-per-trial."
        )
