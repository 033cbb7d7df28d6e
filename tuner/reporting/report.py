"""The report/ folder of a run: the page, the pictures, the Markdown."""

from __future__ import annotations

import os
from pathlib import Path

from rltune.agents.errors import UserError, storage_error
from rltune.analysis.importance import importances
from rltune.analysis.summary import Summary
from rltune.common.files import atomic_write
from rltune.reporting import clip, figures, page
from rltune.reporting.page import Page
from rltune.runs.reader import read_run


def report(path: str | os.PathLike[str], *, pictures: bool = True) -> Path:
    """Write the report of a run into its folder report/, and return the page.

    Works on a run that is still running, was killed, or has found nothing yet.

    Args:
        path: the run directory, its name, or "latest"
        pictures: write a PNG of each figure, too

    Raises:
        UserError: there is no such run, or it is from a newer version.
    """
    summary = Summary(read_run(path))
    if summary.kind == "search" and summary.importances is not None:
        importances.write(summary.run, summary.importances)
    return write(
        page.of_run(summary, figures.charts(summary)), summary.path / "report", pictures=pictures
    )


def write(page: Page, folder: Path, *, pictures: bool = True, flag: str | None = None) -> Path:
    """Write index.html, summary.md and a PNG of each figure; return the page.

    ``flag`` is the one that names the folder, if one does.

    Raises:
        UserError: the folder is a file, or may not be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(error, folder, flag) from error
    if pictures:
        for chart in page.charts:
            chart.save(folder)
    atomic_write(folder / "summary.md", page.markdown(pictures=pictures))
    atomic_write(folder / "index.html", page.html())
    return folder / "index.html"


def report_quietly(path: str | os.PathLike[str]) -> str:
    """Record the winner of a search that has just ended, write its page, and return where it is.

    Whatever goes wrong with it, the search has succeeded.
    """
    hint = ""
    try:
        clip.record(path)
    except (UserError, OSError) as error:  # there may be no winner, or nothing to see
        if "pip install" in str(error):
            hint = f"\nNo clip of the winner: {error}"
    try:
        return f"\nReport  {report(path, pictures=False)}{hint}"
    except Exception as error:
        return f"\nThe report could not be written: {type(error).__name__}: {error}"
