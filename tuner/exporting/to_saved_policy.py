"""Exports for rltune and PyTorch: the weights, and what rebuilds the agent to act."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rltune.exporting.exportable_policy import ExportablePolicy


def write_saved_policy(found: ExportablePolicy, path: Path) -> None:
    """Write the file; see `rltune.agents.loop.saved_policy`."""
    from rltune.agents.loop import saved_policy

    saved_policy.write(path, found.agent, dataclasses.asdict(found.about))
