"""Placement of a fleet's processes: in the bundles of a trial's placement group, if it has one."""

from __future__ import annotations

from typing import Any, NamedTuple


class Places(NamedTuple):
    """Options of Ray's for each process."""

    actors: list[dict[str, Any]]
    server: dict[str, Any]
    group: str = ""

    def kind(self, i: int) -> str:
        """Return a text that is the same for actors that are started alike."""
        return f"{self.group} {i}" if self.group else ""


def places(n_actors: int) -> Places:
    """Return where the processes of a fleet go.

    The first bundle of a trial's placement group is the learner's, which the replay server shares,
    and each actor has one of those that follow. Without a group they take no resources of Ray's:
    the trial has taken them.
    """
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    group = ray.util.get_current_placement_group()
    bundles = group.bundle_specs if group is not None else []
    if len(bundles) <= n_actors:
        return Places([{"num_cpus": 0}] * n_actors, {"num_cpus": 0})

    def place(index: int, cpus: float) -> dict[str, Any]:
        strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
        return {"num_cpus": cpus, "scheduling_strategy": strategy}

    actors = [place(i + 1, bundles[i + 1].get("CPU", 0)) for i in range(n_actors)]
    return Places(actors, place(0, 0), group.id.hex())
