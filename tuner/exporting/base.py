"""Export formats: what each is called, what it can't express, and the function that writes it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from rltune.agents.envs.suite import is_suite
from rltune.agents.errors import UserError

if TYPE_CHECKING:
    from rltune.exporting.exportable import Exportable
    from rltune.runs.train_spec import TrainSpec


@dataclass(frozen=True)
class Feature:
    """Something that a training may use and not every format can express.

    Attributes:
        words: the beginning of a sentence, "... which --to FORMAT can't say"
        is_used: whether a training uses it
    """

    words: str
    is_used: Callable[[TrainSpec], bool]


SUITE = Feature("this run has several environments at once", lambda spec: is_suite(spec.env))
WEIGHTS = Feature("this training starts from weights", lambda spec: bool(spec.weights))
SCHEDULE = Feature("its hyperparameters change as it trains", lambda spec: bool(spec.schedule))


@dataclass(frozen=True, kw_only=True)
class Exporter:
    """A format of `rltune export`.

    A new one is a module with a function, and an entry in `registry.py`.

    Attributes:
        name: as in ``--to NAME``
        help: of the command line
        suffix: of a file in this format
        function: "module:function", which gets an `Exportable` and returns the text; imported when
            it is called, because the command line reads the registry
        cannot: the features that it can't express
        makes_env: whether the environment has to be made for it, which imports the user's own
    """

    name: str
    help: str
    suffix: str
    function: str
    cannot: tuple[Feature, ...] = (SUITE, WEIGHTS, SCHEDULE)
    makes_env: bool = True

    def check(self, spec: TrainSpec, others: str) -> None:
        """Raise `UserError` for a feature that can't be expressed; ``others`` can."""
        for feature in self.cannot:
            if feature.is_used(spec):
                raise UserError(
                    f"{feature.words}, which --to {self.name} can't say; --to {others} can."
                )

    def render(self, found: Exportable) -> str:
        """Return the text.

        Raises:
            UserError: the format has no equal for something else that the training uses.
        """
        module, _, name = self.function.partition(":")
        function = getattr(importlib.import_module(module), name)
        return cast("Callable[[Exportable], str]", function)(found)
