"""Lean starts of Ray on this machine: without the helpers that a search has no use for.

Beside its own two processes and its workers, `ray.init` starts five in Python: a dashboard (even
where none is asked for), the dashboard's agent, a monitor that scales clusters, a monitor of log
files, and an agent for environments of workers. Each imports Ray, and `ray.init` waits for three
of them (Ray 2.60 gives up after 15 seconds, which a busy machine may take). No public option leaves
the first four out; what stands here does.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import sys
from collections.abc import Iterator
from typing import Any

# In place of the dashboard's agent, which Ray's own daemon wants to live: it says that it has no
# ports, as the agent itself does where it lacks packages, and ends with the daemon.
AGENT = """
import os, sys
told = dict(word[2:].split("=", 1) for word in sys.argv if word.startswith("--") and "=" in word)
for name in ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port"):
    path = os.path.join(told["session-dir"], name + "_" + told["node-id"])
    with open(path + ".new", "w") as file:
        file.write("-1")
    os.replace(path + ".new", path)
sys.stdin.read()
"""


def start(quiet: bool, **options: Any) -> None:
    """Start Ray with the options of `ray.init`; as it is, where its parts have changed."""
    import ray

    try:
        with _lean(quiet):
            ray.init(**options)
    except Exception:
        ray.shutdown()
        ray.init(**options)


@contextlib.contextmanager
def _lean(quiet: bool) -> Iterator[None]:
    """Have `ray.init` leave out helpers while the block runs; not the log's, unless ``quiet``."""
    from ray._private import node, parameter, ray_constants, services

    python = services._build_python_executable_command_memory_profileable

    def command(component: str, *args: Any, **kwargs: Any) -> list[str]:
        if component == ray_constants.PROCESS_TYPE_DASHBOARD_AGENT:
            return [sys.executable, "-S", "-E", "-c", AGENT]
        return list(python(component, *args, **kwargs))

    # With a port that is known, Ray's daemon does not wait for the last agent, which nobody asks.
    parameters = functools.partial(
        parameter.RayParams,
        no_monitor=True,
        include_log_monitor=not quiet,
        runtime_env_agent_port=_free_port(),
    )
    with (
        replaced(parameter, "RayParams", parameters),
        replaced(node.Node, "start_api_server", lambda node, **_: None),
        replaced(services, python.__name__, command),
    ):
        yield


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("", 0))
        return int(one.getsockname()[1])


@contextlib.contextmanager
def replaced(owner: Any, name: str, new: Any) -> Iterator[None]:
    """Have an attribute of Ray's another value while the block runs."""
    stock = getattr(owner, name)
    setattr(owner, name, new)
    try:
        yield
    finally:
        setattr(owner, name, stock)
