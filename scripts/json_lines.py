"""Files of JSON lines, in which the scripts keep what they have measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a file; none where there is no file."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def append(file: Path, row: Mapping[str, Any]) -> None:
    """Add a row to a file, which is made where there is none."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as lines:
        lines.write(json.dumps(row) + "\n")
