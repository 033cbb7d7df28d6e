"""The command `rltune plugins`: what installed packages add to rltune."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import UserError
from rltune.cli.flags import reject_extra

if TYPE_CHECKING:
    from rltune.agents.plugins import PluginGroup

PLUGINS_HELP = """\
List the agents, backends, samplers, schedulers, export formats, trackers and reward signals that
installed packages add, and whether each can be loaded (docs/plugins.md).

  rltune plugins
  rltune plugins --json

Exit code 1: one can't be used.
"""
COLUMNS = ("group", "name", "package", "version", "state")
OK = "ok"


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "plugins",
        help="list what installed packages add to rltune",
        description=PLUGINS_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(main=main)
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Print a line for each plug-in."""
    reject_extra(args, extra)
    rows = [COLUMNS, *_rows()]
    if args.json:
        import json

        print(json.dumps([dict(zip(COLUMNS, row, strict=True)) for row in rows[1:]], indent=1))
    elif len(rows) == 1:
        print("No plug-ins are installed.")
    else:
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for *cells, state in rows:
            print(
                *(f"{cell:<{w}}" for cell, w in zip(cells, widths, strict=False)), state, sep="  "
            )
    return int(any(row[-1] != OK for row in rows[1:]))


def _rows() -> Iterator[tuple[str, ...]]:
    """Yield the columns of each plug-in; it is loaded for that."""
    for group, load in _groups():
        for plugin in group.found:
            state = plugin.refused or _state(plugin.name, load)
            yield group.name, plugin.name, plugin.package, plugin.version, state


def _state(name: str, load: Callable[[str], object]) -> str:
    try:
        load(name)
    except UserError as error:
        return str(error)
    return OK


def _groups() -> list[tuple[PluginGroup, Callable[[str], object]]]:
    """Return each registry's plug-ins, and what loads and checks one by its name."""
    from rltune.agents import registry as agents
    from rltune.agents import reward_signals
    from rltune.agents.rewards.signals import signal_class
    from rltune.backends import single as backends
    from rltune.exporting import registry as exporters
    from rltune.samplers import registry as samplers
    from rltune.schedulers import registry as schedulers
    from rltune.tracking import registry as trackers

    return [
        (agents.PLUGINS, agents.agent_class),
        (backends.PLUGINS, backends.plugin_backend),
        (samplers.PLUGINS, samplers.sampler_class),
        (schedulers.PLUGINS, schedulers.scheduler_class),
        (exporters.PLUGINS, exporters.exporter),
        (trackers.PLUGINS, trackers.tracker_session),
        (reward_signals.PLUGINS, signal_class),
    ]
