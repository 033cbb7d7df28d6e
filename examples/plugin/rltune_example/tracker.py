"""A tracker: a text file of JSON lines for each training, in tracker/lines of the run directory.

It runs in a process of its own, which gets what happens as messages.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rltune.tracking.session import Session


class Lines(Session[Path]):
    """--tracker lines, or --tracker lines=SUFFIX"""

    def __init__(self, message, warn) -> None:
        super().__init__(message, warn)
        self.suffix = message["setting"] or "jsonl"

    def open(self, name: str, identity: str, role: str, config: dict[str, Any]) -> Path:
        return self.path / "tracker" / "lines" / f"{name}.{self.suffix}"

    def add(self, run: Path, env_steps: int, metrics: dict[str, float]) -> None:
        self._write(run, {"env_steps": env_steps, **metrics})

    def end(self, run: Path, summary: dict[str, Any], failed: bool) -> None:
        self._write(run, {"failed": failed, **summary})

    def search_finished(self, summary: dict[str, Any]) -> None:
        self._write(self.open("search", "", "", {}), summary)

    def _write(self, run: Path, row: dict[str, Any]) -> None:
        with run.open("a") as file:
            file.write(json.dumps(row) + "\n")
