"""Jobs of searches in this process, without Ray."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest


def run_here(patch: pytest.MonkeyPatch) -> None:
    """Run the jobs one after the other, from now on."""
    from rltune.cluster import session
    from rltune.cluster.capacity import Room
    from rltune.execution import tune
    from rltune.execution.messages import PAYLOAD, TASK, JobFailure
    from rltune.execution.trainable import AgentTrainable

    def run_jobs(source: Any, *args: Any, **kwargs: Any) -> None:
        while not source.exhausted() and not source.should_stop():
            task = source.next_job()
            assert task is not None
            worker = AgentTrainable.__new__(AgentTrainable)
            worker.setup({TASK: task})
            while True:
                try:
                    result = worker.step()[PAYLOAD]
                except Exception as error:
                    result = tune._explained(error, error, "", "")
                if isinstance(result, JobFailure):
                    source.on_failure(task["job"], result)
                    break
                if source.on_result(task["job"], result) or source.should_stop():
                    worker.cleanup()
                    break

    patch.setattr(session, "ray_session", lambda *args, **kwargs: contextlib.nullcontext())
    patch.setattr(
        session, "started_ahead", lambda *a, **k: contextlib.nullcontext(lambda call: None)
    )
    patch.setattr(Room, "__init__", lambda self, resources: None)
    patch.setattr(Room, "slots", lambda self: 1)
    patch.setattr(tune, "run_jobs", run_jobs)
