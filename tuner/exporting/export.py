"""The winner of a search, another trial of it or a training, as something that others can use.

`rltune export` writes what trains it again: with rltune, rl-zoo3, Stable-Baselines3, CleanRL or
RLlib. Reads the run directory alone; no path of the machine and no secret comes out.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from rltune.agents.envs.suite import is_suite
from rltune.agents.errors import UserError, unknown
from rltune.exporting.exportable import exportable
from rltune.exporting.registry import FORMATS
from rltune.runs.directory import RunDir
from rltune.runs.reader import RunReader
from rltune.runs.train_spec import TrainSpec

if TYPE_CHECKING:
    from rltune.exporting.exportable import Exportable


def export(
    run: str | os.PathLike[str] | RunReader,
    to: str = "rltune",
    trial: int | None = None,
    own_code: bool = False,
) -> str:
    """Return the winner, or another trial, or a training's configuration, in the words of others.

    Args:
        run: the run directory, its name, or latest
        to: "rltune", "yaml", "json", "zoo", "sb3", "cleanrl" or "rllib"
        trial: of a search; None: the winner
        own_code: whether an environment of the user's own may be imported, which the words of
            others need; a run directory may come from anybody

    Raises:
        UserError: nothing to export yet, no such trial or format, or no equal for what it uses.
    """
    if to not in FORMATS:
        raise unknown("format", to, FORMATS, "--to")
    path = getattr(run, "path", run)
    found = exportable(RunDir.open(cast("str | os.PathLike[str]", path)), trial)
    if to not in _ANY:
        _check_simple(found.spec, to)
        if ":" in found.spec.env and not own_code:
            raise UserError(
                f"--to {to} has to make the environment {found.spec.env!r}, and what only reads a "
                "run imports no code that it names; --own-code allows it."
            )
    module, name = FORMATS[to]
    render: Callable[[Exportable], str] = getattr(importlib.import_module(module), name)
    return render(found)


_ANY = ("rltune", "yaml", "json")


def _check_simple(spec: TrainSpec, to: str) -> None:
    """Raise for what only rltune itself can repeat."""
    instead = f"--to {to} can't say; --to {', '.join(_ANY[:-1])} or {_ANY[-1]} can."
    if is_suite(spec.env):
        raise UserError(f"this run has several environments at once, which {instead}")
    if spec.weights:
        raise UserError(f"this training starts from weights, which {instead}")
    if spec.schedule:
        raise UserError(f"its hyperparameters change as it trains, which {instead}")


# ------------------------------------------------------------------------------ from the directory


# --------------------------------------------------------------------------------------- our words
