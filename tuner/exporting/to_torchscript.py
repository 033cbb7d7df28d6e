"""Exports to TorchScript: a policy's graph as a program that PyTorch runs without Python."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rltune.backends.exported.runners import ABOUT, about_json

if TYPE_CHECKING:
    from rltune.exporting.exportable_policy import ExportablePolicy


def write_torchscript(found: ExportablePolicy, path: Path) -> None:
    """Write the file: a frozen module, and what it says of itself beside it."""
    import torch

    graph, jit = found.graph, cast("Any", torch.jit)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        traced = jit.trace(graph, graph.examples(2), check_trace=False)
        frozen = jit.freeze(traced)
        jit.save(frozen, str(path), _extra_files={ABOUT: about_json(found.about)})
