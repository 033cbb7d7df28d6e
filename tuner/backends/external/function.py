"""Functions that train: found by name, and run in a thread that waits at each report."""

from __future__ import annotations

import inspect
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from rltune.agents.errors import UserError
from rltune.agents.user_code import fault, import_object
from rltune.backends.external.source import Nothing, Source
from rltune.backends.external.trial import Report, StopTraining, Trial
from rltune.backends.names import FUNCTION

GRACE = 10.0  # seconds for the function to end in


def function_of(agent: str) -> Callable[..., Any]:
    """Return the function ``function:module:name``.

    Raises:
        UserError: there is none, or it does not take a configuration and a trial.
    """
    spec = agent.removeprefix(FUNCTION)
    found = import_object(spec, "function")
    if isinstance(found, type) or not callable(found):
        raise UserError(
            f"{spec} is no function; write def {spec.rpartition(':')[2]}(config, trial)."
        )
    try:
        inspect.signature(found).bind("config", "trial")
    except TypeError as error:
        raise UserError(
            f"{spec} must take two arguments, the configuration and the trial: {error}."
        ) from None
    return found  # type: ignore[no-any-return]


def is_function(spec: str) -> bool:
    """Whether ``module:name`` is a function, rather than a class; UserError: there is no such."""
    found = import_object(spec, "agent")
    return callable(found) and not isinstance(found, type)


class FunctionSource(Source):
    """A function in a thread of its own; while nobody asks for its next report, it waits.

    Args:
        name: of the function, for messages
        function: that trains; it may be a generator
        config: its first argument
        make_trial: makes the second one, from what receives the reports
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        config: dict[str, Any],
        make_trial: Callable[[Callable[[Report], None]], Trial],
    ) -> None:
        self.name = name
        self._function, self._config = function, config
        self._trial = make_trial(self._receive)
        self._came: queue.SimpleQueue[Report | BaseException | Nothing] = queue.SimpleQueue()
        self._may_go_on = threading.Semaphore(0)
        self._waits = False  # for leave to go on
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def next(self, deadline: float | None) -> Report | Nothing:
        """Let the function go on until its next report."""
        if not self._thread.is_alive() and self._thread.ident is None:
            self._thread.start()
        elif self._waits:
            self._waits = False
            self._may_go_on.release()
        timeout = None if deadline is None else max(0.0, deadline - time.time())
        try:
            came = self._came.get(timeout=timeout)
        except queue.Empty:
            return Nothing.YET
        if isinstance(came, SystemExit):
            raise RuntimeError(fault(came) or f"{self.name} called sys.exit()") from came
        if isinstance(came, BaseException):
            raise came
        self._waits = isinstance(came, Report) and came.env_steps < self._trial.budget
        return came

    def stop(self) -> None:
        """Raise `StopTraining` in the function at its next report; wait a little for it."""
        self._stopping = True
        self._may_go_on.release()
        if self._thread.is_alive():
            self._thread.join(GRACE)
        if self._thread.is_alive():
            print(
                f"rltune: {self.name} goes on beside the next trial: it has been stopped, and has "
                f"not reported for {GRACE:.0f} s.",
                file=sys.stderr,
                flush=True,
            )

    def _receive(self, report: Report) -> None:
        """Hand over a report; at the end of the budget, the function may end as it wants to."""
        if self._stopping:
            raise StopTraining
        self._came.put(report)
        if report.env_steps >= self._trial.budget:
            self._stopping = True
            return
        self._may_go_on.acquire()
        if self._stopping:
            raise StopTraining

    def _run(self) -> None:
        try:
            self._trial.run(self._function, self._config)
        except StopTraining:
            pass
        except BaseException as error:  # the worker raises it
            self._came.put(error)
            return
        self._came.put(Nothing.MORE)
