"""An export format: the configuration as an INI file."""

from __future__ import annotations

from rltune.exporting.base import TextExporter
from rltune.exporting.exportable import Exportable


def as_ini(found: Exportable) -> str:
    lines = [f"; {line}" for line in found.header]
    lines += ["[training]", f"agent = {found.spec.agent}", f"env = {found.spec.env}"]
    lines += ["", "[hyperparameters]"]
    lines += [f"{name} = {value}" for name, value in found.spec.config.items()]
    return "\n".join(lines) + "\n"


INI = TextExporter(
    name="ini",
    help="an INI file",
    suffix=".ini",
    function="rltune_example.exporter:as_ini",
    makes_env=False,
)
