"""A Ray cluster that runs already: finding it, asking whether it will do, taking code there."""

from __future__ import annotations

import importlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rltune.agents.envs.suite import environments
from rltune.agents.errors import UserError, storage_error

if TYPE_CHECKING:
    from rltune.capacity import Growth

CLIENT = "ray://"
ANSWER_WITHIN = 5.0  # seconds
NODE_ANSWERS_WITHIN = 120.0  # a node's first worker process imports Ray, and may unpack the code
# The user's folder is sent to every node.
MAX_FOLDER = 100_000_000  # bytes
MAX_FILES = 10_000
TLS_FILES = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")
STAYS = (".git", ".venv", "runs", "wandb", "mlruns", "__pycache__", "node_modules", "build")


def is_elsewhere(address: str | None) -> bool:
    """Return whether the search is meant for a cluster: this machine says nothing of it."""
    return (address or os.environ.get("RAY_ADDRESS") or "local") != "local"


def find(address: str | None) -> str | None:
    """Return the address of a running cluster: "host:port" or "ray://host:port".

    None means that this machine's own Ray is to be started: without an address, here or in
    RAY_ADDRESS, no cluster is joined by accident.

    Raises:
        UserError: there is no cluster at the address, or it refuses us.
    """
    told = os.environ.get("RAY_ADDRESS")  # also by Ray itself, in a job
    wanted = (told if address == "auto" else address) or told or address or "local"
    if wanted == "local":
        return None
    given = f"{'--address' if wanted == address else 'RAY_ADDRESS'} {wanted}"
    from ray._private.services import canonicalize_bootstrap_address, find_gcs_addresses
    from ray._private.utils import read_ray_address

    if wanted == "auto":
        left = read_ray_address()  # by `ray start`
        running = [left] if left else sorted(find_gcs_addresses())
        if len(running) != 1:
            count = f"{len(running)} Ray clusters run" if running else "no Ray cluster runs"
            raise UserError(f"--address auto: {count} on this machine; give --address host:port.")
        wanted = running[0]
    elif not wanted.startswith(CLIENT):
        try:
            wanted = canonicalize_bootstrap_address(wanted)
        except ValueError:
            raise UserError(_no_address(given)) from None
    _ask(wanted, given)
    return wanted


def _no_address(given: str) -> str:
    return f"{given}: this is no address; write auto, host:6379 or ray://host:10001."


def _ask(address: str, given: str) -> None:
    """Ask a cluster for a sign of life, and agree on the token; Ray itself tries for a minute.

    Args:
        address: with which Ray is spoken to
        given: how the user has said it, for the errors

    Raises:
        UserError: nothing answers there, or not a Ray of our version, or it wants another token.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # what a handshake fails with is said below
    try:
        import grpc
    except ImportError:
        raise UserError("--address needs the extra: pip install 'rltune[cluster]'.") from None
    import ray

    raylet: Any = importlib.import_module("ray._raylet")  # its stubs lack what is needed

    host, _, port = address.removeprefix(CLIENT).rpartition(":")
    if not host or not port.isdigit():
        raise UserError(_no_address(given))
    refused = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
    status, version = _ping(address, None)
    mode, token = "disabled", None
    if status in refused:
        loader = raylet.AuthenticationTokenLoader.instance()
        token = loader.get_raw_token(ignore_auth_mode=True) if _has_token(loader) else None
        mode = "token"
        status, version = _ping(address, token)
    if status in refused:
        has = "another token" if token else "no token"
        raise UserError(
            f"the cluster at {address} refuses this machine, which has {has}; copy "
            "~/.ray/auth_token from its head (docs/cluster.md)."
        )
    if status is grpc.StatusCode.UNIMPLEMENTED:
        raise UserError(
            f"{given}: a Ray answers there, but at another of its ports; the usual "
            "ones are host:6379 on a node of the cluster and ray://host:10001 from elsewhere."
        )
    if status is not None:
        tls = (
            "is its certificate of another authority than RAY_TLS_CA_CERT"
            if _wants_tls()
            else "does it use TLS, while RAY_USE_TLS is not set here"
        )
        raise UserError(
            f"{given}: no Ray cluster answers there; is it up (ray up, ray status), does a "
            f"firewall or a missing tunnel stand between, or {tls}?"
        )
    if version and version != ray.__version__:
        raise UserError(
            f"the cluster at {address} runs Ray {version}, and this machine has {ray.__version__}; "
            "install the same version."
        )
    os.environ["RAY_AUTH_MODE"] = mode
    raylet.Config.initialize("")  # Ray has read it before


def _has_token(loader: Any) -> bool:
    return bool(loader.has_token(ignore_auth_mode=True))


def _ping(address: str, token: str | None) -> tuple[Any, str]:
    """Return the gRPC status (None: well) and, where it is told, the version of a cluster."""
    import grpc
    from ray.core.generated import (
        gcs_service_pb2,
        gcs_service_pb2_grpc,
        ray_client_pb2,
        ray_client_pb2_grpc,
    )

    headers = [("authorization", f"Bearer {token}")] if token else []
    about: dict[str, Any] = {"metadata": headers, "timeout": ANSWER_WITHIN}
    with _channel(address.removeprefix(CLIENT)) as channel:
        try:
            if address.startswith(CLIENT):
                question = ray_client_pb2.ClusterInfoRequest(
                    type=ray_client_pb2.ClusterInfoType.PING
                )
                ray_client_pb2_grpc.RayletDriverStub(channel).ClusterInfo(question, **about)
                return None, ""
            stub = gcs_service_pb2_grpc.NodeInfoGcsServiceStub(channel)
            reply = stub.CheckAlive(gcs_service_pb2.CheckAliveRequest(), **about)
        except grpc.RpcError as error:
            return error.code(), ""
    return None, reply.ray_version


def _channel(address: str) -> Any:
    """Open a gRPC channel, encrypted where RAY_USE_TLS says so, as Ray's own are."""
    import grpc

    options = [("grpc.enable_http_proxy", 0)]
    if not _wants_tls():
        return grpc.insecure_channel(address, options=options)
    try:
        certificate, key, authority = (Path(os.environ[n]).read_bytes() for n in TLS_FILES)
    except KeyError as error:
        raise UserError(
            f"RAY_USE_TLS is set; set {error.args[0]}, too (docs/cluster.md)."
        ) from None
    except OSError as error:
        raise UserError(f"RAY_USE_TLS is set, but a file of it can't be read: {error}.") from None
    credentials = grpc.ssl_channel_credentials(authority, key, certificate)
    return grpc.secure_channel(address, credentials, options=options)


