"""Discrete-event simulation of actors, a replay server and a learner on several nodes.

Every process has a core of its own; what its parts take is measured (`Costs`). The server serves
one call after the other. Its limiter is `rltune.agents.distributed.limiter.RateLimiter` itself,
with the buffers and fragments that `DistributedAgent` chooses.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field

from rltune.agents.distributed.agent import MOST_ROWS
from rltune.agents.distributed.limiter import RateLimiter
from rltune.agents.distributed.stream import AHEAD, MINIBATCHES

ACTORS_PER_NODE = 8
BANDWIDTH = 1.25e9  # bytes per second of a node's network: 10 Gbit/s
HOP = 100e-6  # seconds from node to node
BUSY = 0.85  # of the time: then it is what limits


@dataclass(frozen=True)
class CallCost:
    """A call of the replay server: seconds of the server, and of the way there and back."""

    server: float
    way: float
    bytes: float = 0.0


@dataclass(frozen=True)
class Costs:
    """What the parts of a training take, in seconds.

    Attributes:
        update, update_per_step: of the learner: of each update, and for each env step it is about
        row: of an actor for a step, but for the environment
        learner_row: of the learner for a row that it was sent
        policy, load: to make a policy, to take one over
        client: of the learner for each call
        insert, insert_per_row: calls of the server
        sample, publish, newest, take: the same; ``newest`` is what a policy adds to an answer
    """

    update: float
    update_per_step: float
    row: float
    learner_row: float
    policy: float
    load: float
    client: float
    insert: CallCost
    insert_per_row: float
    sample: CallCost
    publish: CallCost
    newest: CallCost
    take: CallCost


@dataclass(frozen=True)
class Training:
    """A training: how it collects, and how much.

    Attributes:
        kind: "rounds" (lock-step), "queue" (rollouts, ahead of the learner), "replay"
        actors: each with one environment
        step: seconds of an environment's step
        update_every: env steps between updates; of rollouts, in each environment
        lag: updates that actors may run ahead
        jitter: standard deviation of a step's time, in parts of it
    """

    kind: str
    actors: int
    step: float
    update_every: int
    lag: int
    jitter: float = 0.0

    @property
    def due(self) -> int:
        """The env steps between two updates."""
        return self.update_every * (1 if self.kind == "replay" else self.actors)

    @property
    def buffer(self) -> int:
        """The env steps that may be inserted and not yet learned from."""
        buffer = self.lag * self.due
        return max(buffer, 2 * self.rows * self.actors) if self.kind == "replay" else buffer

    @property
    def rows(self) -> int:
        """The rows of a fragment."""
        if self.kind != "replay":
            return self.update_every
        return min(MOST_ROWS, max(1, self.lag * self.due // (2 * self.actors)))


@dataclass
class Result:
    """What a simulation found.

    Attributes:
        per_second: env steps
        shares: of the time that the server and the learner were busy, and that an actor (in the
            mean) collected, waited for the limiter, and waited otherwise
    """

    per_second: float
    shares: dict[str, float] = field(default_factory=dict)

    @property
    def limit(self) -> str:
        """What keeps it from being faster."""
        for name, share in (("actors", "collecting"), ("learner", "learner"), ("server", "server")):
            if self.shares[share] > BUSY:
                return name
        return "limiter" if self.shares["limiter"] > self.shares["waiting"] else "waiting"


Process = Generator["float | list[Process]", None, None]


class Clock:
    """Lets processes run: generators that yield seconds to wait, or a list to be woken from."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = itertools.count()
        self._due: list[tuple[float, int, Process]] = []

    def start(self, process: Process, delay: float = 0.0) -> None:
        """Let a process go on after a time."""
        heapq.heappush(self._due, (self.now + delay, next(self._order), process))

    def wake(self, waiting: list[Process]) -> None:
        """Let all of a list go on now."""
        woken, waiting[:] = list(waiting), []
        for process in woken:
            self.start(process)

    def run(self, until: float) -> None:
        """Let time pass."""
        while self._due and self._due[0][0] <= until:
            self.now, _, process = heapq.heappop(self._due)
            asked = next(process, None)
            if isinstance(asked, list):
                asked.append(process)
            elif asked is not None:
                self.start(process, asked)


