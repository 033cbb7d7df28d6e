"""The terminal: consoles, sheets and tables of plain text."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDEST = 100  # sentences on longer lines are hard to read


def make_console(plain: bool = False) -> Console:
    """Return a console that is no wider than sentences can be read; ``plain`` without colours."""
    console = Console(color_system=None if plain else "auto", highlight=False)
    console.width = min(console.width, WIDEST)
    return console


class Sheet:
    """A page of titled sections in the terminal."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def section(self, name: str, note: str = "") -> None:
        """Print the title of a section."""
        self.print("")
        self.print(Text.assemble((name, "bold"), (f"   {note}" if note else "", "dim")))

    def line(self, content: str | Text | Table) -> None:
        """Print a sentence or a table below a section's title."""
        self.print(content, indent=2)

    def print(self, content: str | Text | Table, indent: int = 0) -> None:
        """Print, folded to the width, without blanks at the ends of the lines."""
        content = Text(content) if isinstance(content, str) else content
        options = self.console.options.update_width(self.console.width - indent)
        for segments in self.console.render_lines(content, options, pad=False):
            line = Text(" " * indent)
            for segment in segments:
                line.append(segment.text, segment.style)
            line.rstrip()
            self.console.print(line, soft_wrap=True)


def plain_table(*columns: str, numbers_from: int = 99) -> Table:
    """Return a table without lines; the columns from ``numbers_from`` on are aligned right."""
    table = Table(
        box=None, show_header=any(columns), header_style="dim", padding=(0, 2, 0, 0), pad_edge=False
    )
    for i, name in enumerate(columns):
        table.add_column(name, justify="right" if i >= numbers_from else "left", no_wrap=True)
    return table
