"""Addresses of running Ray clusters: finding one, checking it, and taking code there."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

from rltune.agents.errors import UserError

CLIENT = "ray://"
ANSWER_WITHIN = 5.0  # seconds
TLS_FILES = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")


def is_elsewhere(address: str | None) -> bool:
    """Return whether the search runs on a cluster, so that this machine says nothing of it."""
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
        given: the address as the user has given it, for errors

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
    """Return the gRPC status (None: well) and the version of a cluster, where it is known."""
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


# ------------------------------------------------------------------------------------- its nodes
