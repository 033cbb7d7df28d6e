"""Translated configurations as YAML, with what has no counterpart in comments."""

from __future__ import annotations

import textwrap
from pathlib import Path

import yaml
from rltune.importing.settings import Translation


def as_yaml(found: Translation, file: Path) -> str:
    """Return what `rltune train --config` and the `start` of a search space read."""
    header = [f"{found.behavior} of {file.name}, translated from ML-Agents' trainer {found.agent}"]
    if found.notes:
        header += ["", "No counterpart, or not the same:", *(f"  {note}" for note in found.notes)]
    lines = [
        part
        for line in header
        for part in textwrap.wrap(line, 96, subsequent_indent="    ") or [""]
    ]
    data = {"agent": found.agent, "budget": found.budget, "config": found.config}
    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)
    return "".join(f"# {line}".rstrip() + "\n" for line in lines) + text
