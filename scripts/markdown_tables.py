"""Markdown tables, as the scripts print them for the docs."""

from __future__ import annotations

from collections.abc import Sequence


def heading(titles: Sequence[str]) -> None:
    """Print the titles of the columns, and the line below them."""
    line(titles)
    print("|" + "---|" * len(titles))


def line(cells: Sequence[str]) -> None:
    print("| " + " | ".join(cells) + " |")
