"""Callbacks: code of the user's own that is called on the way of a search or a training."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rltune.agents.errors import UserError
from rltune.agents.user_code import import_object

if TYPE_CHECKING:
    from rltune.agents.loop.results import Evaluation

LOG = "callbacks.log"  # in the run directory: tracebacks


@dataclass(frozen=True)
class RunInfo:
    """A search or a training, for callbacks.

    Attributes:
        name: of the run directory
        path: to it
        spec: every choice, as run.yaml has it
        resumed: whether it goes on with what was stopped
    """

    name: str
    path: Path
    spec: Mapping[str, Any]
    resumed: bool


@dataclass(frozen=True)
class TrialInfo:
    """A trial of a search, for callbacks.

    Attributes:
        number: of the trial
        config: its hyperparameters
        origin: "default", "sampler", ...
        env_steps: of the seed that has the most
        state: "RUNNING", "COMPLETE", "PRUNED" or "FAIL"
        value: its objective as far as it is known
        reason: why it ended
    """

    number: int
    config: Mapping[str, Any]
    origin: str
    env_steps: int = 0
    state: str = "RUNNING"
    value: float | None = None
    reason: str = ""


class Callback:
    """What a search or a training calls on its way; every method does nothing here.

    They are called in the process that drives the search, or that trains: what takes long there
    holds it up. A method that returns `STOP` asks for an end: of the trial from `on_trial_start`
    and `on_report`; from the others of the search, which begins no further trial, finishes those
    under way and gives its answer, or of the training.

    Attributes:
        raises: whether an exception of it ends the search or training; else it is told, once
        env_steps: of the training so far; in a search always 0
    """

    STOP: ClassVar[str] = "stop"
    raises: bool = False
    env_steps: int = 0

    def on_search_start(self, search: RunInfo) -> str | None:
        """Before the first trial, and again when a search is resumed."""

    def on_trial_start(self, trial: TrialInfo) -> str | None:
        """Before a trial is trained, or goes on in a resumed search."""

    def on_report(self, trial: TrialInfo, row: Mapping[str, Any]) -> str | None:
        """After a row of a trial is in the history, and before it is judged by it."""

    def on_trial_end(self, trial: TrialInfo) -> str | None:
        """After a trial has ended, whatever the reason."""

    def on_new_incumbent(self, trial: TrialInfo) -> str | None:
        """After the trial's end, if it is the best one now that ran its whole budget."""

    def on_answer(self, answer: Mapping[str, Any]) -> str | None:
        """After the tournament: "best_trial", "best_config", "answer" in words, "test_score"."""

    def on_search_end(self, search: RunInfo) -> str | None:
        """At the end, also where the search was stopped or has failed."""

    def on_training_start(self, training: RunInfo) -> str | None:
        """Before the first step, and again when a training is resumed."""

    def on_step(self, env_steps: int) -> str | None:
        """After each step of all environments (rltune's own agents on one environment)."""

    def on_update(self, metrics: Mapping[str, float]) -> str | None:
        """After each update of the agent; of other agents, once an iteration, with the means."""

    def on_evaluation(self, evaluation: Evaluation) -> str | None:
        """After an evaluation."""

    def on_checkpoint(self, path: Path) -> str | None:
        """After a checkpoint was written."""

    def on_training_end(self, training: RunInfo) -> str | None:
        """At the end, also where the training was stopped or has failed."""


Given = Sequence["Callback | type[Callback] | str"]


class Callbacks:
    """Calls the methods of callbacks that do something.

    Args:
        callbacks: in the order in which they are called
        folder: the run directory
        say: shows a sentence to the user
    """

    def __init__(
        self,
        callbacks: Sequence[Callback] = (),
        folder: Path = Path(),
        say: Callable[[str], None] = print,
    ) -> None:
        self._callbacks = list(callbacks)
        self._file = folder / LOG
        self._say = say
        self._failed: set[tuple[int, str]] = set()

    def wants(self, event: str) -> bool:
        """Whether a callback has a method of its own for the event."""
        return bool(self._of(event))

    def call(self, event: str, *arguments: Any) -> bool:
        """Call the method of that name of each callback; return whether one asks for an end.

        Raises:
            Exception: of a callback that ``raises``.
        """
        stop = False
        for callback in self._of(event):
            try:
                stop |= getattr(callback, event)(*arguments) == Callback.STOP
            except Exception as error:
                if callback.raises:
                    raise
                self._tell(callback, event, error)
        return stop

    def at(self, env_steps: int) -> None:
        """Let the callbacks know how far the training is."""
        for callback in self._callbacks:
            callback.env_steps = env_steps

    def _of(self, event: str) -> list[Callback]:
        nothing = getattr(Callback, event)
        return [c for c in self._callbacks if getattr(type(c), event) is not nothing]

    def _tell(self, callback: Callback, event: str, error: Exception) -> None:
        """Say what went wrong in a method, the first time, and keep its traceback."""
        if (id(callback), event) in self._failed:
            return
        self._failed.add((id(callback), event))
        with contextlib.suppress(OSError), open(self._file, "a", encoding="utf-8") as file:
            file.write("".join(traceback.format_exception(error)) + "\n")
        said = (str(error).splitlines() or [""])[0]
        self._say(
            f"{type(callback).__name__}.{event} has failed with {type(error).__name__}"
            f"{said and f': {said}'}; going on (see {LOG} of the run)"
        )


def resolved(given: Given) -> list[Callback]:
    """Return callbacks as objects.

    Args:
        given: objects, classes, or "module:Class", which are made without arguments

    Raises:
        UserError: one is no callback, or can't be imported or made.
    """
    if isinstance(given, (str, Callback, type)):
        given = [given]
    return [_resolved(one) for one in given]


def _resolved(given: object) -> Callback:
    found = import_object(given, "callback") if isinstance(given, str) else given
    if isinstance(found, type) and issubclass(found, Callback):
        try:
            found = found()
        except Exception as error:
            raise UserError(
                f"callback {_name(given)} can't be made without arguments: "
                f"{type(error).__name__}: {error}"
            ) from error
    if not isinstance(found, Callback):
        raise UserError(f"callback {_name(given)} is no subclass of rltune.Callback")
    return found


def _name(given: object) -> str:
    return given.__qualname__ if isinstance(given, type) else f"{given!r:.80}"