def _wants_tls() -> bool:
    return os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")  # as Ray reads it


# ------------------------------------------------------------------------------ the user's own code


def folder_of_code(agent: str, env: str, import_path: str) -> Path | None:
    """Return the folder that has to travel: None where agent and environment are installed."""
    names = [agent.partition("rllib:")[2] if agent.startswith("rllib:") else agent]
    own = any(":" in name for name in (*names, *environments(env)))
    return Path(import_path) if own else None


def travelling(folder: Path) -> dict[str, Any]:
    """Return the part of Ray's runtime_env that makes a folder every worker's working directory.

    Virtual environments, runs, caches and hidden folders stay; so does what a .gitignore names.

    Raises:
        UserError: the folder is too large to be sent.
    """
    excludes, size, files = list[str](), 0, 0
    for where, folders, names in os.walk(folder):
        inside = Path(where)
        for name in list(folders):
            if _stays(inside / name):
                folders.remove(name)
                excludes.append("/" + (inside / name).relative_to(folder).as_posix() + "/")
        files += len(names)
        size += sum((inside / n).stat().st_size for n in names if (inside / n).is_file())
        if size > MAX_FOLDER or files > MAX_FILES:
            raise UserError(
                f"{folder} travels to every node of the cluster, and has more than "
                f"{MAX_FOLDER / 1e6:.0f} MB or {MAX_FILES:,} files; start rltune in a folder that "
                "holds your agent and environment alone."
            )
    return {"working_dir": str(folder), "excludes": excludes}


def _stays(folder: Path) -> bool:
    marks = (folder / "pyvenv.cfg", folder / "run.yaml")  # a virtual environment, a run
    hidden = folder.name.startswith(".") or folder.name in STAYS
    return hidden or any(mark.exists() for mark in marks)


# ------------------------------------------------------------------------------------- its nodes


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
        for package in ("rltune", "rltune.agents"):
            spec = importlib.util.find_spec(package) if found["rltune"] != "none" else None
            for folder in (spec.submodule_search_locations or []) if spec else []:
                for file in sorted(Path(folder).glob("*.py")):
                    digest.update(file.name.encode() + file.read_bytes())
        found["source"] = digest.hexdigest()
        found["sees"] = Path(marker).exists()
        return found

    return about


def _growth_probe() -> Any:
    """Return a function for the head: what its autoscaler was told, as text; None: it has none."""

    def told() -> str | None:
        import os
        from pathlib import Path

        import psutil

        if "KUBERAY_GEN_RAY_START_CMD" in os.environ:
            return "kuberay"
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            for word in words if any("monitor.py" in one for one in words) else []:
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
    """Return what the autoscaler of the connected Ray may add."""
    import ray
    import yaml
    from rltune.capacity import Growth

    heads = [node for node in _nodes() if "node:__internal_head__" in node["Resources"]]
    if not heads or not _is_joined():
        return Growth()
    try:
        text = ray.get(_on(heads[0], _growth_probe()), timeout=NODE_ANSWERS_WITHIN)
    except ray.exceptions.RayError:
        return Growth(unknown=True)
    if text == "kuberay":
        return Growth(unknown=True)
    return Growth.of(yaml.safe_load(text)) if text else Growth()


def _is_joined() -> bool:
    """Whether the connected Ray is a cluster, and not this process's own."""
    import ray

    node = ray._private.worker._global_node
    return node is None or not node.is_head()


class Nodes:
    """The nodes of a cluster, each asked once for its versions and for the folder of the runs.

    Args:
        run: the run directory, that the workers write their checkpoints to

    From nodes that don't see it, checkpoints are brought there (`deposit`). Behind ray:// there is
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
