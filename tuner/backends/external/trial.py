"""What a training of the user's own is given beside its configuration: the trial."""

from __future__ import annotations

import contextlib
import inspect
import tempfile
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from rltune.agents.errors import UserError

# Columns of the history, which a reported metric would hide.
TAKEN = {
    "best_reward", "cpu_time", "engine", "env_steps", "env_steps_per_second", "episode_reward",
    "eval_cut", "eval_episodes", "eval_length", "eval_return", "eval_std", "idle_seconds",
    "iteration", "make_seconds", "mean_reward", "memory", "memory_in_use", "node", "save_seconds",
    "seed", "step", "time", "timestamp", "trial",
}  # fmt: skip


class StopTraining(BaseException):  # like StopIteration
    """Raised by `Trial.report` where the training shall end: let it pass.

    It is no `Exception`, so that a handler of mistakes does not go on with a training that rltune
    has stopped. ``finally:`` blocks run.
    """


@dataclass(frozen=True)
class Report:
    """What a training has reported.

    Attributes:
        env_steps: of the budget, so far
        value: the higher the better, unless the search minimises it
        metrics: further numbers, by name
    """

    env_steps: int
    value: float
    metrics: dict[str, float] = field(default_factory=dict)


class Trial:
    """A trial of a search, as a function that trains sees it.

    Outside of a search, ``Trial(seed=0, budget=10_000)`` lets the function be called by itself;
    `reports` holds what it reported then.

    Args:
        seed: of everything that the training draws
        budget: the length of the whole training
        env: the environment of the search; None: it names none
        env_kwargs: its arguments
        device: "auto", "cpu", "cuda", ...
        folder: see `checkpoint`; None: a temporary one
        receive: takes each report; it may wait, and raise `StopTraining`

    Attributes:
        seed, budget, env, env_kwargs, device: as above
        reports: so far
    """

    def __init__(
        self,
        seed: int = 0,
        budget: int = 100_000,
        *,
        env: str | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
        device: str = "auto",
        folder: str | Path | None = None,
        receive: Callable[[Report], None] | None = None,
    ) -> None:
        self.seed = seed
        self.budget = budget
        self.env = env
        self.env_kwargs = dict(env_kwargs or {})
        self.device = device
        self.reports: list[Report] = []
        self._folder = None if folder is None else Path(folder)
        self._receive = receive

    def report(self, env_steps: float, value: float, **metrics: float) -> None:
        """Hand over a value, and wait until the search wants to know more.

        Args:
            env_steps: what the training has used of its budget so far, in the budget's unit
            value: what the search maximises (or minimises: ``metric="-loss"``)
            metrics: further numbers for history and charts

        Raises:
            StopTraining: the training shall end: the scheduler or a person has stopped it.
            UserError: something reported is no number, or env_steps fall.
        """
        before = self.reports[-1].env_steps if self.reports else 0
        steps = int(_number("env_steps", env_steps))
        if steps < before:
            raise UserError(
                f"trial.report: env_steps are {steps} after {before}, and can't fall; report what "
                "the training has used of its budget so far."
            )
        for name in metrics:
            if name in TAKEN:
                raise UserError(
                    f"trial.report: {name} is a column of rltune's own; give the metric another "
                    "name."
                )
        further = {name: _number(name, number) for name, number in metrics.items()}
        made = Report(steps, _number("value", value), further)
        self.reports.append(made)
        if self._receive is not None:
            self._receive(made)

    def run(self, train: Callable[..., Any], config: Mapping[str, Any]) -> list[Report]:
        """Call a function that trains, or exhaust its generator, and return what it reported."""
        made: Any = train(dict(config), self)
        if inspect.isgenerator(made):
            self.exhaust(cast("Generator[Any, None, None]", made))
        return self.reports

    def exhaust(self, made: Generator[Any, None, None]) -> None:
        """Report what a generator yields: env steps, value, and perhaps a dict of metrics."""
        with contextlib.closing(made):
            for item in made:
                if not isinstance(item, (tuple, list)) or len(item) not in (2, 3):
                    raise UserError(
                        "a training must yield env_steps, value (and a dict of metrics), not "
                        f"{item!r:.60}."
                    )
                self.report(item[0], item[1], **(item[2] if len(item) == 3 else {}))

    def checkpoint(self) -> Path:
        """Return a folder to keep files in, which are there again when the trial goes on.

        A function that finds its files goes on from them; one that does not look starts over.
        """
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="rltune-trial-"))
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder


def _number(name: str, value: Any) -> float:
    """Return a number, NumPy's and PyTorch's too, as a float; UserError: it is none."""
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        number = float(value)
        if name == "env_steps":
            int(number)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise UserError(f"trial.report: {name} must be a number, not {value!r:.60}.") from None
    return number
