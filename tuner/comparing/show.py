"""A comparison in the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text
from rltune.common.formats import plural
from rltune.common.terminal import Sheet, make_console, plain_table
from rltune.comparing import text
from rltune.comparing.model import ComparisonData
from rltune.comparing.page import overall_table, pairs_table, scores_table
from rltune.reporting.page import Table


def show(found: ComparisonData, *, plain: bool = False, console: Console | None = None) -> None:
    """Print the conclusions, the warnings and the tables; ``plain`` without colours."""
    sheet = Sheet(console or make_console(plain))
    trainings = sum(len(entry.trainings) for entry in found.entries)
    facts = f"{plural(trainings, 'training')} on {plural(len(found.environments), 'environment')}"
    sheet.print(Text.assemble(("rltune", "bold cyan"), (f"  {text.names(found.labels)}", "bold")))
    sheet.print(Text(f"{facts} · {text.measured(found)}", "dim"))
    sheet.print("")
    for sentence in found.sentences:
        sheet.line(sentence)
    for warning in found.warnings:
        sheet.line(Text(warning, "yellow"))
    if found.overall is not None:
        _print(sheet, overall_table(found.overall, found))
    for result in found.environments:
        _print(sheet, scores_table(result, narrow=True))
    if (pairs := pairs_table(found, narrow=True)) is not None:
        _print(sheet, pairs)


def _print(sheet: Sheet, table: Table) -> None:
    sheet.section(table.title)
    numbers = [column.number for column in table.columns]
    lines = plain_table(
        *(column.name for column in table.columns), numbers_from=numbers.index(True)
    )
    for number, column in enumerate(lines.columns):
        if table.columns[number].number:  # where it is narrow, labels are folded
            cells = [table.columns[number].name, *(row.cells[number] for row in table.rows)]
            column.min_width = max(map(len, cells))
        else:
            column.no_wrap, column.overflow = False, "fold"
    for row in table.rows:
        lines.add_row(*row.cells)
    sheet.line(lines)
    if table.note:
        sheet.line(Text(table.note, "dim"))
