"""The fleet on Ray: actors and a replay server as processes that may die and are replaced."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rltune.actors.placement import places
from rltune.actors.processes import ActorProcess, EvaluatorProcess, ServerProcess
from rltune.agents.distributed.actor import ActorSpec
from rltune.agents.distributed.evaluator import Found
from rltune.agents.distributed.fragments import Fragment
from rltune.agents.distributed.policies import Policy
from rltune.agents.distributed.server import ServerSpec
from rltune.agents.loop import checkpoint

LOOK_EVERY = 0.5  # seconds between looks at whether actors have died
PATIENCE = 2.0  # seconds in which actors end what they do
MOST_DEATHS = 20  # of actors and servers, in a row without an answer: then something is wrong


# Actors that no training has now: starting one takes seconds, and a worker trains one trial after
# the other. By the Ray that they are of, and what they were started with.
_spare: dict[tuple[str, str], list[Any]] = {}


class Call(NamedTuple):
    """A call of the replay server that is under way."""

    method: str
    args: tuple[Any, ...]
    server: Any
    answer: Any


class RayFleet:
    """Actors on Ray; see `rltune.agents.distributed.fleet.Fleet`.

    Attributes:
        notes: what happened to actors and server, until somebody takes it
        saved: the last checkpoint of the training; None: there is none yet
        pids: of the actors' processes, on their machines
    """

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.saved: Path | None = None
        self.pids: list[int] = []
        self._session = contextlib.ExitStack()
        self._specs: list[ActorSpec] = []
        self._actors: list[Any] = []
        self._runs: dict[Any, int] = {}  # what `ActorProcess.run` will return -> actor
        self._server: Any = None
        self._evaluator: Any = None
        self._evaluation: Any = None  # what it will answer
        self._last: Policy | None = None  # the last policy with its state
        self._looks = 0.0
        self._deaths = 0

    def start(self, specs: Sequence[ActorSpec]) -> None:
        """Start an actor for each specification, beside each other."""
        import ray
        from rltune.cluster.session import ray_session

        if not ray.is_initialized():
            self._session.enter_context(ray_session())
        self._specs = list(specs)
        self._places = places(len(specs))
        self._paths = [os.path.abspath(path) for path in sys.path]
        self._actors = [
            self._spare_of(i).pop() if self._spare_of(i) else self._process(i)
            for i in range(len(specs))
        ]
        made = [self._make(i) for i in range(len(specs))]
        self.pids = [0] * len(specs)
        for i, answer in enumerate(made):
            try:
                self.pids[i] = self._get(answer)
            except ray.exceptions.RayActorError:  # a spare one that has died since
                self._actors[i] = self._process(i)
                self.pids[i] = self._get(self._make(i))

    def _process(self, i: int) -> Any:
        import ray

        return ray.remote(ActorProcess).options(**self._places.actors[i]).remote()

    def _spare_of(self, i: int) -> list[Any]:
        """Return the actors that could be number ``i`` of this fleet."""
        import ray

        context = ray.get_runtime_context()
        of = f"{context.gcs_address} {context.get_job_id()}"
        return _spare.setdefault((of, self._places.kind(i)), [])

    def _make(self, i: int) -> Any:
        return self._actors[i].make.remote(self._specs[i], self._paths)

    def _get(self, answer: Any) -> Any:
        """Return an answer; raise what the actor raised."""
        import ray

        try:
            return ray.get(answer)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None

    def _replace(self, i: int) -> None:
        """Start another actor in place of one that died."""
        self._count_death()
        spec = self._specs[i]
        self._specs[i] = replace(spec, incarnation=spec.incarnation + 1)
        self.notes.append(f"actor {i} died; another one begins new episodes")
        self._actors[i] = self._process(i)
        self.pids[i] = self._get(self._make(i))

    def _count_death(self) -> None:
        self._deaths += 1
        if self._deaths > MOST_DEATHS:
            raise RuntimeError(f"{self._deaths} processes of actors died one after the other")

    def collect(self, policy: Policy, rows: int) -> list[Fragment]:
        """Let all actors take their steps beside each other."""
        import ray

        if policy.state is not None:
            self._last = policy
        sent = ray.put(policy) if len(self._actors) > 1 else policy
        answers = [actor.collect.remote(sent, rows) for actor in self._actors]
        found = [self._fragment(i, a, policy, rows) for i, a in enumerate(answers)]
        self._deaths = 0
        return found

    def _fragment(self, i: int, answer: Any, policy: Policy, rows: int) -> Fragment:
        import ray

        while True:
            try:
                fragment: Fragment = self._get(answer)
                return fragment
            except ray.exceptions.RayActorError:
                self._replace(i)
                assert self._last is not None
                answer = self._actors[i].collect.remote(
                    replace(policy, state=self._last.state), rows
                )

    def states(self) -> list[dict[str, Any]]:
        """Return where the actors stand."""
        return self._of_each(lambda actor: actor.state_dict.remote())

    def restore(self, states: Sequence[dict[str, Any]]) -> None:
        """Let the actors take over what `states` gave."""
        given = iter(states)
        self._of_each(lambda actor: actor.load_state_dict.remote(next(given)))

    def _of_each(self, call: Callable[[Any], Any]) -> list[Any]:
        return [self._get(answer) for answer in [call(actor) for actor in self._actors]]

    def stream(self, spec: ServerSpec, rows: int) -> None:
        """Start a replay server, and let the actors run."""
        self._server_spec, self._rows = spec, rows
        self._start_server()

    def _start_server(self) -> None:
        import ray

        made = ray.remote(ServerProcess).options(**self._places.server)
        self._server = made.remote(self._server_spec, self._paths)
        self._runs = {}
        for i in range(len(self._actors)):
            self._run(i)

    def _run(self, i: int) -> None:
        self._runs[self._actors[i].run.remote(self._server, self._rows)] = i

    def ask(self, method: str, *args: Any) -> Any:
        """Return what a method of the replay server answers."""
        return self.finish(self.begin(method, *args))

    def begin(self, method: str, *args: Any) -> Call:
        """Ask the replay server, and return the call at once."""
        if method == "publish":
            self._last = args[0]
        return Call(method, args, self._server, self._server.call.remote(method, *args))

    def finish(self, token: Call) -> Any:
        """Wait for the answer of a call, and meanwhile look after the actors."""
        import ray

        while True:
            ready, _ = ray.wait([token.answer], timeout=LOOK_EVERY)
            try:
                self._look_after_actors()
                if ready:
                    answer = ray.get(token.answer)
                    self._deaths = 0
                    return answer
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except ray.exceptions.RayActorError:
                if token.server is self._server:
                    self._replace_server()
                token = self.begin(token.method, *token.args)

    def _look_after_actors(self) -> None:
        """Replace those that have died, and raise what they have raised.

        Raises:
            RayActorError: the server has died.
        """
        import ray

        if time.monotonic() < self._looks:
            return
        self._looks = time.monotonic() + LOOK_EVERY
        ended, _ = ray.wait(list(self._runs), num_returns=len(self._runs), timeout=0)
        for run in ended:
            i = self._runs.pop(run)
            try:
                ray.get(run)
            except ray.exceptions.RayActorError:
                self._replace(i)
                self._run(i)
            else:  # it lost the server, which may live nevertheless: raise where it doesn't
                ray.get(self._server.call.remote("newest"))
                self._run(i)

    def _replace_server(self) -> None:
        """Start another replay server with what the last checkpoint has of its memory."""
        self._count_death()
        self._start_server()
        if not self._server_spec.replays:
            self.notes.append("the queue of rollouts died; another one is empty")
        else:
            state = self._saved_memory()
            if state is not None:
                self.ask("load_state_dict", state)
            held = "is empty" if state is None else "has the memory of the last checkpoint"
            self.notes.append(
                f"the replay server died; another one {held}, what came after is lost"
            )
        if self._last is not None:
            self.ask("publish", self._last)

    def _saved_memory(self) -> Any:
        if self.saved is None or not self.saved.exists():
            return None
        return checkpoint.read(self.saved)["memory"]

    @property
    def evaluates(self) -> bool:
        """Whether an evaluation is under way."""
        return self._evaluation is not None

    def evaluate(self, policy: Policy) -> None:
        """Let the evaluation actor begin with a policy."""
        import ray

        if self._evaluator is None:
            made = ray.remote(EvaluatorProcess).options(**self._places.server)
            self._evaluator = made.remote(self._specs[0], self._paths)
        self._evaluation = self._evaluator.evaluate.remote(policy)

    def evaluated(self) -> Found | None:
        """Return what the evaluation actor has found since the last call."""
        import ray

        if self._evaluation is None or not ray.wait([self._evaluation], timeout=0)[0]:
            return None
        answer, self._evaluation = self._evaluation, None
        try:
            found: Found = self._get(answer)
        except ray.exceptions.RayActorError:
            self._evaluator = None
            self._count_death()
            self.notes.append("the evaluation actor died; another one goes on")
            return None
        return found

    def _still_running(self) -> list[int]:
        """Return the actors that don't end although they find no server: a step takes too long."""
        import ray

        runs = list(self._runs)
        if not runs:
            return []
        _, late = ray.wait(runs, num_returns=len(runs), timeout=PATIENCE)
        return [self._runs[run] for run in late]

    def close(self) -> None:
        """End server and evaluation actor; the actors are spared for the next training."""
        import ray

        if ray.is_initialized():
            for process in (self._server, self._evaluator):
                if process is not None:
                    ray.kill(process)
            for i in self._still_running():
                ray.kill(self._actors[i])
            for i, actor in enumerate(self._actors):
                self._spare_of(i).append(actor)  # one that was killed is found out when it is used
        self._actors, self._server, self._evaluator = [], None, None
        self._session.close()
