"""Importances in the terminal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from rltune.common.formats import plural
from rltune.common.terminal import Sheet, make_console
from rltune.runs.reader import RunReader

if TYPE_CHECKING:
    import pandas as pd

BESIDE_NAME = 62  # columns of the screen that a row takes beside its name
NAMES = {"fanova": "fANOVA", "ped-anova": "PED-ANOVA", "permutation": "permutation"}
MEANINGS = {
    "fanova": "share of the differences between trials that the parameter makes alone",
    "ped-anova": "how far the best trials' values lie from all; a share of all parameters",
    "permutation": "share of the differences that a model misses without it, interactions included",
}


def show_importances(
    run: RunReader, frame: pd.DataFrame, *, plain: bool = False, console: Console | None = None
) -> None:
    """Print the table of `importances.importances`; ``plain`` without colours."""
    console = console or make_console(plain)
    sheet = Sheet(console)
    spec = run.spec
    console.print(
        Text.assemble(
            ("rltune", "bold cyan"),
            (f"  {spec.get('agent')} on {spec.get('env')}", "bold"),
            (f"  {run.name}", "dim"),
        )
    )
    trials = plural(frame.attrs["trials"], "trial")
    interval = frame.attrs["interval"]
    console.print(f"importances from {trials}, with {interval}s")
    if needs := frame.attrs["needs"]:
        console.print(Text(needs, "dim"))
    claimed = frame["importance"].notna().any()
    for method in dict.fromkeys(frame["method"]) if claimed else ():
        rows = frame[frame["method"] == method]
        sheet.section(NAMES[method], MEANINGS[method])
        _rows(console, rows[rows["kind"] == "parameter"].to_dict("records"), interval)
        for kind, title in (("pair", "Pairs"), ("seed", "Seeds")):
            more = rows[rows["kind"] == kind].to_dict("records")
            if more:
                note = "beyond what the two make alone" if kind == "pair" else "the luck of a seed"
                sheet.section(title, note)
                _rows(console, more, interval)
    if frame.attrs["notes"]:
        console.print()
    for note in frame.attrs["notes"]:
        console.print(Text(f"! {note}", "yellow"))
    sheet.section("Files", f"in {os.path.relpath(run.path)}")
    for name in ("report/importances.parquet", "report/importances.csv"):
        console.print(f"  {name}")


def _rows(console: Console, rows: Sequence[dict[Any, Any]], interval: str) -> None:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("", overflow="fold")
    for name in ("importance", interval, "noise up to", "trials"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    longest = max(len(row["parameter"]) for row in rows)
    between = " x " if longest + BESIDE_NAME <= console.width else "\n  x "
    for row in rows:
        value, low, high, floor = (_percent(row[n]) for n in ("importance", "low", "high", "floor"))
        cells = value, f"{low} to {high}", floor, str(row["trials"])
        verdict = "noise" if row["is_noise"] else ""
        style = "dim" if row["is_noise"] else ""
        name = row["parameter"].replace(" x ", between)
        table.add_row(f"  {name}", *cells, verdict, style=style)
    console.print(table)


def _percent(share: float) -> str:
    return "-" if share != share else f"{100 * share:.0f} %"
