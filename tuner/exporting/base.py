"""Export formats: what each is called, what it can't express, and the function that writes it.

There are two kinds: a configuration as a text that trains it again, and a trained policy as a file.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from rltune.agents.envs.suite import is_suite
from rltune.agents.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from rltune.exporting.exportable import Exportable
    from rltune.exporting.exportable_policy import ExportablePolicy
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
    """A format of `rltune export`: a `TextExporter` or a `PolicyExporter`.

    A new one is a module with a function, and an entry in `registry.py`, or in a plug-in's group
    ``rltune.exporters``.

    Attributes:
        name: as in ``--to NAME``
        help: of the command line
        suffix: of a file in this format
        function: "module:function"; imported when it is called, because the command line reads the
            registry
    """

    name: str
    help: str
    suffix: str
    function: str

    def imported(self) -> Callable[..., object]:
        """Return the function."""
        module, _, name = self.function.partition(":")
        return cast("Callable[..., object]", getattr(importlib.import_module(module), name))


@dataclass(frozen=True, kw_only=True)
class TextExporter(Exporter):
    """A format for a configuration; its function gets an `Exportable` and returns the text.

    Attributes:
        cannot: the features that it can't express
        makes_env: whether the environment has to be made for it, which imports the user's own
    """

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
        return cast("str", self.imported()(found))


@dataclass(frozen=True, kw_only=True)
class PolicyExporter(Exporter):
    """A format for a trained policy; its function gets an `ExportablePolicy` and a path.

    Attributes:
        packages: that it needs, and ``rltune[onnx]`` brings
        is_read_back: whether `rltune.load` reads the file, and its actions are compared
    """

    packages: tuple[str, ...] = ()
    is_read_back: bool = True

    def write(self, found: ExportablePolicy, path: Path) -> None:
        """Write the file.

        Raises:
            UserError: a package is missing, or the format has no equal for what the agent uses.
        """
        for package in self.packages:
            try:
                importlib.import_module(package)
            except ImportError:
                raise UserError(
                    f'--to {self.name} needs {package}: pip install "rltune[onnx]"'
                ) from None
        self.imported()(found, path)
