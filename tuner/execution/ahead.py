"""Calls ahead: a worker has its next call of `train` before Tune has heard of the last result.

Without them a worker waits after each row, until Tune has handed the result to the driver, and
called again. The worker refuses a call ahead where the last row may have ended the job; then it
waits, as it must.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

GOES_ON = "goes_on"  # in a result: a call that was made ahead is done
IS_SHORT = "is_short"  # in a result: so are the iterations that little is lost with one
SHORT = 1.0  # seconds of such an iteration


class CallsAhead:
    """The calls of `train` that workers were given ahead; workers are Tune's tracked actors."""

    def __init__(self) -> None:
        self._calls: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # worker -> future
        self._short: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()

    def take(self, worker: Any) -> Any:
        """Return the future of the call that the worker was given ahead; None: there is none."""
        return self._calls.pop(worker, None)

    def give(self, worker: Any, actor: Any) -> None:
        """Give a worker a call ahead, unless too much may be lost with it."""
        if self._short.get(worker, False):
            self._calls[worker] = actor.train.remote(ahead=True)

    def forget(self, worker: Any) -> None:
        """Forget the call that a worker was given: its job has ended."""
        self._calls.pop(worker, None)

    def listening(self, then: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        """Return a function that learns from a result whether the call ahead is done."""

        def heard(worker: Any, result: dict[str, Any]) -> None:
            self._short[worker] = result.pop(IS_SHORT, False)
            if not result.pop(GOES_ON, False):
                self.forget(worker)
            then(worker, result)

        return heard
