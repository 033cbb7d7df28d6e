"""The example notebook runs, and what it shows can be shown."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import matplotlib
import nbformat
import pytest
import rltune
from nbclient import NotebookClient
from test_report import NASTY, finish, make_run

NOTEBOOK = Path(__file__).parents[3] / "examples" / "search.ipynb"


def outputs(cell: Any) -> set[str]:
    return {kind for output in cell["outputs"] for kind in output.get("data", {})}


@pytest.mark.slow
def test_the_example_notebook_runs(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    assert not any(cell.get("outputs") for cell in notebook.cells)
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute()
    cells = {cell["source"]: cell for cell in notebook.cells if cell["cell_type"] == "code"}
    assert "text/html" in outputs(cells["result"])
    for name in ("history", "learning-curves"):
        kinds = outputs(cells[f'figures["{name}"]'])
        assert kinds == {"application/vnd.plotly.v1+json", "image/png", "text/plain"}
    command = next(cell for source, cell in cells.items() if "command.txt" in source)
    assert command["outputs"][0]["text"].startswith("rltune train ppo --env CartPole-v1")


@pytest.mark.slow
def test_figures_and_answers_show_themselves(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    finish(run)
    matplotlib.use("svg")  # whatever the user draws with stays as it is
    opened = rltune.open(run.path)
    figures = opened.figures()
    assert {"history", "parallel", "importances"} <= set(figures)
    for figure in figures.values():
        bundle = figure._repr_mimebundle_()
        assert bundle["application/vnd.plotly.v1+json"]["layout"]["title"]["text"] == figure.title
        assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
    assert matplotlib.get_backend() == "svg"
    shown = opened._repr_html_()
    assert "Use trial 6: it beats the agent&#39;s defaults" in shown
    assert "Ranking" not in shown
    assert "known-good settings 1" in shown


def test_no_word_of_a_run_becomes_html(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.content["spec"]["env"] = NASTY
    run.write_yaml("run.yaml", run.content)
    assert "<script>" not in rltune.open(run.path)._repr_html_()
