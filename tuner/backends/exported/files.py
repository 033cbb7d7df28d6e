"""Files of exported policies: telling their kinds apart, and loading them."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from rltune.agents.errors import UserError

if TYPE_CHECKING:
    from rltune.backends.exported.agent import ExportedAgent

ONNX, TORCHSCRIPT = "onnx", "torchscript"
_ONNX_BEGINS = b"\x08"  # the version of its format, the first field of every such file


def kind_of(path: Path) -> str | None:
    """Return which kind of program a file is; None: none, or it can't be read.

    Nothing of it is loaded but the names of its parts. Saved policies are none: they are weights.
    """
    try:
        with path.open("rb") as file:
            begins = file.read(2)
        if begins[:1] == _ONNX_BEGINS:
            return ONNX
        if begins != b"PK":
            return None
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return None
    return TORCHSCRIPT if any("/code/" in name for name in names) else None


def load(path: Path, kind: str, env: str | None = None) -> ExportedAgent:
    """Return the agent of an exported policy, to act with on a CPU.

    Args:
        path: the file
        kind: of it
        env: refuse a policy of another environment

    Raises:
        UserError: it can't be read, or is of another environment.
    """
    from rltune.backends.exported.agent import ExportedAgent
    from rltune.backends.exported.runners import OnnxRunner, TorchScriptRunner

    runner = OnnxRunner(path) if kind == ONNX else TorchScriptRunner(path)
    if env not in (None, runner.about.env):
        raise UserError(f"{path} is of env {runner.about.env!r}, not of {env!r}")
    return ExportedAgent(runner, path)
