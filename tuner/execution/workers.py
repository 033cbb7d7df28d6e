"""Workers: processes that are asked for while the driver prepares, and that Tune gets.

Tune would start an actor of its `Trainable` for a trial, in a process with an environment of its
own. That process can't be one of those that Ray starts by itself, imports Tune with all that Tune
imports, and is asked for only when the first configurations are there.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import UserError
from rltune.cluster.capacity import Room
from rltune.cluster.lean import replaced
from rltune.cluster.nodes import is_joined
from rltune.cluster.session import OUT_OF_MEMORY
from rltune.execution.ahead import CallsAhead
from rltune.execution.messages import SERVER, TASK
from rltune.execution.trainable import AgentTrainable

if TYPE_CHECKING:
    from rltune.cluster.resources import Resources

# Those of a user's storage. On this machine, workers have the environment of the driver.
CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SECURITY_TOKEN",
               "AWS_SESSION_TOKEN")  # fmt: skip


class Workers:
    """The workers of a search on this machine that have no job yet.

    Args:
        agent, env: what they will train
        resources: of each, and their number at most
        trials: of the search; None: as many as there is time for
    """

    def __init__(self, agent: str, env: str, resources: Resources, trials: int | None) -> None:
        self.agent, self.env = agent, env
        self.resources, self.trials = resources, trials
        self.waiting: list[Any] = []
        self.actor: Any = None  # the class as Ray knows it

    def ask(self, early: Workers | None = None) -> None:
        """Start them beside each other, on a Ray that is up; it returns at once.

        One core is left to the driver, which still prepares the search: the first env step comes
        sooner so. Tune asks for the worker that is missing then.

        Args:
            early: workers that were asked for before; those that will do are taken over
        """
        if early is not None:
            if early.resources == replace(self.resources, concurrency=None):
                self.waiting, self.actor = list(early.waiting), early.actor
            early.dismiss()
        if is_joined():  # nodes may come and go there
            return
        with contextlib.suppress(UserError):  # it is raised again where the jobs begin
            slots = Room(self.resources).slots()
            number = min(slots, self.trials or slots, max(1, (os.cpu_count() or 1) - 1))
            while len(self.waiting) < number:
                self.waiting.append(self.start(agent=self.agent, env=self.env))

    def start(self, **arguments: Any) -> Any:
        """Start another one; return the handle of its actor."""
        import ray

        if self.actor is None:
            needed = {"num_cpus": self.resources.cpus, "num_gpus": self.resources.gpus}
            self.actor = ray.remote(AgentTrainable).options(**needed)
        return self.actor.remote(**arguments)

    def begin(self, config: dict[str, Any]) -> Any:
        """Give a job to one that waits, or to a new one; return the handle of its actor."""
        if not self.waiting:
            return self.start(config=config)
        worker = self.waiting.pop(0)
        worker.reset.remote(config)
        return worker

    def dismiss(self) -> None:
        """End those that have got no job: Ray ends an actor that nobody holds."""
        self.waiting.clear()


@contextlib.contextmanager
def given_to_tune(workers: Workers) -> Iterator[type[Any]]:
    """Let Tune start our workers while the block runs; yield the `Trainable` that it may know.

    On this machine, Tune counts the resources itself. With placement groups, it would start a
    process to hear that the resources are there.
    """
    import ray
    from ray import tune
    from ray.air._internal import usage
    from ray.air.execution._internal.actor_manager import RayActorManager
    from ray.air.execution.resources import fixed
    from ray.exceptions import OutOfMemoryError, RayActorError
    from ray.tune.execution import tune_controller

    class Named(tune.Trainable):  # type: ignore[misc]
        """Stands for `AgentTrainable` in this process."""

    class Slot(fixed.FixedAcquiredResources):  # type: ignore[misc]
        """Room for one worker on this machine."""

        def annotate_remote_entities(self, entities: list[Any]) -> list[Any]:
            """Return what starts the worker, in place of an actor's class."""
            return [_Beginner(workers)]

    class Slots(fixed.FixedResourceManager):  # type: ignore[misc]
        """Room for the workers on this machine."""

        _resource_cls = Slot

    class Manager(RayActorManager):  # type: ignore[misc]
        """Starts our workers where Tune asks for its trainable."""

        def __init__(self, resource_manager: Any) -> None:
            super().__init__(resource_manager if is_joined() else Slots())
            self.ahead = CallsAhead()

        def add_actor(self, cls: Any, *, kwargs: Any, **rest: Any) -> Any:
            """Start a worker with nothing but its task: all else is pickled by Tune's modules."""
            kwargs = {"config": _plain(kwargs["config"])}
            return super().add_actor(elsewhere, kwargs=kwargs, **rest)

        def schedule_actor_task(
            self, tracked_actor: Any, method_name: str, args: Any = None, *rest: Any, **named: Any
        ) -> Any:
            """Call a worker; a `reset` gets nothing but its task, too."""
            if method_name == "reset":
                args, named["kwargs"] = (_plain(args[0]),), None
            if method_name == "train":
                named["on_result"] = self.ahead.listening(named["on_result"])
            else:
                self.ahead.forget(tracked_actor)
            future = super().schedule_actor_task(tracked_actor, method_name, args, *rest, **named)
            started = self._live_actors_to_ray_actors_resources.get(tracked_actor)
            if started and method_name in ("train", "reset"):
                self.ahead.give(tracked_actor, started[0])
            return future

        def _schedule_tracked_actor_task(
            self, tracked_actor_task: Any, method_name: str, **named: Any
        ) -> Any:
            worker = tracked_actor_task._tracked_actor
            future = self.ahead.take(worker) if method_name == "train" else None
            if future is None:
                return super()._schedule_tracked_actor_task(
                    tracked_actor_task, method_name, **named
                )
            self._actor_task_events.track_future(
                future=future,
                on_result=lambda result: self._actor_task_resolved(tracked_actor_task, result),
                on_error=lambda error: self._actor_task_failed(tracked_actor_task, error),
            )
            self._tracked_actors_to_task_futures[worker].add(future)
            return tracked_actor_task

        def _actor_task_failed(self, tracked_actor_task: Any, exception: Exception) -> None:
            # Ray 2.60's Tune does not know this error, and ends the whole run with it.
            if isinstance(exception, OutOfMemoryError):
                exception = RayActorError(error_msg=f"{OUT_OF_MEMORY}\n{exception}")
            super()._actor_task_failed(tracked_actor_task, exception)

    variables = {name: os.environ[name] for name in CREDENTIALS if name in os.environ}
    elsewhere = ray.remote(runtime_env={"env_vars": variables})(AgentTrainable)
    with (
        replaced(tune_controller, "RayActorManager", Manager),
        # It imports wandb, MLflow and Comet, to count for Ray who uses them.
        replaced(usage, "tag_callbacks", lambda callbacks: None),
    ):
        yield Named


def _plain(config: dict[str, Any]) -> dict[str, Any]:
    return {name: config[name] for name in (TASK, SERVER)}


class _Beginner:
    """Stands for a class of Ray's actors, and gives a job to a worker."""

    def __init__(self, workers: Workers) -> None:
        self.workers = workers

    def remote(self, config: dict[str, Any]) -> Any:
        """Return the handle of the actor."""
        return self.workers.begin(config)
