"""Exporting: the winner of a search, another trial or a training, in a format that others use.

`rltune export` writes what trains it again: with rltune, rl-zoo3, Stable-Baselines3, CleanRL or
RLlib. Reads the run directory alone; no path of the machine and no secret comes out.
"""

from __future__ import annotations

import os
from typing import cast

from rltune.agents.errors import UserError
from rltune.common.formats import listed
from rltune.exporting.base import TextExporter
from rltune.exporting.exportable import exportable
from rltune.exporting.registry import TEXTS, exporter
from rltune.runs.directory import RunDir
from rltune.runs.reader import RunReader


def export(
    run: str | os.PathLike[str] | RunReader,
    to: str = "rltune",
    trial: int | None = None,
    own_code: bool = False,
) -> str:
    """Return the winner, another trial, or a training's configuration as text in a format.

    Args:
        run: the run directory, its name, or latest
        to: "rltune", "yaml", "json", "zoo", "sb3", "cleanrl", "rllib", or a plug-in's; of trained
            policies there is `rltune.export_policy`
        trial: of a search; None: the winner
        own_code: whether an environment of the user's own may be imported, which the formats of
            others need; a run directory may come from anywhere

    Raises:
        UserError: nothing to export yet, no such trial or format, or no equal for what it uses.
    """
    form = exporter(to)
    if not isinstance(form, TextExporter):
        raise UserError(f"{to} is a file of a trained policy; rltune.export_policy writes it.")
    path = getattr(run, "path", run)
    found = exportable(RunDir.open(cast("str | os.PathLike[str]", path)), trial)
    form.check(found.spec, listed([name for name, e in TEXTS.items() if not e.cannot]))
    if form.makes_env and ":" in found.spec.env and not own_code:
        raise UserError(
            f"--to {to} has to make the environment {found.spec.env!r}, and what only reads a "
            "run imports no code that it names; --own-code allows it."
        )
    return form.render(found)
