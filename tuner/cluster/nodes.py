"""Nodes of a cluster: checks for rltune and the storage, also of nodes that join."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import UserError, storage_error

if TYPE_CHECKING:
    from rltune.cluster.resources import Growth

NODE_ANSWERS_WITHIN = 120.0  # a node's first worker process imports Ray, and may unpack the code


def _make_probe() -> Any:
    """Return a function for the nodes. It is sent whole: a node may have no rltune."""

    def about(marker: str) -> dict[str, Any]:
        import hashlib
        import importlib.metadata
        import importlib.util
        import platform
        from pathlib import Path

        found: dict[str, Any] = {"python": platform.python_version()}
        for package in ("ray", "torch", "rltune"):
            try:
                found[package] = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                found[package] = "none"
        digest = hashlib.sha256()
        # Installed, they lie in the folder of rltune; in a checkout, beside it.
        beside = {"rltune": ("agents", "search_spaces"), "rltune.agents": ()}
        for package in ("rltune", "rltune.agents"):
            spec = importlib.util.find_spec(package) if found["rltune"] != "none" else None
            for folder in (spec.submodule_search_locations or []) if spec else []:
                for file in sorted(Path(folder).rglob("*.py")):
                    name = file.relative_to(folder)
                    if name.parts[0] not in beside[package]:
                        digest.update(name.as_posix().encode() + file.read_bytes())
        found["source"] = digest.hexdigest()
        found["sees"] = Path(marker).exists()
        return found

    return about


def _growth_probe() -> Any:
    """Return a function that reads the autoscaler's configuration on the head; None: none."""

    def told() -> str | None:
        from pathlib import Path

        import psutil

        if "KUBERAY_GEN_RAY_START_CMD" in os.environ:
            return "kuberay"
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            for word in words if any("monitor.py" in argument for argument in words) else []:
                if word.startswith("--autoscaling-config="):
                    path = Path(word.partition("=")[2]).expanduser()
                    return path.read_text() if path.is_file() else None
        return None

    return told


def _nodes() -> list[dict[str, Any]]:
    import ray

    return [node for node in ray.nodes() if node["Alive"]]


def _on(node: dict[str, Any], function: Any, *args: Any) -> Any:
    """Start a tiny task on a node and return its reference."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    where = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    options = {"num_cpus": 0, "scheduling_strategy": where, "max_retries": 0}
    return ray.remote(function).options(**options).remote(*args)


def growth() -> Growth:
    """Return the nodes that the autoscaler of the connected Ray may add."""
    import ray
    import yaml
    from rltune.cluster.resources import Growth

    heads = [node for node in _nodes() if "node:__internal_head__" in node["Resources"]]
    if not heads or not is_joined():
        return Growth()
    try:
        text = ray.get(_on(heads[0], _growth_probe()), timeout=NODE_ANSWERS_WITHIN)
    except ray.exceptions.RayError:
        return Growth(unknown=True)
    if text == "kuberay":
        return Growth(unknown=True)
    return Growth.of(yaml.safe_load(text)) if text else Growth()


def is_joined() -> bool:
    """Whether the connected Ray is a cluster, and not this process's own."""
    import ray

    node = ray._private.worker._global_node
    return node is None or not node.is_head()


class Nodes:
    """The nodes of a cluster, each asked once for its versions and for the folder of the runs.

    Args:
        run: the run directory, that the workers write their checkpoints to

    Nodes that don't see it send checkpoints there (`CheckpointServer`). Behind ray:// there is
    no node to bring them to: ``must_share`` says that all have to see it.
    """

    def __init__(self, run: Path) -> None:
        import ray

        self.run = run
        self.storage = run.parent
        self.must_share = bool(ray.util.client.ray.is_connected())
        self.here = _make_probe()("")
        self.asked: set[str] = set()
        self.waiting: dict[Any, str] = {}
        self.marker = self.storage / f".rltune-{uuid.uuid4().hex[:8]}"

    def check(self) -> None:
        """Ask every node, and wait for the answers; UserError: one of them will not do."""
        import ray

        try:
            self.storage.mkdir(parents=True, exist_ok=True)
            self.marker.touch()
        except OSError as error:
            raise storage_error(error, self.storage, "--storage-path") from error
        try:
            self._ask()
            done, late = ray.wait(
                list(self.waiting), num_returns=len(self.waiting), timeout=NODE_ANSWERS_WITHIN
            )
            if late:
                raise UserError(f"node {self.waiting[late[0]]} of the cluster doesn't answer.")
            self._hear(done)
        finally:
            self.marker.unlink(missing_ok=True)

    def watch(self) -> None:
        """Ask nodes that have come since, without waiting; UserError: one will not do."""
        import ray

        if self.waiting:
            self._hear(ray.wait(list(self.waiting), num_returns=len(self.waiting), timeout=0)[0])
        self._ask()

    def _ask(self) -> None:
        for node in _nodes():
            if node["NodeID"] not in self.asked:
                self.asked.add(node["NodeID"])
                marker = self.marker if self.marker.exists() else self.storage
                reference = _on(node, _make_probe(), str(marker))
                self.waiting[reference] = node["NodeManagerAddress"]

    def _hear(self, references: list[Any]) -> None:
        import ray

        for reference in references:
            name = self.waiting.pop(reference)
            try:
                there = ray.get(reference)
            except ray.exceptions.RayTaskError as error:
                last = str(error).strip().splitlines()[-1]
                raise UserError(f"node {name} can't run what is sent to it: {last}") from error
            except ray.exceptions.RayError:
                continue  # it has gone again
            for complaint in self._complaints(there):
                raise UserError(f"node {name} {complaint}")

    def _complaints(self, there: dict[str, Any]) -> Iterator[str]:
        for package in ("python", "ray", "torch", "rltune"):
            has, wanted = there[package], self.here[package]
            if has != wanted:
                yield (
                    f"has {package} {has}, and this machine {wanted}; install the same version on "
                    "all of them (docs/cluster.md)."
                )
        if there["source"] != self.here["source"]:
            yield (
                f"has another source of rltune {there['rltune']} than this machine; install the "
                "same commit on both."
            )
        if self.must_share and not there["sees"]:
            yield (
                f"does not see {self.storage}; behind ray:// the --storage-path has to be one that "
                "all nodes and this machine share. Or send the search there: rltune submit."
            )
