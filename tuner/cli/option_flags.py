"""Flags of the command line, made from the options that a dataclass declares."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from rltune.cli.flags import parse_mapping
from rltune.common.options import Option, parse_whole


class Group(Protocol):
    """A parser, or a group of its help page."""

    def add_argument(self, *flags: str, **settings: Any) -> argparse.Action:
        """Add a flag."""


def add_groups(
    parser: argparse.ArgumentParser, titles: Sequence[str], options: Iterable[Option]
) -> dict[str, Group]:
    """Add the flags of options below the headings ``titles``, and return the groups by heading."""
    groups: dict[str, Group] = {title: parser.add_argument_group(title) for title in titles}
    for option in options:
        if option.spellings:
            add_flag(groups.get(option.group, parser), option, option.described())
    return groups


def add_flag(group: Group, option: Option, text: str) -> None:
    """Add the flag of an option with its help; without the flag, the value is None."""
    settings: dict[str, Any] = {"dest": option.name, "default": None}
    settings["help"] = text.replace("%", "%%")  # argparse formats it
    if option.kind is bool:
        settings["action"] = "store_false" if option.default is True else "store_true"
    else:
        settings["metavar"] = option.metavar
        settings["type"] = option.parse or _parser(option)
        if option.kind is list:
            settings["action"] = "append"
        if option.bare is not None:
            settings.update(nargs="?", const=option.bare)
    group.add_argument(*option.spellings, **settings)


def _parser(option: Option) -> Any:
    """Return the function that turns the text of a flag into a value of the option's type."""
    if option.kind is dict:
        return lambda text: parse_mapping(option.flag, text)
    return {int: parse_whole, float: float}.get(option.kind, str)


def given(args: argparse.Namespace, options: Mapping[str, Option]) -> dict[str, Any]:
    """Return the values of the options that stand on the command line."""
    values = {name: getattr(args, name, None) for name in options}
    return {name: value for name, value in values.items() if value is not None}


def add_callbacks(group: Group) -> None:
    """Add the flag for code of the user's own that is called on the way."""
    group.add_argument(
        "--callback",
        dest="callbacks",
        action="append",
        default=[],
        metavar="MODULE:CLASS",
        help="rltune.Callback of your own that is told what happens; may be repeated "
        "(docs/callbacks.md)",
    )


def add_files(group: Group, study: bool = False) -> None:
    """Add what a search and a training have beside their options; ``study``: names of a search."""
    names = ("--name", "--study-name") if study else ("--name",)
    group.add_argument(*names, help="name of the run (default: agent, environment and date)")
    group.add_argument(
        "--storage-path",
        "--storage",
        metavar="DIR",
        help="folder of the runs, or cloud storage such as s3://bucket/runs (default: runs)",
    )
    group.add_argument(
        "--track",
        dest="wandb",
        action="store_const",
        const="online",
        help="the same as --wandb online",
    )
