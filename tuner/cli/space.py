"""`rltune spaces` and `rltune space check|schema`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rltune.space.space import Space


def add_parser(subparsers: Any) -> None:
    """Add the commands."""
    spaces = subparsers.add_parser(
        "spaces",
        help="list the search spaces that ship",
        description="List the search spaces that ship with rltune.",
    )
    spaces.set_defaults(main=spaces_main)

    space = subparsers.add_parser(
        "space",
        help="check a search-space file and preview its samples",
        description="Work with search-space files; docs/spaces.md shows their language.",
    )
    space.set_defaults(main=lambda args, extra: _need_command())
    commands = space.add_subparsers(title="commands", dest="space_command", metavar="COMMAND")
    check = commands.add_parser(
        "check",
        help="check a file, show its dimensions and preview samples",
        description="Check a search-space file, show its dimensions and preview samples.",
    )
    check.set_defaults(main=check_main)
    check.add_argument("file", metavar="FILE", help="a file, or the name of a space that ships")
    check.add_argument("--agent", help="check the names and types for this agent; default: its own")
    check.add_argument("--env", help="show the starts for this environment; default: its own")
    check.add_argument("--samples", type=int, default=5, metavar="N", help="default: 5")
    check.add_argument("--seed", type=int, default=0, help="of the samples; default: 0")
    schema = commands.add_parser(
        "schema",
        help="print the JSON Schema",
        description="Print the JSON Schema by which editors complete and check the files.",
    )
    schema.set_defaults(main=schema_main)


def _need_command() -> int:
    raise UserError("which command? Write rltune space check FILE or rltune space schema")


def spaces_main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """List the spaces that ship."""
    _no_extra("spaces", extra)
    from rltune.space.space import Space, shipped_spaces

    rows = []
    for name, file in shipped_spaces().items():
        space = Space.load(file)
        rows.append(
            (
                name,
                space.agent or "any",
                space.env or "any",
                str(len(space.dimensions)),
                str(sum(start.part == "start" for start in space.starts)),
                str(sum(start.part == "portfolio" for start in space.starts)),
                os.path.relpath(file) if file.is_relative_to(Path.cwd()) else str(file),
            )
        )
    _print_table(
        ("name", "agent", "environment", "dimensions", "starts", "portfolio", "file"), rows
    )
    return 0


def check_main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Check one file."""
    _no_extra("space check", extra)
    if args.samples < 0 or args.seed < 0:
        raise UserError("space check: --samples and --seed must be 0 or more")
    import numpy as np
    from rltune.space.checks import check_names, check_reach
    from rltune.space.space import Space

    space = Space.load(args.file)
    agent, env = args.agent or space.agent, args.env or space.env
    notes: list[str] = []
    if agent is not None:
        space, notes = _checked_as_by_a_search(agent, args.env, args.file)
    else:
        check_names(space)
        check_reach(space)
    rng = np.random.default_rng(args.seed)
    samples = [space.resolve(space.sample(rng)) for _ in range(args.samples)]

    _show_parts(space, agent, env)
    for note in notes:
        print(f"\n{note}")
    if samples:
        print(f"\n{len(samples)} samples:" if len(samples) > 1 else "\n1 sample:")
        names = sorted(set().union(*samples), key=_order(space).index)
        rows = [[_value(sample.get(name)) for sample in samples] for name in names]
        head = ("", *(f"#{i + 1}" for i in range(len(samples))))
        _print_table(head, [(name, *row) for name, row in zip(names, rows, strict=True)])
    print(f"\n{args.file} is valid" + (f" for {agent}" if agent else "; no agent to check against"))
    return 0


def _checked_as_by_a_search(agent: str, env: str | None, file: str) -> tuple[Space, list[str]]:
    """Return the space in the agent's names, and what is to be said of it; UserError: refused."""
    import numpy as np
    from rltune.agents.envs.suite import environments
    from rltune.backends.registry import check_fit
    from rltune.search.own_code import completed_choice, config_class_of, resolved
    from rltune.search.request import defaults_among, full_config, starts
    from rltune.search.space_choice import choose_space
    from rltune.space.surroundings import split

    agent = resolved(agent)
    found = config_class_of(agent, file)
    choice = completed_choice(agent, choose_space(agent, env, file, found, {}))
    if choice.env:
        default = defaults_among(starts(choice.space, choice.env, found))
        drawn = choice.space.resolve(choice.space.sample(np.random.default_rng(0)))
        for config in (default.config, full_config(found, drawn)):
            parts = split(config, {}, choice.space.budget or 1)
            # A space need not name the data that trainings learn from; a search names them.
            given = {name: value for name, value in parts.config.items() if value != ""}
            for env in environments(choice.env):
                check_fit(agent, env, [given], parts.env_kwargs, has_data=True)
    return choice.space, choice.notes


def schema_main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Print the JSON Schema."""
    _no_extra("space schema", extra)
    from rltune.space.schema import schema_text

    sys.stdout.write(schema_text())
    return 0


def _show_parts(space: Space, agent: str | None, env: str | None) -> None:
    budget = f"{space.budget:,} env steps" if space.budget else "none"
    print(f"agent: {agent or 'any'}   environment: {env or 'any'}   budget: {budget}\n")
    rows = [
        (
            name,
            dimension.kind + (" (log)" if dimension.log else ""),
            dimension.describe().partition(": ")[2],
            " and ".join(
                f"{k} {_value(v)}" for k, v in dimension.to_dict().get("when", {}).items()
            ),
        )
        for name, dimension in space.dimensions.items()
    ]
    _print_table(("dimension", "scale", "range", "when"), rows)
    print()
    lines = [("fixed", f"{name} = {_value(value)}") for name, value in space.fixed.items()]
    lines += [("derived", f"{name} = {e.text}") for name, e in space.derived.items()]
    lines += [("constraint", constraint.text) for constraint in space.constraints]
    from rltune.space.reader import STARTS

    shown = [s for part in STARTS for s in space.starts_for(env, part)] if env else space.starts
    for start in shown:
        values = ", ".join(f"{name} {_value(value)}" for name, value in start.values.items())
        lines.append((start.part, f"{_start_name(start.name, start.env)}: {values}"))
    _print_table(None, lines)


def _start_name(name: str, env: Iterable[str]) -> str:
    return " ".join(part for part in (name, "/".join(env)) if part) or "any"


def _order(space: Space) -> list[str]:
    return [*space.dimensions, *space.fixed, *space.derived]


def _value(value: Any) -> str:
    from rltune.space.dimensions import word

    return "" if value is None else word(value)


def _print_table(head: Sequence[str] | None, rows: Sequence[Sequence[str]]) -> None:
    """Print a table: with lines in a terminal, in plain columns when piped."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return
    console = Console()
    if not console.is_terminal:
        table = [head, *rows] if head else rows
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for row in table:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            print("  ".join(cells).rstrip())
        return
    grid = Table(box=box.SIMPLE_HEAD if head else None, show_header=bool(head), pad_edge=False)
    for title in head or rows[0]:
        grid.add_column(title, overflow="fold")
    for row in rows:
        grid.add_row(*map(Text, row))
    console.print(grid)


def _no_extra(command: str, extra: Sequence[str]) -> None:
    if extra:
        raise UserError(f"{command}: there is no {extra[0]!r}; see rltune {command} --help")