class Simulation:
    """One training.

    Args:
        training: what is simulated
        costs: of its parts
        seed: of the steps' jitter
    """

    def __init__(self, training: Training, costs: Costs, seed: int = 0) -> None:
        self.training, self.costs = training, costs
        self.clock, self._random = Clock(), random.Random(seed)
        self.limiter = RateLimiter(1, 0, training.buffer)
        self.version, self.env_steps = 0, 0
        self._inserted: deque[int] = deque()  # rows of the fragments that nobody has taken
        self._changed: list[Process] = []
        self._server_free, self._nic_free = 0.0, 0.0
        self.busy = dict.fromkeys(("server", "learner", "collecting", "limiter"), 0.0)

    def run(self, seconds: float = 60.0, warm: float = 20.0) -> Result:
        """Return the env steps per second, without those of the first seconds."""
        kind = self.training.kind
        learner = {"rounds": self._rounds, "queue": self._queue, "replay": self._replay}[kind]
        self.clock.start(learner())
        if kind != "rounds":
            for i in range(self.training.actors):
                self.clock.start(self._actor(i))
        self.clock.run(warm)
        before, steps = dict(self.busy), self.env_steps
        self.clock.run(warm + seconds)
        shares = {name: (self.busy[name] - before[name]) / seconds for name in before}
        for name in ("collecting", "limiter"):
            shares[name] /= self.training.actors
        shares["waiting"] = max(0.0, 1 - shares["collecting"] - shares["limiter"])
        return Result((self.env_steps - steps) / seconds, shares)

    # --------------------------------------------------------------------------------------- parts

    def _remote(self, i: int) -> bool:
        """Whether an actor is on another node than the learner and the server."""
        return i >= ACTORS_PER_NODE

    def _call(self, cost: CallCost, service: float = 0.0, remote: bool = False) -> Process:
        """Call the server and wait until it has served it; the way back is the caller's."""
        yield cost.way / 2 + (HOP if remote else 0.0)
        took = cost.server + service
        self._server_free = max(self._server_free, self.clock.now) + took
        self.busy["server"] += took
        yield self._server_free - self.clock.now
        if remote and cost.bytes:
            self._nic_free = max(self._nic_free, self.clock.now) + cost.bytes / BANDWIDTH
            yield self._nic_free - self.clock.now

    def _back(self, cost: CallCost, remote: bool = False) -> float:
        return cost.way / 2 + (HOP if remote else 0.0)

    def _collecting(self, rows: int) -> float:
        """Return the seconds of so many steps of one environment."""
        step, jitter = self.training.step, self.training.jitter
        drawn = self._random.gauss(rows, jitter * math.sqrt(rows)) if jitter else rows
        took = max(0.0, drawn) * step + rows * self.costs.row
        self.busy["collecting"] += took
        return took

    def _work(self, seconds: float) -> float:
        self.busy["learner"] += seconds
        return seconds

    def _actor(self, i: int) -> Process:
        costs, rows, remote = self.costs, self.training.rows, self._remote(i)
        has = -1
        while self.version == 0:  # the first policy is waited for
            yield self._changed
        while True:
            if has != self.version:
                has = self.version
                yield from self._call(costs.newest, remote=remote)
                yield costs.load
            yield self._collecting(rows)
            yield from self._call(costs.insert, costs.insert_per_row * rows, remote)
            began = self.clock.now
            while not self.limiter.can_insert(rows):
                yield self._changed
            self.busy["limiter"] += self.clock.now - began
            self.limiter.inserts += rows
            self._inserted.append(rows)
            self.clock.wake(self._changed)
            yield self._back(costs.insert, remote)

    def _publish(self) -> Process:
        yield self._work(self.costs.policy + self.costs.client)
        yield from self._call(self.costs.publish)
        self.version += 1
        self.clock.wake(self._changed)
        yield self._back(self.costs.publish)

    def _take(self, least: int, most: int, learned: int) -> Process:
        """Wait for fragments; how many rows they have stands in ``taken``."""
        yield self._work(self.costs.client)
        yield from self._call(self.costs.take)
        self.limiter.samples += learned
        self.clock.wake(self._changed)
        while len(self._inserted) < least:
            yield self._changed
        n = min(most, len(self._inserted))
        self.taken = sum(self._inserted.popleft() for _ in range(n))
        yield self._back(self.costs.take)

    # ------------------------------------------------------------------------------------ learners

    def _replay(self) -> Process:
        costs, training = self.costs, self.training
        since, updates, published, learned = 0, 0, -1, 0
        minibatches, under_way, arrived = 0, 0, [0]
        publish_every = max(1, training.lag // 4)
        rows = 0

        def sampled() -> Process:
            yield from self._call(costs.sample)
            yield self._back(costs.sample)
            arrived[0] += 1
            self.clock.wake(self._changed)

        while True:
            if published < 0 or updates - published >= publish_every:
                yield from self._publish()
                published = updates
            while not rows:
                yield from self._take(1, 1_000, learned)
                rows, learned = self.taken, 0
            rows, learned, since = rows - 1, learned + 1, since + 1
            self.env_steps += 1
            yield self._work(costs.learner_row)
            while since >= training.update_every:
                since -= training.update_every
                while under_way < AHEAD:
                    under_way += 1
                    yield self._work(costs.client)
                    self.clock.start(sampled())
                while not minibatches:
                    while not arrived[0]:
                        yield self._changed
                    arrived[0] -= 1
                    under_way -= 1
                    minibatches = MINIBATCHES
                minibatches -= 1
                updates += 1
                yield self._work(costs.update)

    def _queue(self) -> Process:
        n, due, learned = self.training.actors, self.training.due, 0
        while True:
            yield from self._publish()
            yield from self._take(n, n, learned)
            learned = due
            yield self._learn(due)
            self.env_steps += due

    def _learn(self, due: int) -> float:
        costs, rows = self.costs, self.training.update_every
        return self._work(rows * costs.learner_row + costs.update + costs.update_per_step * due)

    def _rounds(self) -> Process:
        costs, training = self.costs, self.training
        left = [0]

        def collect(i: int) -> Process:
            remote = self._remote(i)
            yield costs.newest.way / 2 + costs.load + (HOP if remote else 0.0)
            yield self._collecting(training.rows)
            yield self._back(costs.newest, remote)
            left[0] -= 1
            self.clock.wake(self._changed)

        while True:
            yield self._work(costs.policy)
            left[0] = training.actors
            for i in range(training.actors):
                yield self._work(costs.client)
                self.clock.start(collect(i))
            while left[0]:
                yield self._changed
            yield self._learn(training.due)
            self.env_steps += training.due
