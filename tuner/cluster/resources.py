"""Resources of trials, and the number that fits on a machine or a cluster that may grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import UserError

if TYPE_CHECKING:
    from rltune.runs.search_spec import SearchSpec


@dataclass(frozen=True)
class Resources:
    """The resources of a trial, and the number of trials at once (None: as many as fit).

    The CPUs are those of all its processes; ``actors`` have ``cpus_per_actor`` of them each.
    """

    cpus: float = 1
    gpus: float = 0
    concurrency: int | None = None
    actors: int = 0
    cpus_per_actor: float = 1

    @classmethod
    def of(cls, spec: SearchSpec) -> Resources:
        """Return those of a search's trials."""
        return cls(
            spec.cpus_per_trial,
            spec.gpus_per_trial,
            spec.concurrency,
            spec.actors_per_trial,
            spec.cpus_per_actor,
        )

    @property
    def bundles(self) -> list[dict[str, float]]:
        """What Ray reserves for a trial: one bundle for its learner, and one for each actor."""
        learner = {"CPU": self.cpus - self.actors * self.cpus_per_actor}
        if self.gpus:
            learner["GPU"] = self.gpus
        return [learner, *({"CPU": self.cpus_per_actor} for _ in range(self.actors))]

    def on_nodes(self, nodes: Sequence[tuple[float, float]]) -> int:
        """Return the number of trials that fit on machines of so many CPUs and GPUs.

        The actors of a trial may be spread over machines; all else is on one.
        """
        if not self.actors:
            return sum(self.on_node(*node) for node in nodes)
        free = [list(node) for node in nodes]
        trials = 0
        while all(_place(bundle, free) for bundle in self.bundles):
            trials += 1
        return trials

    def on_node(self, cpus: float, gpus: float) -> int:
        """Return the number of trials that fit on a machine; a trial is never spread over two."""
        # The small term keeps 1 / 0.2 at 5.
        fit = int(cpus / self.cpus + 1e-9)
        if self.gpus >= 1:
            fit = min(fit, int(gpus / self.gpus + 1e-9))
        elif self.gpus > 0:  # nor is a fraction spread over two GPUs
            fit = min(fit, int(gpus) * int(1 / self.gpus + 1e-9))
        return fit

    def limited(self, fit: int) -> int:
        """Return the number of trials that run at once, of those that fit."""
        return min(fit, self.concurrency) if self.concurrency else fit


def _place(bundle: Mapping[str, float], free: list[list[float]]) -> bool:
    """Take a bundle from the first machine that has it; return whether one has."""
    cpus, gpus = bundle["CPU"], bundle.get("GPU", 0)
    for node in free:
        if node[0] + 1e-9 >= cpus and node[1] + 1e-9 >= gpus:
            node[0] -= cpus
            node[1] -= gpus
            return True
    return False


def fitting(resources: Resources, cpus: float, gpus: float) -> int:
    """Return the number of trials that fit on one machine at once.

    Raises:
        UserError: not even one does.
    """
    for flag, need, have in (("cpus", resources.cpus, cpus), ("gpus", resources.gpus, gpus)):
        if need > have + 1e-9:
            raise UserError(
                f"--{flag}-per-trial {need:g} can never be had: there are {have:g}; ask less."
            )
    return resources.limited(resources.on_node(cpus, gpus))


@dataclass(frozen=True)
class NodeType:
    """Machines that an autoscaler may add: their number, and resources (None: unknown)."""

    count: int
    cpus: float | None
    gpus: float = 0


@dataclass(frozen=True)
class Growth:
    """The nodes that a cluster's autoscaler may add; ``unknown`` where it can't be asked."""

    types: list[NodeType] = field(default_factory=list)
    max_workers: int = 0
    unknown: bool = False

    @classmethod
    def of(cls, config: dict[str, Any]) -> Growth:
        """Read the configuration of `ray up`, as Ray completed it."""
        workers = int(config.get("max_workers", 0))
        types = []
        for name, node in config.get("available_node_types", {}).items():
            if name == config.get("head_node_type") and not _is_local(config):
                continue
            has = node.get("resources") or {}
            cpus = float(has["CPU"]) if "CPU" in has else None
            types.append(
                NodeType(int(node.get("max_workers", workers)), cpus, float(has.get("GPU", 0)))
            )
        return cls(types, workers)

    def most(self, resources: Resources) -> int:
        """Return the number of trials that fit on as many workers as may ever be there."""
        room, left = 0, self.max_workers
        fits = [(resources.on_node(t.cpus or 0, t.gpus), t.count) for t in self.types]
        for fit, count in sorted(fits, reverse=True):
            taken = min(left, count)
            room, left = room + taken * fit, left - taken
        return room

    def says_nothing(self, workers: int) -> bool:
        """Return whether a machine of unknown size may come."""
        silent = any(t.cpus is None for t in self.types)
        return self.unknown or (silent and workers < self.max_workers)


def _is_local(config: dict[str, Any]) -> bool:
    """On machines of one's own, the head and the workers are of one type."""
    return bool(config.get("provider", {}).get("type") == "local")
