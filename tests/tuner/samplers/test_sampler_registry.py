"""The registry of samplers: names, options and the documents agree; it is light."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from rltune.runs.search_spec import SearchSpec
from rltune.samplers.registry import DEFAULT, SAMPLERS, check_options, for_several, sampler_class

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_class_bears_the_name_of_its_line(name: str) -> None:
    assert sampler_class(name).name == name


def test_a_search_has_the_default() -> None:
    assert SearchSpec.sampler == DEFAULT in SAMPLERS


def test_the_documents_list_every_sampler_with_its_options_and_defaults() -> None:
    rows = re.findall(r"^\| (`.+?`) \|.*\|(.*)\|$", (DOCS / "samplers.md").read_text(), re.M)
    found = {name: row for names, row in rows for name in re.findall("`(.+?)`", names)}
    assert found.keys() == SAMPLERS.keys()
    for name, row in found.items():
        written = dict(re.findall(r"`(\w+)(?:: ([^`]+))?`", row))
        written.pop("halton", None)  # the other value of qmc_type
        defaults = {
            option: "" if value is None else str(value).lower() if value in (True, False) else value
            for option, value in check_options(name, {}).items()
        }
        assert written == {option: str(value) for option, value in defaults.items()}, name


def test_the_documents_say_which_know_several_objectives() -> None:
    text = " ".join((DOCS / "objectives.md").read_text().split())
    *names, last = (f"`{name}`" for name in for_several())
    assert f"**Samplers**: {', '.join(names)} and {last}." in text


def test_importing_the_names_imports_no_sampler() -> None:
    code = "import sys, rltune.samplers.registry; print('optuna' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
