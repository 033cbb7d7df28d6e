"""What messages cost: a replay server with one client, and with none; and how much it moves."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import psutil
import ray
from rltune.actors.processes import ServerProcess
from rltune.agents.config import config_dict, make_config
from rltune.agents.distributed.actor import ActorSpec, make_algorithm
from rltune.agents.distributed.fragments import Fragment
from rltune.agents.distributed.policies import Policy, policy_of
from rltune.agents.distributed.server import LOG, ReplayServer, ServerSpec, make_server
from rltune.agents.loop.normalization import Normalizers
from rltune.agents.registry import agent_class

from scaling.steps import ENV

BATCH = 256
UNLIMITED = 10**12  # env steps: what is measured here is the server, not its limiter
FRAGMENTS: dict[str, tuple[int, tuple[int, ...]]] = {
    "1 x 4": (1, (4,)),
    "10 x 17": (10, (17,)),
    "64 x 17": (64, (17,)),
    "64 x 84 x 84 x 4": (64, (4, 84, 84)),
}
MINIBATCHES = (1, 2, 4, 8)
POLICIES = {"ppo 64-64": ("ppo", (64, 64)), "sac 256-256": ("sac", (256, 256))}
ITEMS = (100, 1_000, 10_000, 100_000)  # float32 of an observation: those of Reverb's items


class Call(NamedTuple):
    """A call of the server to be measured.

    Attributes:
        method: of the server
        args: its arguments
        n: how often it is called
    """

    method: str
    args: tuple[Any, ...]
    n: int


def server_spec(shape: tuple[int, ...], capacity: int, n_actors: int = 1) -> ServerSpec:
    """Return a replay server for observations of a shape."""
    images = len(shape) == 3
    agent = "dqn" if images else "sac"
    kwargs = {"shape": shape, "n_actions": 4 if images else 0}
    config: dict[str, Any] = {"buffer_size": capacity, "n_envs": n_actors, "num_actors": n_actors}
    if not images:  # of big observations, the networks would be big as well, for nothing
        config["net_arch"] = (8,)
    values = config_dict(make_config(agent_class(agent).Config, config))
    actor = ActorSpec(agent, ENV, kwargs, values, 0, 0, 1, "torch")
    return ServerSpec(actor, n_actors, UNLIMITED, replays=True)


def fragment(rows: int, shape: tuple[int, ...], actor: int = 0) -> Fragment:
    """Return steps of one environment, as an actor would insert them."""
    draw, images = np.random.default_rng(actor), len(shape) == 3
    size = (rows + 1, 1, *shape)
    obs: Any = draw.integers(0, 256, size, np.uint8) if images else draw.normal(size=size)
    obs = obs if images else obs.astype(np.float32)
    action: Any = np.zeros((rows, 1), np.int64) if images else np.zeros((rows, 1, 6), np.float32)
    flags = np.zeros((rows, 1), np.bool_)
    steps = {
        "action": action,
        "reward": np.zeros((rows, 1)),
        "terminated": flags,
        "truncated": flags,
        "valid": ~flags,
    }
    none = np.empty((0, *shape), obs.dtype)
    return Fragment(actor, 1, obs[:-1], steps, obs[-1], [], none, [[] for _ in range(rows)])


def policy(name: str) -> Policy:
    """Return a policy as a learner publishes it."""
    agent, net_arch = POLICIES[name]
    values = config_dict(make_config(agent_class(agent).Config, {"net_arch": net_arch}))
    spec = ActorSpec(agent, ENV, {}, values, 0, 0, 1, "auto")
    algorithm = make_algorithm(spec)
    normalizers = Normalizers(algorithm.config, algorithm.spaces)
    return policy_of(algorithm, normalizers, 1, 0, whole=False)


def calls() -> Iterator[tuple[str, str, tuple[int, ...], int, Call]]:
    """Yield what is measured: name, size, shape and rows of the observations, call."""
    for size, (rows, shape) in FRAGMENTS.items():
        n = 60 if len(shape) == 3 else 300
        yield "insert", size, shape, rows, Call("insert", (fragment(rows, shape),), n)
    for count in MINIBATCHES:
        yield (
            "sample",
            f"{count} of 17",
            (17,),
            count,
            Call("sample", ("sample", count, BATCH), 150),
        )
    image = FRAGMENTS["64 x 84 x 84 x 4"][1]
    yield "sample", "1 of 84 x 84 x 4", image, 1, Call("sample", ("sample", 1, BATCH), 20)
    for name in POLICIES:
        yield "publish", name, (17,), 1, Call("publish", (policy(name),), 150)
    yield "newest", "sac 256-256", (17,), 1, Call("newest", (), 150)
    yield "take", "nothing", (17,), 1, Call("take", (LOG, 0, 1_000, 0), 300)


def filled(shape: tuple[int, ...]) -> list[tuple[str, tuple[Any, ...]]]:
    """Return the calls that give a server something to sample and a policy."""
    rows = fragment(64, shape)
    return [("insert", (rows,))] * 16 + [("publish", (policy("sac 256-256"),))]


def message(shape: tuple[int, ...], call: Call) -> dict[str, Any]:
    """Return what a call costs through Ray: wall time, and CPU of the server and of the client."""
    server, pid = start(server_spec(shape, 4_000))
    for method, args in filled(shape):
        ray.get(server.call.remote(method, *args))
    own, its = psutil.Process(), psutil.Process(pid)
    for _ in range(10):
        ray.get(server.call.remote(call.method, *call.args))
    before, walls = (cpu(own), cpu(its)), []
    for _ in range(call.n):
        began = time.perf_counter()
        ray.get(server.call.remote(call.method, *call.args))
        walls.append(time.perf_counter() - began)
    client, service = cpu(own) - before[0], cpu(its) - before[1]
    ray.kill(server)
    return {
        "wall_ms": milliseconds(statistics.median(walls)),
        "server_cpu_ms": milliseconds(service / call.n),
        "client_cpu_ms": milliseconds(client / call.n),
        "logic_cpu_ms": milliseconds(logic(shape, call)),
    }


def logic(shape: tuple[int, ...], call: Call) -> float:
    """Return the CPU seconds of a call in a server of this process, without Ray."""
    server = make_server(server_spec(shape, 4_000))
    asyncio.run(repeat(server, filled(shape)))
    times = [(call.method, call.args)] * call.n
    began = time.process_time()
    asyncio.run(repeat(server, times))
    return (time.process_time() - began) / call.n


async def repeat(server: ReplayServer, times: list[tuple[str, tuple[Any, ...]]]) -> None:
    """Call methods of a server, one after the other."""
    for method, args in times:
        await getattr(server, method)(*args)


def start(spec: ServerSpec) -> tuple[Any, int]:
    """Return a replay server in a process of its own, and the number of the process."""
    made = ray.remote(ServerProcess).options(num_cpus=0)
    server = made.remote(spec, list(sys.path))
    return server, ray.get(server.pid.remote())


def cpu(process: psutil.Process) -> float:
    """Return the CPU seconds that a process has used."""
    times = process.cpu_times()
    return float(times.user + times.system)


def milliseconds(seconds: float) -> float:
    """Return seconds in milliseconds, with the digits that mean something."""
    return round(seconds * 1e3, 4)


# ------------------------------------------------------------------------ how much a server moves


class Client:
    """A process that inserts one fragment again and again."""

    def make(self, rows: int, floats: int, actor: int) -> None:
        """Make the fragment."""
        self.fragment = fragment(rows, (floats,), actor)

    def insert(self, server: Any, until: float) -> int:
        """Insert until a time, each when the one before is in; return how many."""
        n = 0
        while time.time() < until:
            ray.get(server.call.remote("insert", self.fragment))
            n += 1
        return n


def throughput(floats: int, rows: int, clients: int, seconds: float = 1.0) -> dict[str, Any]:
    """Return the transitions per second that clients insert, and then, that one samples."""
    capacity = max(512, 40_000_000 // (8 * floats)) if floats < 100_000 else 128
    server, pid = start(server_spec((floats,), capacity, clients))
    made = ray.remote(Client).options(num_cpus=0)
    processes = [made.remote() for _ in range(clients)]
    ray.get([process.make.remote(rows, floats, i) for i, process in enumerate(processes)])
    ray.get([process.insert.remote(server, time.time() + 0.2) for process in processes])
    its = psutil.Process(pid)
    before, began = cpu(its), time.time()
    counts = ray.get([process.insert.remote(server, began + seconds) for process in processes])
    took, busy = time.time() - began, cpu(its) - before
    batch = max(1, min(BATCH, 4_000_000 // (4 * floats)))
    sampled = sample_on(server, batch, seconds)
    for process in (*processes, server):
        ray.kill(process)
    return {
        "inserts": round(sum(counts) * rows / took, 1),
        "insert_calls": round(sum(counts) / took, 1),
        "insert_busy": round(busy / took, 2),
        "samples": round(sampled, 1),
        "batch": batch,
    }


def sample_on(server: Any, batch: int, seconds: float) -> float:
    """Return the transitions per second of a learner that samples, two calls under way."""

    def ask() -> Any:
        return server.call.remote("sample", "sample", 8, batch)

    under_way, n, began = [ask(), ask()], 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        minibatches = ray.get(under_way.pop(0))
        under_way.append(ask())
        n += len(minibatches)
    return n * batch / (time.perf_counter() - began)
